"""The check of rotations: clean models pass, faults are found with layer and cause, dumps of any runtime can be checked."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import real
import torch
from commands import run
from safetensors.torch import save_file
from test_cli import check_summary
from transformers import LlamaConfig, LlamaForCausalLM

import ropescope as rs
from ropescope.models.claimed import claim_of
from ropescope.models.dumps import read_dump
from ropescope.models.rope_check import check_model, far_positions
from ropescope.rope import Rope
from ropescope.studies.check_rope import faulty
from ropescope.studies.check_rope.faults import FAULTS
from ropescope.studies.check_rope.faulty import Compared, judged, possible, subject_of
from ropescope.studies.conformance.families import rope_variants, rotary_families, tiny

RESULTS = Path(__file__).parents[1] / "results"
KINDS = (
    "llama",
    "gemma3_text",
    "gptj",
    "smollm3",
    "deepseek_v3",
    "gpt_oss",
    "hunyuan_v1_dense",
    "llama4_text",
    "nanochat",
    "glm4",
)
"""Families that differ in how they rotate."""
LLAMA_70B = {
    "model_type": "llama",
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 80,
    "max_position_embeddings": 131072,
    "rope_parameters": {
        **{"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        "original_max_position_embeddings": 8192,
    },
}


def wrong(checks):
    return {check.layer: [each.cause for _, each in check.departed] for check in checks if check.departed}


@pytest.mark.parametrize("family", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_clean_models_pass(family, dtype):
    # GPT-J that is built in half precision has a wrong table: see below.
    checks = rs.check_rope(tiny(family, dtype=torch.float64 if family == "gptj" else dtype))
    assert len(checks) >= 2
    assert wrong(checks) == {}
    assert not any(check.undecided for check in checks)


def test_a_table_that_is_built_in_half_precision_is_noticed():
    """GPT-J computes its frequencies in the precision that a model is built in. Loaded models are right."""
    model = tiny("gptj", dtype=torch.bfloat16)
    assert set(wrong(rs.check_rope(model))) == {0, 1}
    built = model.transformer.h[0].attn.embed_positions.double()
    rates = 10000.0 ** (-np.arange(0, 16, 2) / 16)
    exact = np.sin(np.outer(np.arange(len(built)), rates))
    assert np.abs(built[:, :8].numpy() - exact)[1000:].max() > 0.3


def test_converting_a_model_rounds_its_frequencies():
    """`model.to(bfloat16)` converts the buffer of frequencies, which loading in bfloat16 does not."""
    model = tiny("llama", dtype=torch.float32)
    assert wrong(rs.check_rope(model)) == {}
    said = wrong(rs.check_rope(model.to(torch.bfloat16)))
    assert set(said) == {0, 1}
    assert all("bfloat16" in text for texts in said.values() for text in texts)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_no_false_alarm_in_any_family(dtype):
    families = [
        row["family"]
        for row in json.loads((RESULTS / "conformance" / "families.json").read_text())
        if row["verdict"] == "verified"
    ]
    assert len(set(families) & set(rotary_families())) > 100
    alarms = {}
    for family in families:
        if (family in ("gptj", "codegen")) and dtype != "float32":  # the alarm is right: see above
            continue
        if said := wrong(check_model(tiny(family, dtype=getattr(torch, dtype)))):
            alarms[family] = said
    assert alarms == {}


def test_scalings_of_tiny_models_are_named():
    for name, model in rope_variants(dtype=torch.float32).items():
        checks = check_model(model, farthest=4000)
        assert wrong(checks) == {}, name
        if name in ("linear", "default"):
            assert checks[0].scaling.name == {"linear": "linear", "default": "none"}[name]


FAULTY = ["diffllama", "llama", "gptj", "smollm3", "gemma3_text", "gpt_oss"]


@pytest.fixture(scope="module")
def subjects():
    models = {name: tiny(name, dtype=torch.float32) for name in FAULTY}
    return {name: subject_of(model, check_model(model)) for name, model in models.items()}


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
@pytest.mark.slow
def test_faults_are_found_with_layer_and_cause(subjects, fault):
    tried = 0
    for subject in subjects.values():
        if possible(fault, subject):
            tried += 1
            found = judged(fault, subject, subject.layers[fault.name][-1:])
            assert found["detected"]
            assert found["layer_named"], found
            assert found["cause_named"], found
    assert tried


def test_greedy_text_and_logits_are_those_of_a_loop():
    """One pass over the clean model's text decides whether the other would have written the same."""
    clean, other = (tiny("llama", seed, torch.float32) for seed in (0, 0))
    with torch.no_grad():
        other.model.layers[0].mlp.down_proj.weight.mul_(1.05)
    ids = torch.randint(4, 90, (1, 16), generator=torch.Generator().manual_seed(1))

    def written(model):
        text = ids
        for _ in range(24):
            text = torch.cat((text, model(input_ids=text, use_cache=False).logits[:, -1:].argmax(-1)), 1)
        return text

    with torch.inference_mode():
        ours, theirs = written(clean), written(other)
    first = (ours != theirs)[0].nonzero()
    found = Compared(clean, ours, [20, 40]).against(other)
    expected = int(first[0]) if len(first) else None
    assert found["text_parts"] == expected
    assert found["text_differs"] == [expected is not None and expected < n for n in (20, 40)]


# Dumps


def dumped(folder, config, rope, tokens=64, heads=8, dtype=torch.bfloat16, equal=False, layer=40, **more):
    """A dump of one layer with random contents."""
    contents = torch.randn(heads, 1 if equal else tokens, rope.head_dim, generator=torch.Generator().manual_seed(0))
    before = contents.expand(heads, tokens, rope.head_dim).to(dtype)
    arrays = {"k": rope.rotate(before.double(), torch.arange(tokens)).to(dtype), "k0": before.contiguous()}
    save_file(arrays, folder / "layer.safetensors")
    entry = {"layer": layer, "part": "key", "file": "layer.safetensors", "axes": "head token dim"}
    times = [{**entry, "name": "k", "when": "after"}] + ([] if equal else [{**entry, "name": "k0", "when": "before"}])
    manifest = {"runtime": "a test", "config": config, "arrays": times, **({"tokens": "equal"} if equal else {}), **more}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder / "manifest.json"


def llama3_rope():
    config = LlamaConfig(**{key: value for key, value in LLAMA_70B.items() if key != "model_type"})
    return Rope(frequencies=claim_of(config, 40, 128, 64).frequencies)


@pytest.mark.parametrize("equal", [False, True], ids=["before and after", "equal tokens"])
def test_one_layer_of_a_70b_without_the_model(tmp_path, equal):
    (check,) = rs.check_rope(dumped(tmp_path, LLAMA_70B, llama3_rope(), equal=equal))
    assert (check.layer, check.departed, check.undecided) == (40, [], "")
    assert check.fits[0].rotation.head_dim == 128
    (check,) = rs.check_rope(dumped(tmp_path, LLAMA_70B, Rope(128, base=5e5), equal=equal))
    assert "scaling is missing (llama3)" in check.departed[0][1].cause


def test_a_dump_against_a_dump_and_a_model(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    right = dumped(tmp_path / "a", None, Rope(64), dtype=torch.float32)
    other = dumped(tmp_path / "b", None, Rope(64, base=11000.0), dtype=torch.float32)
    assert rs.check_rope(right)[0].undecided == "no rotation is claimed"
    assert rs.check_rope(right, right)[0].departed == []
    assert rs.check_rope(other, right)[0].departed


def test_ordinary_text_without_vectors_before_decides_the_first_layer(tmp_path):
    rope = Rope(64, base=1e4)
    ids = np.random.default_rng(0).integers(0, 12, 64)
    contents = torch.randn(12, 2, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    keys = rope.rotate(contents[ids].transpose(0, 1), torch.arange(64)).float().numpy()
    np.savez(tmp_path / "keys.npz", layer0=keys, layer1=keys)
    entry = {"layers": 2, "part": "key", "file": "keys.npz", "name": "layer{layer}", "axes": "head token dim"}
    config = {"model_type": "llama", "hidden_size": 128, "num_attention_heads": 2}
    manifest = {"tokens": ids.tolist(), "config": config, "arrays": [entry]}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    first, second = rs.check_rope(tmp_path / "manifest.json")
    assert (first.departed, first.undecided) == ([], "")
    assert first.scaling.constants["base"] == pytest.approx(1e4, rel=1e-4)
    assert "decide nothing but the first layer" in second.undecided


BAD = {
    "no list of arrays": {"arrays": []},
    "either layer": {"arrays": [{"part": "key", "file": "x.npy"}]},
    "part must be": {"arrays": [{"layer": 0, "part": "value", "file": "x.npy"}]},
    "axes must be": {"arrays": [{"layer": 0, "part": "key", "file": "x.npy", "axes": "token dim"}]},
    "below the manifest": {"arrays": [{"layer": 0, "part": "key", "file": "../x.npy"}]},
    "safetensors, npz or npy": {"arrays": [{"layer": 0, "part": "key", "file": "x.pt"}]},
    "tokens must be": {"arrays": [{"layer": 0, "part": "key", "file": "x.npy"}], "tokens": "same"},
    "precision must be": {"arrays": [{"layer": 0, "part": "key", "file": "x.npy"}], "precision": "int8"},
    "positions must be": {"arrays": [{"layer": 0, "part": "key", "file": "x.npy"}], "positions": "0"},
}


@pytest.mark.parametrize("said", BAD)
def test_bad_manifests_are_refused_in_one_sentence(tmp_path, said):
    (tmp_path / "manifest.json").write_text(json.dumps(BAD[said]))
    with pytest.raises(ValueError, match=said):
        read_dump(tmp_path / "manifest.json")


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.ones((2, 8)), "has 2 axes"),
        (np.full((2, 8, 4), np.nan), "NaN"),
        (np.ones((2, 8, 4), dtype=int), "floating-point"),
        (np.array([{"a": 1}], dtype=object), "cannot be read"),
        (None, "cannot be read"),
    ],
    ids=str,
)
def test_bad_arrays_are_refused(tmp_path, array, said):
    if array is not None:
        np.save(tmp_path / "x.npy", array, allow_pickle=True)
    manifest = {"tokens": "equal", "arrays": [{"layer": 0, "part": "key", "file": "x.npy"}]}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=said):
        rs.check_rope(tmp_path / "manifest.json")


def test_far_positions_reach_the_end():
    for context, tokens in ((8192, 64), (8192, 8), (70, 64), (20, 64)):
        found = far_positions(context, tokens)
        assert found[-1] == context - 1
        assert found == sorted(set(found))
        assert len(found) <= tokens


# The command


@pytest.mark.slow
def test_the_command_ends_with_1_where_a_layer_departs(tmp_path):
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    bad.mkdir()
    done = run("check-rope", str(dumped(good, LLAMA_70B, llama3_rope())), "--out", str(tmp_path / "a"))
    assert done.returncode == 0, done.stderr
    assert check_summary(tmp_path / "a", "check-rope")["results"]["verdicts"]["as claimed"] == 1
    done = run("check-rope", str(dumped(bad, LLAMA_70B, Rope(128, base=1e4))), "--out", str(tmp_path / "b"))
    assert done.returncode == 1
    assert re.search(
        r"1 of 1 layers depart: layer 40, key: base is 10000(\.1)?, not 500000, and llama3 is missing", done.stderr
    )
    assert (tmp_path / "b" / "parting.png").is_file()


@pytest.mark.weights
def test_a_trained_model():
    result = rs.run("check-rope", source=str(real.folder("stories15M")))
    assert result.summary["results"]["verdicts"] == {"as claimed": 6, "departs": 0, "not decided": 0}
    assert result.dataset["frequency"].shape == (6, 24)
    assert list(result.figures()) == ["parting", "angles"]
    assert "6 as claimed" in result.headline


def test_a_reference_model():
    sizes = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    models = [
        LlamaForCausalLM(LlamaConfig(**sizes, rope_parameters={"rope_type": "default", "rope_theta": base}))
        for base in (1e4, 2e4)
    ]
    assert wrong(rs.check_rope(models[0], models[0])) == {}
    assert set(wrong(rs.check_rope(models[0], models[1]))) == {0, 1}


@pytest.mark.slow
@pytest.mark.weights
def test_faults_of_a_trained_model(monkeypatch, tmp_path):
    """Faults of a trained model and of its variants; a second run reads what the first has stored."""
    chosen = tuple(fault for fault in FAULTS if fault.name in ("another base", "scaling forgotten"))
    monkeypatch.setattr(faulty, "FAULTS", chosen)
    settings = {"model": str(real.folder("stories15M")), "lengths": (24, 40), "out": tmp_path / "run"}
    result = rs.run("rope-faults", **settings)
    found = result.summary["results"]
    assert {name: found[name] for name in ("faulty", "detected", "layer_named", "cause_named")} == dict.fromkeys(
        ("faulty", "detected", "layer_named", "cause_named"), 4
    )  # and permuted weights
    assert result.headline.startswith("4 of 4 faults in stories15M found by check-rope with at most 8 tokens")
    assert list(result.figures()) == ["faults"]
    assert not any("beyond" in str(part) for part in result.table())
    with pytest.raises(ValueError, match=r"within the context of .*, which is 256 tokens"):
        rs.run("rope-faults", model=settings["model"], lengths=(3000,))
    monkeypatch.setattr(faulty, "judged", None)  # nothing is judged again
    assert rs.run("rope-faults", **settings).summary["results"] == found
