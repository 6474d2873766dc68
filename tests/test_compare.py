"""Two profiles side by side: changes of heads, their p-values by simulation, and the command."""

import json
import shutil

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import ropescope as rs
from ropescope.runs import write_summary, write_whole
from ropescope.studies.compare import changes
from ropescope.studies.compare.changes import head_changes
from ropescope.studies.compare.run import compared
from ropescope.studies.head_scores import packed
from ropescope.studies.profile.statistics import statistics

HEADS, PROMPTS, TRIALS = 30, 20, 800


def scores_near_one(rng, prompts, heads=HEADS):
    """Skewed leads of heads that depend on each other through the prompt."""
    return rng.beta(6, 0.8, (prompts, 1)) * rng.beta(8, 1, (prompts, heads))


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.slow
def test_without_a_change_some_head_is_below_5_percent_in_5_percent_of_cases(paired, monkeypatch):
    monkeypatch.setattr(changes, "RELABELLINGS", 199)
    rng, hits = np.random.default_rng(0), 0
    for trial in range(TRIALS):
        if paired:  # the same prompts, with independent noise of each model
            a, b = (
                scores_near_one(np.random.default_rng([1, trial]), PROMPTS) + rng.exponential(0.1, (PROMPTS, HEADS))
                for _ in "ab"
            )
        else:
            a, b = scores_near_one(rng, PROMPTS), scores_near_one(rng, PROMPTS + 10)
        hits += bool((head_changes(a, b, paired, seed=trial).p_value < 0.05).any())
    assert 0.03 < hits / TRIALS < 0.07


@pytest.mark.parametrize("paired", [True, False])
def test_intervals_hold_the_true_change_in_95_percent_of_cases(paired, monkeypatch):
    monkeypatch.setattr(changes, "RELABELLINGS", 1)
    rng = np.random.default_rng(1)
    a, b = (scores_near_one(rng, PROMPTS, 4000) if paired else rng.beta(6, 0.8, (PROMPTS, 4000)) for _ in "ab")
    if paired:
        b = a + rng.beta(5, 1, a.shape) - 5 / 6
    found = head_changes(a, b, paired)
    assert 0.92 < ((found.low < 0) & (found.high > 0)).mean() < 0.98


def test_a_planted_change_is_found_and_named():
    rng = np.random.default_rng(2)
    a = scores_near_one(rng, 40)
    b = a + rng.normal(0, 0.02, a.shape)
    b[:, 3] -= 0.3
    found = head_changes(a, b, paired=True)
    assert np.flatnonzero(found.p_value < 0.05).tolist() == [3]
    assert found.low[3] < -0.3 < found.high[3]


def test_few_prompts_have_no_interval_and_no_p_value_and_missing_heads_nothing():
    a = np.random.default_rng(3).uniform(size=(7, 5))
    assert np.isnan(head_changes(a, a + 0.1, paired=True)[1:]).all()
    many = np.random.default_rng(3).uniform(size=(9, 5))
    many[2, 4] = np.nan
    found = head_changes(many, many.copy(), paired=True)
    np.testing.assert_array_equal(found.change, [0, 0, 0, 0, np.nan])
    np.testing.assert_array_equal(found.p_value, [1, 1, 1, 1, np.nan])


def test_the_test_agrees_with_all_relabellings():
    """With nine prompts all 512 ways to turn signs can be tried."""
    rng = np.random.default_rng(4)
    d = rng.normal(0.3, 1, (9, 6))
    turns = np.array(np.meshgrid(*[[-1, 1]] * 9)).reshape(9, -1).T

    def t(x):
        return np.abs(x.mean(0)) / (x.std(0, ddof=1) / 3)

    largest = np.array([t(d * turn[:, None]).max() for turn in turns])
    exact = [(largest >= value * (1 - 1e-9)).mean() for value in t(d)]
    found = head_changes(np.zeros_like(d), d, paired=True).p_value
    np.testing.assert_allclose(found, exact, atol=0.02)


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    """Run folders of two tiny models with the same heads, and of one with others, without figures."""
    folder, found = tmp_path_factory.mktemp("profiles"), {}
    prompts = [torch.randint(64, (12,), generator=torch.Generator().manual_seed(n)) for n in range(9)]
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32}
    for name, layers, heads in (("one", 3, 4), ("two", 3, 4), ("wide", 2, 8)):
        torch.manual_seed(len(found))
        model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=layers, num_attention_heads=heads))
        scores = rs.profile(model, prompts, planes=False, sensitivity=False, name=name)
        found[name] = folder / name
        write_whole(folder / name / "profile.nc", packed(scores))
        write_summary(folder / name, "profile", {"model": name, "prompts": "the same"}, statistics(scores), ["profile.nc"])
    return found


@pytest.mark.slow
def test_the_command_compares_run_folders(profiles, tmp_path):
    result = rs.run("compare", a=str(profiles["one"]), b=str(profiles["two"]), out=tmp_path / "out", progress=False)
    first, second = (rs.open_run(profiles[name]).dataset for name in ("one", "two"))
    lead = [(each.symbolic - each.positional).mean("input") for each in (first, second)]
    np.testing.assert_allclose(result.dataset.change, lead[1] - lead[0], atol=1e-5)
    assert result.summary["results"]["paired"]
    assert "one beside two" in result.headline
    assert list(result.figures()) == ["heads", "depth", "maps"]
    assert (tmp_path / "out" / "heads.csv").read_text(encoding="utf-8").startswith("layer,head,lead_a,")
    assert "keep their kind" in str(result.table())
    page = rs.page([tmp_path / "out"], tmp_path / "page.html")
    assert "keep their kind" in page.read_text(encoding="utf-8")


def test_a_profile_beside_itself_has_not_changed(profiles):
    result = rs.run("compare", a=str(profiles["one"]), b=str(profiles["one"]), progress=False)
    found = result.summary["results"]
    assert (found["kept"], found["changed"], found["largest_change"]) == (found["heads"], 0, 0)


def test_profiles_are_named_by_what_differs(profiles, tmp_path):
    """Prompts of two kinds by their kinds; of one kind by what is known of them."""
    folders = [tmp_path / name for name in ("a", "b")]

    def named(*prompts):
        for folder, (kind, described) in zip(folders, prompts, strict=True):
            shutil.copytree(profiles["one"], folder, dirs_exist_ok=True)
            found = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["results"]
            config = {"model": "one", "prompts": {"kind": kind, "text": described}}
            write_summary(folder, "profile", config, found | {"prompts": described}, ["profile.nc"])
        return rs.run("compare", a=str(folders[0]), b=str(folders[1]), progress=False).summary["results"]["names"]

    assert named(("binding", "2 prompts"), ("prose", "8 texts")) == {"a": "one, binding", "b": "one, prose"}
    assert named(("binding", "2 prompts"), ("binding", "3 prompts")) == {"a": "one, 2 prompts", "b": "one, 3 prompts"}
    assert named(("binding", "2 prompts, seed 0"), ("binding", "2 prompts, seed 1")) == {"a": "one, seed 0", "b": "one, seed 1"}
    assert named(("binding", "2 prompts"), ("binding", "2 prompts")) == {"a": "a", "b": "b"}


def test_models_with_different_heads_are_compared_by_depth(profiles):
    result = rs.run("compare", a=str(profiles["one"]), b=str(profiles["wide"]), progress=False)
    assert "different heads" in result.headline
    assert list(result.figures()) == ["depth"]
    with pytest.raises(ValueError, match="different heads"):
        _ = result.dataset


def test_a_run_of_another_study_is_refused(profiles, tmp_path):
    with pytest.raises(ValueError, match="holds a run of theory: give the run folder of a profile"):
        rs.run("compare", a="results/theory", b=str(profiles["one"]), out=tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.weights
def test_two_models_are_profiled_first(tmp_path):
    from real import folder  # noqa: PLC0415

    name = str(folder("stories15M"))
    result = rs.run("compare", a=name, b=name, count=2, pairs=3, out=tmp_path / "out", progress=False)
    assert (result.summary["results"]["kept"], result.summary["results"]["changed"]) == (36, None)
    assert "too few prompts" in result.headline


def test_queries_count_as_parts_of_their_input():
    rng = np.random.default_rng(5)
    import xarray as xr  # noqa: PLC0415

    dims = ("input", "layer", "head", "query")
    a = xr.Dataset(
        {name: (dims, rng.uniform(size=(9, 2, 3, 4))) for name in ("positional", "symbolic")},
        coords={"layer": [0, 1], "head": [0, 1, 2]},
    )
    results, table = compared(a, a.mean("query"), paired=True)
    assert results["largest_change"] == pytest.approx(0, abs=1e-12)
    assert len(table.splitlines()) == 7
