"""Tests on a device that is not the CPU. `test_device.py` runs them in a process of their own: see `other_device.py`."""

from dataclasses import replace

import numpy as np
import other_device
import pytest
import torch

import ropescope as rs
from ropescope.measures import view as views
from ropescope.models.adapter import check
from ropescope.studies.conformance.families import tiny
from ropescope.studies.head_scores import Scoring, measure
from ropescope.tasks.prompts import as_prompt

GENERATOR = torch.Generator().manual_seed(3)
IDS = [torch.randint(4, 60, (length,), generator=GENERATOR).tolist() for length in (12, 17)]
SENTENCES = replace(as_prompt(IDS[1]), blocks=((1, 4), (4, 7), (7, 9), (9, 12), (12, 15)))
LEAST = {"planes": False, "sensitivity": False}
STAYS = {
    "measures/scores.py:_permutation_rows": "random permutations, the same on every device",
    "measures/redrawn.py:redrawn": "random logits, the same on every device",
    "studies/head_scores.py:measure_each": "finished measures of a layer",
    "studies/head_scores.py:_stacked": "finished measures of all layers",
}
"""Where numbers may be on the CPU."""


def compare(family, prompts, dtype=torch.float32, tolerance=1e-4, **options):
    """Profile a model on the CPU and on the device: scores must agree, and nothing else may be computed on the CPU."""
    model = tiny(family, dtype=torch.float32).to(dtype)
    expected = rs.profile(model, prompts, batch=2, **options)
    model = other_device.move(model)
    with other_device.staying() as found:
        scores = rs.profile(model, prompts, batch=2, **options)
    for name in expected.data_vars:
        a, b = (each[name].values.astype(float) for each in (expected, scores))
        np.testing.assert_allclose(b, a, atol=tolerance, err_msg=name)
    assert [where for where in found if not where.startswith(tuple(STAYS))] == []


def test_the_device_refuses_to_mix():
    here, there = torch.ones(3), torch.ones(3, device=other_device.NAME)
    assert there.device.type == other_device.NAME
    assert (there + 1).tolist() == [2, 2, 2]
    assert (there * torch.tensor(2.0)).tolist() == [2, 2, 2]  # single numbers may be on the CPU
    for mixed in (lambda: here + there, lambda: there[torch.tensor([0])], lambda: torch.stack([there, here])):
        with pytest.raises(RuntimeError, match="testgpu and of the CPU"):
            mixed()


def test_everything_of_a_profile():
    compare("llama", IDS[:1], permutations=20)


def test_blocks_and_their_planes():
    compare("llama", [SENTENCES], permutations=20)


def test_many_tokens(monkeypatch):
    """Their swaps are scored in tiles, with bounds."""
    monkeypatch.setattr(views, "MANY_TOKENS", 8)
    compare("llama", IDS[:1], tolerance=3e-3, sensitivity=False)


@pytest.mark.parametrize("prompts", [IDS, [SENTENCES]], ids=["tokens", "sentences"])
def test_many_queries(prompts):
    compare("llama", prompts, queries=4)


@pytest.mark.parametrize("family", ["gemma2", "gpt_oss", "gptj", "deepseek_v3", "falcon"])
def test_families(family):
    """Soft caps and windows, sinks, attention by a method, parts that do not rotate, PyTorch's own attention."""
    compare(family, IDS, **LEAST)


def test_half_precision():
    """Products of bfloat16 are summed in another order, since tensors of the device have no strides."""
    compare("llama", IDS, torch.bfloat16, tolerance=0.02, **LEAST)


def test_streamed_from_disk(tmp_path):
    tiny("llama", dtype=torch.float32).save_pretrained(tmp_path)
    expected = rs.profile(rs.load_model(str(tmp_path)).model, IDS, batch=2, **LEAST)
    model = rs.load_model(str(tmp_path), device=other_device.NAME, memory="50MB").model
    scores = rs.profile(model, IDS, batch=2, **LEAST)
    np.testing.assert_allclose(scores.positional, expected.positional, atol=1e-4)


def test_a_planted_tensor_on_the_cpu_is_found(monkeypatch):
    """One index made without a device."""
    adapter = rs.Adapter(other_device.move(tiny("llama", dtype=torch.float32)))
    measure(adapter, as_prompt(IDS[0]), Scoring(**LEAST))
    forgotten = property(lambda view: torch.arange(max(1, view.tokens - views.LAST_QUERIES), view.tokens))
    monkeypatch.setattr(views.LayerView, "last_positions", forgotten)
    with pytest.raises(RuntimeError, match="testgpu and of the CPU"):
        measure(adapter, as_prompt(IDS[0]), Scoring(**LEAST))


def test_planted_work_on_the_cpu_is_found(monkeypatch):
    """Queries and keys that are brought to the CPU to be scored there: nothing mixes, all is right, and all is slow."""
    adapter = rs.Adapter(other_device.move(tiny("llama", dtype=torch.float32)))
    contents = check.Layout.contents
    read = check.read_call

    def brought(call, layout, at, first=0):
        monkeypatch.setattr(
            check.Layout,
            "contents",
            lambda *args: tuple(x.cpu() if isinstance(x, torch.Tensor) else x for x in contents(*args)),
        )
        return read(call, layout, at, first)

    from ropescope.models.adapter import adapter as reading  # noqa: PLC0415

    monkeypatch.setattr(reading, "read_call", brought)
    monkeypatch.setattr(check, "_full_precision", lambda *args: (0.0, 1.0))
    with other_device.staying() as found:
        measure(adapter, as_prompt(IDS[0]), Scoring(**LEAST))
    assert "logits.py:logit_factors" in found
