"""Claims on what the sizes of the tasks move. All rules were written before any of the recorded models was trained."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...runs import Run
from ...tasks import TASKS
from ..claims import Found, NotRunError, Runs, claims_in, every
from .knobs import KNOBS
from .tables import change

claim = claims_in("The number and letter tasks, and how they are learned")
FEWEST = 2
"""Seeds without which nothing is judged."""
ASKED = "paper B leaves it open"


def _largest(run: Run, tasks: tuple[str, ...], outcome: str, size: Callable[[float, float], float]) -> list[dict[str, float]]:
    """The change of an outcome over each size, for every task and seed; raises NotRunError if one was not changed."""
    if run.config["seeds"] < FEWEST:
        raise NotRunError("the run has a single seed of each setting")
    found = []
    for task in tasks:
        for seed in range(run.config["seed"], run.config["seed"] + run.config["seeds"]):
            ends = {knob: change(run, task, knob, seed, outcome) for knob in KNOBS}
            missing = [knob for knob, end in ends.items() if end is None]
            if missing:
                raise NotRunError(f"{missing[0]} of the {task} task were not changed")
            found.append({knob: size(*end) for knob, end in ends.items() if end is not None})
    return found


def _judged(run: Run, found: list[dict[str, float]], most: str, form: str) -> Found:
    text = "; ".join(", ".join(f"{knob} {format(value, form)}" for knob, value in each.items()) for each in found)
    cases = [all(abs(each[most]) > abs(value) for knob, value in each.items() if knob != most) for each in found]
    return Found(text, every(cases), run, "sizes")


@claim(
    "ours-sizes-heads",
    "ours",
    ASKED,
    "not asked",
    "Change of the number of pure positional heads of the number task, from the smallest to the largest value of each size: "
    "the largest for hops in every seed, partly in some. At least two seeds.",
)
def heads(runs: Runs) -> Found:
    """How many positional heads a model has follows the number of hops, more than windows or vocabulary."""
    run = runs.one("sizes")
    found = _largest(run, ("number",), "pure_positional", lambda first, last: last - first)
    return _judged(run, found, "hops", "+.0f")


@claim(
    "ours-sizes-step",
    "ours",
    ASKED,
    "not asked",
    "Step of learning at the largest value of each size over that at the smallest, as logarithms to base 2: the largest for "
    "hops in every task and seed, partly in some; a model that has not learned counts with the last step. At least two seeds.",
)
def step(runs: Runs) -> Found:
    """When a task is learned follows the number of hops, more than windows or vocabulary."""
    run = runs.one("sizes")
    return _judged(run, _largest(run, tuple(TASKS), "learned_at", _doublings), "hops", "+.1f")


@claim(
    "ours-sizes-breaks",
    "ours",
    ASKED,
    "not asked",
    "Breaking length in tokens at the largest value of each size over that at the smallest, as logarithms to base 2: the "
    "largest for windows in every task and seed, partly in some; a model that does not break counts with the longest length "
    "tested. At least two seeds.",
)
def breaks(runs: Runs) -> Found:
    """The length at which a model breaks follows the length that it was trained on, more than hops or vocabulary."""
    run = runs.one("sizes")
    return _judged(run, _largest(run, tuple(TASKS), "breaks_at", _doublings), "windows", "+.1f")


def _doublings(first: float, last: float) -> float:
    return math.log2(last / first)
