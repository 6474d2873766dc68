"""Claims on sharpened heads: whether log n helps language models, and whether a profile tells which heads to sharpen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runs import Run
from ..claims import Found, NotRunError, Runs, Verdict, claims_in, every, graded
from .names import ALL, BASE, FEW, NONE, POSITIONAL, SYMBOLIC, with_base
from .tables import gained, ranked

claim = claims_in("Real language models")
FEWEST = 19
"""Random choices that are enough for the best of all to be one in twenty; with fewer, one that is as far out must be among them
for a verdict."""


def _judged(runs: Runs, *choices: str) -> list[Run]:
    """Runs in which logits grow from the trained length on, with these choices."""
    found = [
        run
        for run in runs.of("sharpen")
        if run.config["start"] == run.config["trained"] and all(name in run.results["choices"] for name in choices)
    ]
    if not found:
        raise NotRunError(f"no run of `ropescope sharpen` from the trained length on with {' and '.join(choices)}")
    return found


def _drawn(runs: Runs, choice: str, without: str) -> list[tuple[Run, Mapping[str, Any]]]:
    """The same with random choices beside a choice, with the model's own base or with a larger one."""
    found = [(run, run.results["random"].get(without)) for run in _judged(runs, choice)]
    drawn = [(run, each) for run, each in found if each is not None and choice in each["beside"]]
    if not drawn:
        raise NotRunError(f"no run of `ropescope sharpen` with random choices beside {choice}")
    return drawn


def _gain(run: Run, choice: str) -> float:
    value: float = run.results["choices"][choice]["gain"]["mean"]
    return value


def _rare(as_far: int, drawn: Mapping[str, Any]) -> bool:
    """Whether at most one in twenty of the random choices and the one compared with them is as far out."""
    if not as_far and len(drawn["gains"]) < FEWEST:
        raise NotRunError(f"{len(drawn['gains'])} random choices are too few to tell: give at least {FEWEST} draws")
    return (1 + as_far) / (1 + len(drawn["gains"])) <= 0.05


def _told(run: Run, choices: list[str]) -> str:
    parts = [f"{name} {gained(run.results['choices'][name])}" for name in choices]
    return f"{run.config['model']} up to {run.config['tokens']:,} tokens: {', '.join(parts)}"


def _together(verdicts: list[Verdict], parts: list[str], run: Run) -> Found:
    """Reproduced if it is in every run, partly if it is so or partly so in some."""
    whole, part = all(each == "reproduced" for each in verdicts), any(each != "not" for each in verdicts)
    return Found("; ".join(parts), graded(whole, part), run, "loss")


@claim(
    "ours-sharpen-cure",
    "ours",
    "docs/sharpen.md",
    "lower loss, as in the letter model",
    "Loss past the trained length with all heads sharpened, below that of the model as it is, in every passage; partly: in the "
    "mean. In nats, positive is better.",
)
def cure(runs: Runs) -> Found:
    """Logits times log n in all heads lower the loss of a language model past its trained length."""
    found = _judged(runs, ALL)
    whole = all(min(run.results["choices"][ALL]["gain"]["by_passage"]) > 0 for run in found)
    part = any(_gain(run, ALL) > 0 for run in found)
    return Found("; ".join(_told(run, [ALL]) for run in found), graded(whole, part), found[0], "loss")


def _named(runs: Runs, choice: str, without: str) -> Found:
    """Whether a choice of heads lowers the loss, and more than as many random ones."""
    found, verdicts, parts = _drawn(runs, choice, without), list[Verdict](), []
    for run, drawn in found:
        rare = _rare(drawn["beside"][choice]["as_good"], drawn)
        verdicts.append(graded(rare and _gain(run, choice) > 0, rare))
        parts.append(f"{_told(run, [choice])}; {ranked(drawn, choice)}")
    return _together(verdicts, parts, found[0][0])


@claim(
    "ours-sharpen-profile",
    "ours",
    "docs/sharpen.md",
    "the profile tells which heads to sharpen",
    "Symbolic heads sharpened: a lower loss past the trained length than the model as it is, and than with as many random "
    "heads, but for one choice in twenty. Partly: only the second.",
)
def profile(runs: Runs) -> Found:
    """Sharpening symbolic heads only lowers the loss past the trained length, more than as many random heads."""
    return _named(runs, SYMBOLIC, NONE)


@claim(
    "ours-sharpen-base",
    "ours",
    "docs/sharpen.md",
    "the profile tells which heads to sharpen",
    "The same with the base enlarged for the length, in all choices.",
)
def base(runs: Runs) -> Found:
    """With a larger base, too, sharpening symbolic heads only lowers the loss, more than as many random heads."""
    return _named(runs, with_base(SYMBOLIC), BASE)


@claim(
    "ours-sharpen-positional",
    "ours",
    "docs/sharpen.md",
    "the profile tells which heads not to sharpen",
    "The most positional heads sharpened, as many as are symbolic: a higher loss past the trained length than with as many "
    "random heads, but for one choice in twenty. Partly: only higher than with symbolic heads, in every passage.",
)
def positional(runs: Runs) -> Found:
    """Sharpening the most positional heads is worse than sharpening as many random heads."""
    found, verdicts, parts = _drawn(runs, FEW, NONE), list[Verdict](), []
    for run, drawn in found:
        few, symbolic = (run.results["choices"][name]["gain"]["by_passage"] for name in (FEW, SYMBOLIC))
        worse = all(one < other for one, other in zip(few, symbolic, strict=True))
        verdicts.append(graded(_rare(drawn["beside"][FEW]["as_bad"], drawn), worse))
        parts.append(f"{_told(run, [FEW, SYMBOLIC])}; {ranked(drawn, FEW)}")
    return _together(verdicts, parts, found[0][0])


@claim(
    "ours-sharpen-rivals",
    "ours",
    "docs/sharpen.md",
    "sharpening is the better cure",
    "The best of symbolic, positional and all heads sharpened, against each p-RoPE and the larger base: a lower loss past the "
    "trained length than all, partly than some.",
)
def rivals(runs: Runs) -> Found:
    """Sharpening the right heads lowers the loss more than changing the rotation."""
    found, cases, parts = _judged(runs, ALL, BASE), list[bool](), []
    for run in found:
        entries = run.results["choices"]
        gains = {name: _gain(run, name) for name in (SYMBOLIC, POSITIONAL, ALL) if name in entries}
        best = max(gains, key=lambda name: gains[name])
        others = [name for name, entry in entries.items() if not entry["heads"] and _changes(name)]
        cases += [_gain(run, best) > _gain(run, name) for name in others]
        parts.append(_told(run, [best, *others]))
    return Found("; ".join(parts), every(cases), found[0], "loss")


def _changes(name: str) -> bool:
    return name == BASE or name.startswith("p-RoPE")
