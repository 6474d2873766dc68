"""Claims on chat models given the one-hop tasks as prompts (paper B, section 3.7 and appendix H)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ...runs import Run
from ..claims import Found, NotRunError, Runs, claims_in, every, graded, span
from .scores import LEAST_RIGHT

claim = claims_in("Chat models")

Curve = Mapping[int, float]
"""Mean accuracy by length of the target window."""


def answers(runs: Runs) -> Iterator[tuple[Run, str, Curve, Curve]]:
    """Every chat model that was asked both tasks in one hop: run, name, number curve, letter curve."""
    for run in runs.of("llm"):
        found = run.results["accuracy"]
        number, letter = ({int(n): cell["mean"] for n, cell in found.get(task, {}).items()} for task in ("number", "letter"))
        if number and letter and run.config["hops"] == 1:
            yield run, str(run.config["model"]["source"]), number, letter


def _passed(run: Run, letter: Curve) -> bool:
    """Whether the model passed the screening: claims are on models that did."""
    passed = run.results.get("screening", {}).get("passed")
    if passed is None and 16 not in letter:
        raise NotRunError(f"{run.name} holds no screening: whether its model is one of those that the claim is on is not known")
    return bool(letter[16] >= LEAST_RIGHT if passed is None else passed)


def _asked(
    runs: Runs, holds: Callable[[Curve, Curve], bool | None], say: Callable[[Curve, Curve], str], screened: bool = True
) -> Found:
    """The verdict over chat models; those not asked at the lengths in question (None) do not count."""
    verdicts, texts, last, failed = [], [], None, 0
    for run, name, number, letter in answers(runs):
        if screened and not _passed(run, letter):
            failed += 1
            continue
        found = holds(number, letter)
        if found is not None:
            verdicts.append(found)
            texts.append(f"{name} {say(number, letter)}")
            last = run
    if last is None:
        also = f"; {failed} failed the screening" if failed else ""
        raise NotRunError(f"no chat model that passed the screening was asked both tasks at these lengths{also}")
    return Found("; ".join(texts), every(verdicts), last, "accuracy")


def _from(curve: Curve, length: int) -> list[float]:
    return [value for n, value in sorted(curve.items()) if n >= length]


MODELS = "In every chat model asked that passed the screening; partly if in some. They may be other models than the paper's."


@claim("B-6-letter-above-number", "B", "section 3.7, appendix H", "letter above number in three models", MODELS)
def letter_above_number(runs: Runs) -> Found:
    """Chat models are better at the letter task than at the number task at every length from 16 on."""

    def lead(number: Curve, letter: Curve) -> list[float]:
        return [letter[n] - number[n] for n in sorted(number) if n >= 16 and n in letter]

    return _asked(
        runs,
        lambda number, letter: min(lead(number, letter)) > 0 if lead(number, letter) else None,
        lambda number, letter: f"letter minus number {span(lead(number, letter))}",
    )


def _number_below(runs: Runs, level: float, length: int) -> Found:
    return _asked(
        runs,
        lambda number, _: max(_from(number, length)) < level if _from(number, length) else None,
        lambda number, _: span(_from(number, length)),
    )


@claim("B-6-number-32", "B", "section 3.7, appendix H", "below 0.5", MODELS)
def number_32(runs: Runs) -> Found:
    """Number is below 0.5 from length 32 on."""
    return _number_below(runs, 0.5, 32)


@claim("B-6-number-100", "B", "section 3.7, appendix H", "below 0.1", MODELS)
def number_100(runs: Runs) -> Found:
    """Number is below 0.1 from length 100 on."""
    return _number_below(runs, 0.1, 100)


@claim("B-6-letter-100", "B", "section 3.7, appendix H", "above 0.65", MODELS)
def letter_100(runs: Runs) -> Found:
    """Letter is above 0.65 at length 100."""
    return _asked(runs, lambda _, letter: letter[100] > 0.65 if 100 in letter else None, lambda _, letter: f"{letter[100]:.2f}")


@claim("B-6-screening", "B", "appendix H", "0.89 to 0.98 in three models", "In every chat model asked; partly if in some.")
def screening(runs: Runs) -> Found:
    """Models are taken that reach 85 % on the letter task at length 16."""
    return _asked(
        runs,
        lambda _, letter: letter[16] >= LEAST_RIGHT if 16 in letter else None,
        lambda _, letter: f"{letter[16]:.2f}",
        screened=False,
    )


def _letters(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _beside(runs: Runs, model: str) -> Found:
    """One of the paper's own models against its column of the paper's table, which the run keeps."""
    for run, name, number, letter in answers(runs):
        if _letters(model) in _letters(name):
            lengths, column = run.results["paper"]["lengths"], run.results["paper"]["accuracy"][model]
            off = [
                abs(ours[n] - theirs)
                for ours, task in ((number, "number"), (letter, "letter"))
                for n, theirs in zip(lengths, column[task], strict=True)
                if n in ours
            ]
            if off:
                text = f"off by {max(off):.2f} at most at {len(off)} values"
                return Found(text, graded(max(off) <= 0.15, sum(x <= 0.15 for x in off) * 2 >= len(off)), run, "accuracy")
    raise NotRunError(f"{model} was not asked in the runs given")


BESIDE = "The same model within 0.15 of every value of the table, partly if of half of them; five runs of each length."


@claim("B-6-gpt-5.4", "B", "appendix H", "0.87 / 0.98 at 16, 0.45 / 0.99 at 32, 0.08 / 0.85 at 100, 0.06 / 0.40 at 300", BESIDE)
def gpt_5_4(runs: Runs) -> Found:
    """GPT 5.4, number / letter by length."""
    return _beside(runs, "GPT 5.4")


@claim("B-6-gpt-5.5", "B", "appendix H", "0.56 / 0.95 at 16, 0.23 / 0.96 at 32, 0.07 / 0.66 at 100, 0.04 / 0.50 at 300", BESIDE)
def gpt_5_5(runs: Runs) -> Found:
    """GPT 5.5, number / letter by length."""
    return _beside(runs, "GPT 5.5")


@claim("B-6-claude", "B", "appendix H", "0.34 / 0.89 at 16, 0.15 / 0.88 at 32, 0.06 / 0.86 at 100, 0.05 / 0.80 at 300", BESIDE)
def claude(runs: Runs) -> Found:
    """Claude Sonnet 3.7, number / letter by length."""
    return _beside(runs, "Claude Sonnet 3.7")
