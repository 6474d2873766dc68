"""Every family of `transformers` that rotates has a tiny model that runs, and the adapter verifies it or says why not."""

import json
from pathlib import Path

import pytest
import torch

from ropescope.models.adapter import ROUNDED
from ropescope.studies.conformance import run as conformance
from ropescope.studies.conformance.families import VOCABULARY, rope_variants, rotary_families, tiny, unbuildable
from ropescope.studies.conformance.run import LIMIT, check_family

pytestmark = pytest.mark.slow

# One needs a package for pictures, the others the keys of a larger model.
NOT_FROM_TEXT = {"gemma3n", "gemma4_assistant", "gemma4_unified_assistant"}
NO_DOUBLE = {"inkling2_text"}  # its experts are chosen in single precision
IDS = torch.randint(VOCABULARY, (1, 16), generator=torch.Generator().manual_seed(0))
RECORDED = {
    row["family"]: row for row in json.loads((Path(__file__).parents[1] / "results/conformance/families.json").read_text())
}


@torch.inference_mode()
def logits(model: torch.nn.Module, ids: torch.Tensor = IDS) -> torch.Tensor:
    return model(input_ids=ids, use_cache=False).logits


def test_families_are_those_that_rotate():
    families = set(rotary_families())
    assert len(families) > 100
    assert families >= {"llama", "gptj", "codegen", "falcon", "roformer", "deepseek_v2", "llama4"}
    assert families >= {"fuyu", "got_ocr2"}  # through the family of their text model
    assert not families & {"gpt2", "opt", "bloom", "bart", "mamba", "xlnet"}
    assert not families & {"jamba", "nemotron_h"}  # define a rotation and do not use it


@pytest.mark.parametrize("family", rotary_families())
def test_family(family, monkeypatch):
    """The tiny model runs, unless the family is newer than the record, and the adapter verifies it or says why not."""
    recorded = RECORDED.get(family, {}).get("verdict")
    if recorded in ("verified", "refused"):
        model = tiny(family, dtype=torch.float32 if family in NO_DOUBLE else torch.float64)
        check_running(model)
        monkeypatch.setattr(conformance, "tiny", lambda *_: model)  # the same one that would be built again
    row = check_family(family)
    if row["verdict"] == "verified":
        assert row["logit_error"] <= (ROUNDED if row["single"] else LIMIT)
        assert row["weight_error"] <= ROUNDED
    else:
        assert row["reason"]
    assert recorded in (None, row["verdict"])


def check_running(model: torch.nn.Module) -> None:
    first = logits(model)
    assert first.shape == (1, 16, VOCABULARY)
    assert first.isfinite().all()
    assert 0.3 < first.std() < 3
    constant = [name for name, weight in model.named_parameters() if weight.numel() > 1 and weight.min() == weight.max()]
    assert not constant
    assert not model.training

    later = IDS.clone()
    later[:, 12:] = (later[:, 12:] + 1) % VOCABULARY
    changed = (logits(model, later) - first).abs().amax((0, 2))
    assert changed[:12].max() < 1e-4
    assert changed[12:].min() > 1e-3


def test_enough_families():
    assert sum(row["verdict"] == "verified" for row in RECORDED.values()) >= 90


def test_another_seed_finds_the_same():
    """Weights and tokens are random: the verdict must not be."""
    for family in ("llama", "gemma2", "doge", "hunyuan_v1_dense"):
        assert check_family(family, seed=5)["verdict"] == RECORDED[family]["verdict"]


@pytest.mark.parametrize("family", ["llama", "gemma2", "gptj", "falcon", "deepseek_v3", "gpt_oss"])
def test_another_seed_is_another_model(family):
    assert (logits(tiny(family, 0)) - logits(tiny(family, 1))).abs().max() > 0.1


def test_same_seed_same_model_and_no_other_randomness():
    before = torch.random.get_rng_state()
    assert torch.equal(logits(tiny("gemma2", 3)), logits(tiny("gemma2", 3)))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_dtype():
    assert {weight.dtype for weight in tiny("llama", dtype=torch.float32).parameters()} == {torch.float32}


def test_reasons_of_those_that_do_not_run():
    reasons = unbuildable(["llama", *NOT_FROM_TEXT])
    assert set(reasons) <= NOT_FROM_TEXT
    assert reasons["gemma4_assistant"]


@pytest.fixture(scope="module")
def variants() -> dict[str, torch.nn.Module]:
    return rope_variants()


def test_rope_variants_differ(variants):
    default = logits(variants["default"])
    for name in variants.keys() - {"default"}:
        assert (logits(variants[name]) - default).abs().max() > 1e-2, name


@pytest.mark.parametrize(
    ("name", "changes"), [("dynamic", True), ("longrope", True), ("partial longrope", True), ("yarn", False)]
)
def test_rope_variants_change_with_length(variants, name, changes):
    frequencies = []
    for length in (7, 9):
        logits(variants[name], IDS[:, :length])
        frequencies.append(variants[name].model.rotary_emb.inv_freq.clone())
    assert torch.equal(*frequencies) != changes
