"""Claims on chat models given the one-hop tasks as prompts (paper B, section 3.7 and appendix H)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...runs import Run
from .rules import Found, NotRunError, Runs, claim, every, graded, span

Curve = Mapping[int, float]
"""Mean accuracy by length of the target window."""

PAPER: dict[str, dict[int, tuple[float, float]]] = {
    "GPT 5.4": {
        12: (0.98, 0.96),
        16: (0.87, 0.98),
        24: (0.73, 1.0),
        32: (0.45, 0.99),
        48: (0.17, 0.99),
        64: (0.14, 0.98),
        80: (0.10, 0.96),
        100: (0.08, 0.85),
        200: (0.08, 0.52),
        300: (0.06, 0.40),
    },
    "GPT 5.5": {
        12: (0.55, 0.87),
        16: (0.56, 0.95),
        24: (0.42, 0.96),
        32: (0.23, 0.96),
        48: (0.21, 0.77),
        64: (0.12, 0.84),
        80: (0.10, 0.75),
        100: (0.07, 0.66),
        200: (0.06, 0.55),
        300: (0.04, 0.50),
    },
    "Claude Sonnet 3.7": {
        12: (0.40, 0.92),
        16: (0.34, 0.89),
        24: (0.22, 0.88),
        32: (0.15, 0.88),
        48: (0.11, 0.80),
        64: (0.08, 0.87),
        80: (0.06, 0.89),
        100: (0.06, 0.86),
        200: (0.05, 0.77),
        300: (0.05, 0.80),
    },
}
"""Paper B, appendix H: number and letter accuracy by length, mean over five runs."""


def answers(runs: Runs) -> Iterator[tuple[Run, str, Curve, Curve]]:
    """Every chat model that was asked both tasks: run, name, number curve, letter curve."""
    for run in runs.of("llm"):
        for name, part in _both(run.results, str(run.config.get("model", run.name))):
            number, letter = (_curve(part[task]) for task in ("number", "letter"))
            if number and letter:
                yield run, name, number, letter


def _both(part: Any, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The parts of the results that have both tasks, under the name they stand by."""
    if isinstance(part, Mapping):
        if {"number", "letter"} <= set(part):
            yield name, part
        else:
            for key, value in part.items():
                yield from _both(value, str(key))


def _curve(found: Any) -> dict[int, float]:
    """Means by length, whether they stand as {length: mean}, {length: {"mean": …}} or rows with "length" and "mean"."""
    if isinstance(found, Mapping):
        found = [{"length": key, **(row if isinstance(row, Mapping) else {"mean": row})} for key, row in found.items()]
    rows = [row for row in found if isinstance(row, Mapping) and str(row.get("length", "")).isdigit() and "mean" in row]
    return {int(row["length"]): float(row["mean"]) for row in rows}


def _asked(runs: Runs, holds: Callable[[Curve, Curve], bool | None], say: Callable[[Curve, Curve], str]) -> Found:
    """The verdict over chat models; those not asked at the lengths in question (None) do not count."""
    verdicts, said, last = [], [], None
    for run, name, number, letter in answers(runs):
        found = holds(number, letter)
        if found is not None:
            verdicts.append(found)
            said.append(f"{name} {say(number, letter)}")
            last = run
    if last is None:
        raise NotRunError("no chat model was asked both tasks at these lengths")
    return Found("; ".join(said), every(verdicts), last, "lengths")


def _from(curve: Curve, length: int) -> list[float]:
    return [value for n, value in sorted(curve.items()) if n >= length]


MODELS = "In every chat model asked; partly if in some. Models other than the paper's may have been asked."


@claim(
    "B-6-letter-above-number",
    "B",
    "section 3.7, appendix H",
    "letter above number in three models",
    MODELS,
)
def letter_above_number(runs: Runs) -> Found:
    """Chat models are better at the letter task than at the number task at every length from 16 on."""

    def lead(number: Curve, letter: Curve) -> list[float]:
        return [letter[n] - number[n] for n in sorted(number) if n >= 16 and n in letter]

    return _asked(
        runs,
        lambda number, letter: min(lead(number, letter)) > 0 if lead(number, letter) else None,
        lambda number, letter: f"letter minus number {span(lead(number, letter))}",
    )


@claim("B-6-number-32", "B", "section 3.7, appendix H", "below 0.5", MODELS)
def number_32(runs: Runs) -> Found:
    """Number is below 0.5 from length 32 on."""
    return _asked(
        runs,
        lambda number, _: max(_from(number, 32)) < 0.5 if _from(number, 32) else None,
        lambda number, _: span(_from(number, 32)),
    )


@claim("B-6-number-100", "B", "section 3.7, appendix H", "below 0.1", MODELS)
def number_100(runs: Runs) -> Found:
    """Number is below 0.1 from length 100 on."""
    return _asked(
        runs,
        lambda number, _: max(_from(number, 100)) < 0.1 if _from(number, 100) else None,
        lambda number, _: span(_from(number, 100)),
    )


@claim("B-6-letter-100", "B", "section 3.7, appendix H", "above 0.65", MODELS)
def letter_100(runs: Runs) -> Found:
    """Letter is above 0.65 at length 100."""
    return _asked(runs, lambda _, letter: letter[100] > 0.65 if 100 in letter else None, lambda _, letter: f"{letter[100]:.2f}")


@claim(
    "B-6-screening",
    "B",
    "appendix H",
    "0.89 to 0.98 in three models",
    MODELS,
)
def screening(runs: Runs) -> Found:
    """Models are taken that reach 85 % on the letter task at length 16."""
    return _asked(runs, lambda _, letter: letter[16] >= 0.85 if 16 in letter else None, lambda _, letter: f"{letter[16]:.2f}")


def _beside(runs: Runs, model: str) -> Found:
    """One of the paper's own models: means within 0.15 of the table at every length asked."""
    wanted = "".join(c for c in model.lower() if c.isalnum())
    for run, name, number, letter in answers(runs):
        if wanted in "".join(c for c in name.lower() if c.isalnum()):
            off = [
                abs(ours[n] - value)
                for n, pair in PAPER[model].items()
                for ours, value in zip((number, letter), pair, strict=True)
                if n in ours
            ]
            if off:
                said = f"off by {max(off):.2f} at most at {len(off)} values"
                return Found(said, graded(max(off) <= 0.15, sum(x <= 0.15 for x in off) * 2 >= len(off)), run, "lengths")
    raise NotRunError(f"{model} was not asked in the runs given")


def _table_said(model: str) -> str:
    pairs = PAPER[model]
    return "; ".join(f"{n}: {pairs[n][0]:.2f} / {pairs[n][1]:.2f}" for n in (16, 32, 100, 300))


BESIDE = "The same model within 0.15 of every value of the table, partly if of half of them; five runs of each length."


@claim("B-6-gpt-5.4", "B", "appendix H", _table_said("GPT 5.4"), BESIDE)
def gpt_5_4(runs: Runs) -> Found:
    """GPT 5.4, number / letter by length."""
    return _beside(runs, "GPT 5.4")


@claim("B-6-gpt-5.5", "B", "appendix H", _table_said("GPT 5.5"), BESIDE)
def gpt_5_5(runs: Runs) -> Found:
    """GPT 5.5, number / letter by length."""
    return _beside(runs, "GPT 5.5")


@claim(
    "B-6-claude",
    "B",
    "appendix H",
    _table_said("Claude Sonnet 3.7"),
    BESIDE,
)
def claude(runs: Runs) -> Found:
    """Claude Sonnet 3.7, number / letter by length."""
    return _beside(runs, "Claude Sonnet 3.7")
