"""Claims on forced choice are judged by accuracy over windows and by late scores: other numbers give other verdicts."""

from pathlib import Path

import pytest

from ropescope.runs import Run
from ropescope.studies.choice.scores import LONG, held, rank_correlation
from ropescope.studies.claims import Runs, all_cases

CASES = {case.claim: case for case in all_cases() if case.claim.startswith("ours-choice-")}
LENGTHS = (12, 16, 32, *LONG)


def made(
    name: str, number: float, letter: float, late: float | None, forms=("words", "python"), lengths=LENGTHS, **changed
) -> Run:
    """A run with the same accuracy at every window, except for those `changed`, such as letter_32=0.1."""
    means = {"number": number, "letter": letter}
    accuracy = {
        form: {
            task: {str(n): {"mean": changed.get(f"{task}_{n}", mean), "chance": 0.05} for n in lengths}
            for task, mean in means.items()
        }
        for form in forms
    }
    results = {"accuracy": accuracy, "held": held(accuracy), "late_symbolic": late}
    summary = {"command": "choice", "config": {"model": {"source": name}}, "results": results, "sha256": {}}
    return Run(Path(f"choice-{name}"), summary)


def verdict(claim: str, runs: list[Run]) -> str:
    row = CASES[f"ours-choice-{claim}"].row(Runs(runs))
    assert row.chart == ("" if row.verdict == "not run" else "accuracy")
    return row.verdict


@pytest.mark.parametrize(("claim", "form", "other"), [("letter", "words", "python"), ("python", "python", "words")])
def test_letter_above_number_at_every_window_from_16_on(claim, form, other):
    good, early = made("a", 0.2, 0.5, 0.5), made("b", 0.2, 0.5, 0.5, letter_12=0.1)
    once, equal = made("c", 0.2, 0.5, 0.5, letter_32=0.1), made("d", 0.5, 0.5, 0.5)
    assert verdict(claim, [good, early]) == "reproduced", "the window of 12 does not count"
    assert verdict(claim, [good, once]) == "partly"
    assert verdict(claim, [once, equal]) == "not"
    assert verdict(claim, [made("e", 0.2, 0.5, 0.5, forms=(other,))]) == "not run"
    assert verdict(claim, [good, made("e", 0.5, 0.2, 0.5, forms=(other,))]) == "reproduced"
    assert verdict(claim, [made("f", 0.2, 0.5, 0.5, lengths=(12,))]) == "not run"


def grown(count: int, sign: int = 1) -> list[Run]:
    """Models whose letter accuracy rises, or falls, with late scores."""
    return [made(f"m{n}", 0.1, 0.5 + sign * 0.03 * n, 0.2 + 0.05 * n) for n in range(count)]


def test_late_heads_are_compared_over_enough_models():
    assert verdict("late", grown(8)) == "reproduced"
    assert verdict("late", grown(7)) == "partly", "few models decide little"
    assert verdict("late", grown(8, -1)) == "not"
    assert verdict("late", grown(3)) == "not run"
    assert verdict("late", [made(f"m{n}", 0.1, 0.5, 0.1 * n) for n in range(8)]) == "not run", "no model is better than another"
    without = [made(f"w{n}", 0.1, 0.9 - 0.1 * n, None) for n in range(5)]
    short = [made(f"s{n}", 0.1, 0.9 - 0.1 * n, 0.9, lengths=(12, 16)) for n in range(5)]
    assert verdict("late", without + short) == "not run"
    assert verdict("late", [*grown(8), *without, *short]) == "reproduced", (
        "models without a profile or long windows do not count"
    )


def test_one_form_alone_is_only_part():
    words, python = grown(8), grown(8, -1)
    for a, b in zip(words, python, strict=True):
        a.results["held"]["python"] = b.results["held"]["python"]
    assert verdict("late", words) == "partly"


def test_what_is_held_by_hand():
    run = made("a", 0.25, 0.45, 0.5, letter_48=0.85)
    assert run.results["held"]["words"] == pytest.approx({"number": 0.2, "letter": 0.5})
    assert rank_correlation([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(0.8)
