"""Other numbers give other verdicts on claims about sharpened heads."""

import copy

import pytest
from doctored import at, check_changed

from ropescope.runs import Run
from ropescope.studies.claims import CASES, Runs

RUN = "sharpen-stories15M"
BOTH = "sharpen-stories15M*"
"""Also with passages of 512 tokens."""
BASE = "larger base"
CHANGES = [
    ("ours-sharpen-cure", "partly", at(RUN, "choices", "all", "gain", "mean", 0.1)),
    ("ours-sharpen-cure", "reproduced", at(BOTH, "choices", "all", "gain", "by_passage", [0.1, 0.2, 0.1, 0.3])),
    ("ours-sharpen-profile", "partly", at(RUN, "random", "none", "beside", "symbolic", "as_good", 0), "draws"),
    ("ours-sharpen-base", "partly", at(RUN, "random", BASE, "beside", f"{BASE}, symbolic", "as_good", 0), "draws"),
    ("ours-sharpen-positional", "reproduced", at(RUN, "random", "none", "beside", "most positional", "as_bad", 0), "draws"),
    (
        "ours-sharpen-positional",
        "not",
        at(RUN, "choices", "most positional", "gain", "by_passage", [0.5] * 4),
        at(f"{RUN}-512", "random", "none", "beside", "most positional", "as_bad", 5),
        at(f"{RUN}-512", "choices", "most positional", "gain", "by_passage", [0.5] * 8),
    ),
    ("ours-sharpen-rivals", "partly", at(RUN, "choices", "all", "gain", "mean", 0.1)),
]
DRAWS = [at(BOTH, "random", "none", "gains", [-0.02] * 19), at(BOTH, "random", BASE, "gains", [-0.02] * 19)]
"""Enough random choices for one to be beyond all of them."""


@pytest.mark.parametrize("change", CHANGES, ids=[f"{change[0]}, {change[1]}" for change in CHANGES])
def test_other_numbers_give_another_verdict(runs, rows, tmp_path, change):
    claim, expected, *changes = change
    more = DRAWS if "draws" in changes else []
    check_changed(runs, rows, tmp_path, claim, expected, *(each for each in changes if each != "draws"), *more)


def made(run: Run, **config) -> Run:
    """The recorded run with other settings, and its numbers to change."""
    summary = copy.deepcopy(dict(run.summary))
    summary["config"] |= config
    return Run(run.folder, summary)


def judged(claim: str, run: Run) -> str:
    return CASES[claim].row(Runs([run])).verdict


def test_what_is_judged(runs, rows):
    """Too few random choices give no verdict where none is as far out, and logits from another start on are not judged."""
    (run,) = [run for run in runs if run.name == RUN]
    for draws, expected in ((18, "not run"), (19, "partly")):
        few = made(run)
        few.summary["results"]["random"]["none"]["gains"] = [-0.02] * draws
        few.summary["results"]["random"]["none"]["beside"]["symbolic"]["as_good"] = 0
        assert judged("ours-sharpen-profile", few) == expected
        few.summary["results"]["choices"]["symbolic"]["gain"]["mean"] = 0.01
        assert judged("ours-sharpen-profile", few) == ("reproduced" if draws == 19 else "not run")
    for claim in ("ours-sharpen-cure", "ours-sharpen-profile", "ours-sharpen-rivals"):
        assert judged(claim, made(run, start=128)) == "not run"
        assert judged(claim, run) == next(row.verdict for row in rows if row.claim == claim)
    none = made(run)
    none.summary["results"]["random"] = {}
    assert judged("ours-sharpen-profile", none) == "not run"
    assert judged("ours-sharpen-cure", none) == "not"
