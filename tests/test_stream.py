"""Models larger than memory: layers are read from disk as they run, once for all prompts of a batch."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

import ropescope as rs
from ropescope.models.place import choose_device, parse_memory
from ropescope.models.source import parameter_hash
from ropescope.models.stream import streams
from ropescope.studies.conformance.families import tiny
from ropescope.studies.head_scores import Scoring
from ropescope.studies.profile.run import batches_for, scoring_bytes
from ropescope.tasks.prompts import as_prompt

GENERATOR = torch.Generator().manual_seed(3)
FEW = Scoring(planes=False, sensitivity=False)
PROMPTS = [torch.randint(4, 60, (length,), generator=GENERATOR) for length in (9, 14, 12)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folders = {}

    def saved(family, dtype=torch.float32):
        if (family, dtype) not in folders:
            folders[family, dtype] = str(tmp_path_factory.mktemp(family))
            tiny(family, dtype=torch.float32).to(dtype).save_pretrained(folders[family, dtype])
        return folders[family, dtype]

    return saved


def scores(model, **options):
    return rs.profile(model, PROMPTS, planes=False, sensitivity=False, **options)


@pytest.mark.parametrize("family", ["llama", "mixtral", "gemma2", "gpt_oss", "deepseek_v3", "gptj", "qwen3_next"])
@pytest.mark.slow
def test_a_streamed_model_has_the_scores_of_the_whole_one(folder, family):
    """Tied weights, experts that `transformers` joins, layers of several kinds: to the bit."""
    expected = scores(rs.load_model(folder(family)).model, batch=3)
    model = rs.load_model(folder(family), memory="50MB").model
    found = scores(model, batch=3)
    for name in ("positional", "symbolic", "check_error"):
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    inside = [name for name, value in model.named_parameters() if ".layers." in name or ".h." in name]
    assert inside
    assert all(model.get_parameter(name).is_meta for name in inside)


def test_weights_are_read_once_per_batch(folder):
    model = rs.load_model(folder("llama"), memory="50MB").model
    stored, adapter = streams[model].stored, rs.Adapter(model)
    embedding = stored.bytes_of("model.embed_tokens.weight")
    once = sum(map(stored.bytes_of, stored.entries)) - embedding - stored.bytes_of("model.norm.weight")
    for batch, passes in ((None, 1), (3, 1), (2, 2), (1, 3)):
        before = stored.bytes_read
        scores(adapter, batch=batch)
        rows = stored.bytes_read - before - passes * once
        assert 0 < rows <= passes * embedding


def test_as_many_prompts_as_fit(folder):
    model = rs.load_model(folder("llama"), memory="50MB").model
    adapter, stream = rs.Adapter(model), streams[model]
    prompts = [as_prompt(ids.tolist()) for ids in PROMPTS]
    assert batches_for(adapter, None, FEW)(prompts * 4) == 12
    assert batches_for(adapter, 2, FEW)(prompts) == 2
    stream.memory = stream.needed(2, 14, scoring_bytes(adapter, prompts[1], FEW))
    assert (
        batches_for(adapter, None, FEW)(prompts) == batches_for(adapter, 3, FEW)(prompts) == 2
    )  # of 14 tokens each with padding
    stream.memory = stream.needed(1, 9)
    with pytest.raises(ValueError, match=r"memory must be at least 0\.\d+ MB for a prompt of 9 tokens"):
        batches_for(adapter, None, FEW)(prompts)
    assert batches_for(rs.Adapter(tiny("llama")), None, FEW)(prompts) == 1


PEAK = """
import sys
import torch
import ropescope as rs
from pathlib import Path
from ropescope.studies.bench.memory import peak_bytes
from ropescope.studies.head_scores import Scoring
from ropescope.studies.profile.run import batches_for

adapter = rs.Adapter(rs.load_model(sys.argv[1], memory="40MB").model)
prompts = [rs.Prompt(torch.arange(800).remainder(60).numpy(), ((1, 2), (2, 3)), ("",) * 800)] * 8
batch = batches_for(adapter, None, Scoring(planes=False, sensitivity=False))(prompts)
Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
before = peak_bytes()
adapter.read_each([torch.from_numpy(prompt.ids) for prompt in prompts[:batch]], lambda *_: None, queries=1)
print(batch, peak_bytes() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory can be set back on Linux only")
def test_memory_is_kept_whatever_the_number_of_layers(tmp_path):
    """Hidden states of all layers once stayed until the end of the pass.

    In a process of its own whose blocks of memory go back to the system when they are freed: otherwise the peak differs by as
    much as is measured, with what the heap happens to keep.
    """
    sizes = {"hidden_size": 128, "intermediate_size": 128, "num_attention_heads": 1, "vocab_size": 64}
    LlamaForCausalLM(LlamaConfig(num_hidden_layers=32, **sizes)).save_pretrained(tmp_path)
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
    command = [sys.executable, "-c", PEAK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    batch, used = map(int, done.stdout.split())
    assert 3 <= batch <= 5
    assert used < 40e6


def test_too_little_memory_is_refused_with_what_is_needed(folder):
    with pytest.raises(ValueError, match=r"memory must be at least 0\.\d+ MB, and more for prompts of many tokens"):
        rs.load_model(folder("llama"), memory="1KB")


def test_a_matrix_is_converted_in_slices(folder, monkeypatch):
    monkeypatch.setattr("ropescope.models.stream.SLICE", 1000)
    stored = streams[rs.load_model(folder("llama"), memory="50MB").model].stored
    whole = stored.tensor("lm_head.weight")
    assert torch.equal(stored.converted("lm_head.weight", torch.float64, torch.device("cpu")), whole.double())


def test_precision_as_stored_and_as_asked(folder):
    assert rs.load_model(folder("llama")).about["dtype"] == "float32"
    half = folder("llama", torch.bfloat16)
    for memory in (None, "50MB"):
        assert rs.load_model(half, memory=memory).about["dtype"] == "bfloat16"
        exact = rs.load_model(half, "float64", memory=memory)
        assert exact.about["dtype"] == "float64"
        assert scores(exact.model).check_error.max() < 1e-6
    whole, streamed = (scores(rs.load_model(half, memory=memory).model, batch=3) for memory in (None, "50MB"))
    np.testing.assert_array_equal(streamed.positional, whole.positional)


def test_damaged_weights_are_found_as_they_are_read(folder, tmp_path):
    tiny("llama", dtype=torch.float32).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][3, 3] = torch.nan
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    model = rs.load_model(str(tmp_path), memory="50MB").model
    with pytest.raises(ValueError, match=r"NaN or infinite weights, first in model\.layers\.1\.mlp\.up_proj"):
        rs.Adapter(model)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"1 of its weights are not in the files, first model\.layers\.1\.mlp\.up_proj"):
        rs.load_model(str(tmp_path), memory="50MB")


@pytest.mark.slow
def test_from_the_shell_and_resumed_with_another_batch(folder, tmp_path):
    path, ids = folder("llama"), tmp_path / "ids.json"
    ids.write_text(str([prompt.tolist() for prompt in PROMPTS]))
    options = {"model": path, "prompts": str(ids), "sensitivity": False, "planes": False}
    whole = rs.run("profile", **options, device="cpu", out=tmp_path / "whole")
    streamed = rs.run("profile", **options, memory="50MB", out=tmp_path / "streamed")
    assert whole.summary["config"] == streamed.summary["config"]
    np.testing.assert_allclose(whole.dataset.positional, streamed.dataset.positional, atol=1e-3)  # rounded otherwise
    for number in (1, 2):
        (tmp_path / "streamed" / "inputs" / f"{number:05d}.safetensors").unlink()
    (tmp_path / "streamed" / "summary.json").unlink()
    again = rs.run("profile", **options, batch=2, out=tmp_path / "streamed")
    np.testing.assert_allclose(again.dataset.positional, streamed.dataset.positional, atol=1e-3)


def test_the_hash_is_that_of_stored_weights(folder):
    first, second = (rs.load_model(folder(name), memory="50MB").model for name in ("llama", "gptj"))
    assert parameter_hash(first) == parameter_hash(rs.load_model(folder("llama"), memory="40MB").model)
    assert parameter_hash(first) != parameter_hash(second)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"memory": "much"}, "memory must be a size such as 8GB"),
        ({"memory": "0GB"}, "memory must be a size such as 8GB"),
        ({"device": "tpu9"}, "device must be auto, cpu, cuda, mps"),
        ({"device": "meta"}, "device meta holds no numbers"),
        ({"device": "xpu:7"}, "device xpu:7 is not available here: use cpu"),
        ({"dtype": "int8"}, "dtype must be one of auto, float32"),
        ({"revision": "main"}, "revision is for hub ids"),
    ],
)
def test_settings_that_are_not_allowed(folder, options, says):
    with pytest.raises(ValueError, match=says):
        rs.load_model(folder("llama"), **options)


def test_batches_below_one_are_refused():
    with pytest.raises(ValueError, match="batch must be at least 1, not 0"):
        scores(tiny("llama"), batch=0)
    with pytest.raises(ValueError, match="batch must be at least 1, not 0"):
        rs.run("profile", model="nowhere", batch=0)


def test_sizes():
    assert parse_memory("8GB") == 8_000_000_000
    assert parse_memory("1.5 GiB") == 3 << 29
    assert parse_memory(12345) == parse_memory("12345") == 12345
    assert parse_memory(None) is None
    assert choose_device("auto").type in ("cpu", "cuda")
