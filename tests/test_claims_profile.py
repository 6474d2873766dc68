"""Other numbers give other verdicts on claims about profiled language models."""

import numpy as np
import pytest
from doctored import at, check_changed
from profiles import make_profile, run_of, without_planes

from ropescope.runs import Run
from ropescope.studies.claims import judge

SMOL = "profile-smollm2-135m"


CHANGES = [
    ("A-4-slow-planes", "partly", at(SMOL, "frequency", "bands", "slow", "difference", "mean", 0.005)),
    ("A-4-fast-planes", "partly", at(SMOL, "frequency", "bands", "middle to fast", "difference", "mean", 0.1)),
    ("A-4-fastest-planes", "partly", at(SMOL, "frequency", "bands", "fastest", "symbolic", "mean", 0.999)),
    ("ours-1-shares-and-scores", "partly", at(SMOL, "shares", "spearman", "r", 0.1)),
    (
        "ours-1-temperature",
        "partly",
        *(at("profile-minimind2-small", "sensitivity", "tau", place, "symbolic", "spearman", 0.9) for place in (2, 3, 4)),
    ),
    (
        "ours-1-permutations",
        "partly",
        at("profile-minimind2-small", "sensitivity", "permutations", "symbolic", "spearman", 0.9),
    ),
    (
        "ours-1-block-size",
        "partly",
        *(at("profile-*", "sensitivity", "tokens", score, "spearman", 0.9) for score in ("positional", "symbolic")),
    ),
    ("ours-1-right-answers", "partly", at(SMOL, "right_only", "all_and_right", "positional", "spearman", 0.1)),
    ("ours-1-by-input", "partly", at(SMOL, "over_inputs", "heads_of_both_kinds", 0)),
    ("A-4-correlation", "partly", at(SMOL, "noise", "p_value", 0.3)),
    (
        "A-4-depth-positional",
        "reproduced",
        at("profile-*", "depth", "positional", {"first": 0.9, "second": 0.5, "prompts_with_trend": 9, "prompts": 10}),
    ),
    (
        "A-4-depth-symbolic",
        "not",
        at("profile-*", "depth", "symbolic", {"first": 0.9, "second": 0.5, "prompts_with_trend": 9, "prompts": 10}),
    ),
    ("A-4-trend", "partly", at(SMOL, "frequency", "trend_of_heads", "share_rising", 0.1)),
    ("A-4-norms", "not", at("profile-*", "frequency", "largest", "norm", "with_lead", "within_layers", "p_value", 0.9)),
    ("A-4-families", "partly", at("profile-gemma3-270m", "correlation", "pearson", "r", -0.5)),
    (
        "A-3C-geometry",
        "partly",
        at(
            SMOL,
            "head_details.json",
            "geometry",
            [
                {"kind": kind, "what": "key", "block": 0, "x": 1.0, "y": y}
                for kind, places in (("positional", (0.0, 0.1)), ("symbolic", (-2.0, 2.0)))
                for y in places
            ],
        ),
    ),
    ("ours-5-diagonal", "partly", at(SMOL, "worst_check_error", 1.0)),
    ("ours-5-first-look", "not", at(SMOL, "correlation", "pearson", "r", -0.5)),
]


@pytest.mark.parametrize("change", CHANGES, ids=[change[0] for change in CHANGES])
def test_other_numbers_give_another_verdict(runs, rows, tmp_path, change):
    check_changed(runs, rows, tmp_path, *change)


def verdicts(run: Run) -> dict[str, str]:
    return {row.claim: row.verdict for row in judge([run], "profile")}


OF_PLANES = {"A-4-slow-planes", "A-4-fast-planes", "A-4-fastest-planes", "A-4-trend", "A-4-norms"}
OF_HEADS = {"A-4-correlation", "A-4-depth-positional", "A-4-depth-symbolic"}


def test_planted_trends_are_reproduced():
    found = verdicts(run_of(make_profile(trend=True)))
    assert {found[claim] for claim in OF_HEADS | OF_PLANES - {"A-4-norms"}} == {"reproduced"}
    # Norms were planted in slower planes for symbolic heads, but those of positional heads do not lie in fast ones.
    assert found["A-4-norms"] in ("reproduced", "partly")


def test_no_trend_is_not_reproduced():
    found = verdicts(run_of(make_profile(trend=False)))
    # Without a trend, planes are more positional than symbolic on average, here as everywhere.
    assert {claim for claim in OF_HEADS | OF_PLANES if found[claim] != "not"} == {"A-4-fast-planes"}


def test_without_scores_of_planes_nothing_is_claimed_of_them():
    with_planes, without = (verdicts(run_of(make(make_profile()))) for make in (lambda x: x, without_planes))
    assert {claim for claim in without if with_planes[claim] != without[claim]} == OF_PLANES
    assert {without[claim] for claim in OF_PLANES} == {"not run"}


def test_profiles_without_planes_do_not_stop_others_from_being_judged():
    runs = [run_of(without_planes(make_profile())), run_of(make_profile())]
    found = {row.claim: row for row in judge(runs, "profile")}
    assert found["A-4-trend"].verdict == "reproduced"
    assert "in 1 of 1 profile" in found["A-4-trend"].ours
    assert "in 2 profiles" in found["A-4-correlation"].ours


def test_a_profile_without_any_score_says_nothing():
    dataset = make_profile(inputs=2, layers=4, heads=2, planes=4)
    for name, values in dataset.items():
        if values.dtype == float:
            dataset[name] = values * np.nan
    assert set(verdicts(run_of(dataset)).values()) == {"not run"}


def test_without_noise_nothing_is_claimed_of_the_correlation():
    """Noise correlates the scores too: r alone says nothing."""
    dataset = make_profile()
    quiet = dataset.drop_vars(["positional_redrawn", "symbolic_redrawn"])
    assert verdicts(run_of(quiet))["A-4-correlation"] == "not run"
    found = {row.claim: row for row in judge([run_of(quiet), run_of(dataset)], "profile")}["A-4-correlation"]
    assert found.verdict == "reproduced"
    assert "noise not run in made-by-hand" in found.ours


def test_no_stronger_than_noise_is_not_reproduced():
    dataset = make_profile()
    for name in ("positional", "symbolic"):
        draws = dataset[name].expand_dims(draw=dataset["draw"])
        dataset[f"{name}_redrawn"] = draws.transpose("input", "draw", "layer", "head")
    assert verdicts(run_of(dataset))["A-4-correlation"] == "partly"


def test_one_run_is_judged_as_the_scoreboard_judges_all(runs):
    """The command and the page of one profile use the same rules, not their own."""
    run = next(run for run in runs if run.name == "profile-stories15M")
    by_run = verdicts(run)
    assert by_run["A-4-correlation"] == "reproduced"
    assert by_run["A-4-families"] == "not run"
