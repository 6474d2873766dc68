"""Claims on chat models are judged by their answers. No model that passed is recorded, so runs are made by hand."""

from pathlib import Path

import pytest

from ropescope.runs import Run
from ropescope.studies.chat import scores
from ropescope.studies.claims import Runs, all_cases

LENGTHS = (12, 16, 32, 64, 100, 300)
PAPER = {
    "GPT 5.4": ((0.98, 0.87, 0.45, 0.14, 0.08, 0.06), (0.96, 0.98, 0.99, 0.98, 0.85, 0.40)),
    "GPT 5.5": ((0.55, 0.56, 0.23, 0.12, 0.07, 0.04), (0.87, 0.95, 0.96, 0.84, 0.66, 0.50)),
    "Claude Sonnet 3.7": ((0.40, 0.34, 0.15, 0.08, 0.06, 0.05), (0.92, 0.89, 0.88, 0.87, 0.86, 0.80)),
}
"""Number and letter, from appendix H."""


def asked(means: dict, hops: int = 1, lengths: tuple = LENGTHS) -> Runs:
    """Runs of `ropescope llm`, one for each model, with these means."""
    paper = {
        "lengths": list(LENGTHS),
        "accuracy": {name: dict(zip(("number", "letter"), two, strict=True)) for name, two in PAPER.items()},
    }
    found = []
    for name, two in means.items():
        accuracy = {
            task: {str(n): {"mean": mean} for n, mean in zip(LENGTHS, row, strict=True) if n in lengths}
            for task, row in zip(("number", "letter"), two, strict=True)
        }
        config = {"model": {"source": f"maker/{name.lower().replace(' ', '-')}"}, "hops": hops}
        summary = {"command": "llm", "config": config, "results": {"accuracy": accuracy, "paper": paper}, "sha256": {}}
        found.append(Run(Path(f"llm-{name}"), summary))
    return Runs(found)


def test_the_table_is_that_of_appendix_h():
    at = [scores.PAPER_LENGTHS.index(n) for n in LENGTHS]
    assert {
        name: tuple(tuple(tasks[task][n] for n in at) for task in ("number", "letter")) for name, tasks in scores.PAPER.items()
    } == PAPER


CASES = {case.claim: case for case in all_cases() if case.claim.startswith("B-6-")}


def test_the_papers_own_numbers_bear_out_what_it_says_of_chat_models():
    for case in CASES.values():
        row = case.row(asked(PAPER))
        assert row.verdict == "reproduced", row
        assert (row.run[:4], row.chart) == ("llm-", "accuracy")


@pytest.mark.parametrize(
    ("claim", "model", "length", "pair", "expected"),
    [
        ("B-6-letter-above-number", "GPT 5.4", 64, (0.99, 0.98), "partly"),
        ("B-6-number-32", "GPT 5.4", 32, (0.6, 0.99), "partly"),
        ("B-6-number-100", "GPT 5.5", 300, (0.2, 0.5), "partly"),
        ("B-6-letter-100", "GPT 5.5", 100, (0.07, 0.6), "partly"),
        ("B-6-screening", "GPT 5.5", 16, (0.5, 0.8), "partly"),
        ("B-6-gpt-5.4", "GPT 5.4", 12, (0.1, 0.1), "partly"),
        ("B-6-gpt-5.5", "GPT 5.5", 12, (0.1, 0.1), "partly"),
        ("B-6-claude", "Claude Sonnet 3.7", 12, (0.1, 0.1), "partly"),
    ],
)
def test_other_answers_of_chat_models_give_another_verdict(claim, model, length, pair, expected):
    at = LENGTHS.index(length)
    changed = {**PAPER, model: [(*row[:at], value, *row[at + 1 :]) for row, value in zip(PAPER[model], pair, strict=True)]}
    assert CASES[claim].row(asked(changed)).verdict == expected


def test_other_chat_models_are_judged_by_the_claim_and_not_by_the_table():
    other = asked({"Somebody": PAPER["GPT 5.4"]})
    assert CASES["B-6-letter-100"].row(other).verdict == "reproduced"
    assert CASES["B-6-gpt-5.4"].row(other).verdict == "not run"


def test_chat_models_asked_something_else_are_not_judged():
    for runs in (asked(PAPER, hops=2), asked(PAPER, lengths=(12,))):
        assert CASES["B-6-number-32"].row(runs).verdict == "not run"


def test_models_that_fail_the_screening_say_nothing_of_the_others():
    """One that answers nothing right has number below 0.5 too."""
    nothing = {"Nobody": [(0.0,) * len(LENGTHS)] * 2}
    for claim in ("B-6-letter-above-number", "B-6-number-32", "B-6-number-100", "B-6-letter-100"):
        assert CASES[claim].row(asked(nothing)).verdict == "not run"
        assert CASES[claim].row(asked(PAPER | nothing)).verdict == "reproduced"
    assert CASES["B-6-screening"].row(asked(nothing)).verdict == "not"
