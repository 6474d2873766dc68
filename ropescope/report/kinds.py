"""What a page shows of each kind of run: under which heading, in one line, in figures, and which heads can be chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from ..charts import Figure
from ..measures.purity import POSITIONAL, SYMBOLIC, purity
from ..runs import Run, read_trajectory
from ..studies.study import HeadChoice, Study
from . import dynamics, llm


@dataclass(frozen=True)
class Kind:
    """How runs of one command are shown; `headline` says in one line what came out."""

    heading: str
    headline: Callable[[Run], str]
    figures: Callable[[Run], dict[str, Figure]]


def old_study(run: Run) -> Study:
    """How to show a run whose study has not moved to its folder."""
    kind = KINDS.get(run.command, Kind("Other runs", lambda run: f"ropescope {run.command}", lambda _: {}))
    return Study(run.command, kind.heading, kind.headline, figures=kind.figures, heads=choice_of)


def claims_of(run: Run) -> list[Mapping[str, Any]]:
    """What papers say of such a run, beside what came out; empty where they say nothing."""
    if run.command == "dynamics":
        return [{"run": name, **claim} for name, found in run.results.items() for claim in found["claims"]]
    return list(run.results.get("claims", []))


def choice_of(run: Run) -> HeadChoice | None:
    """The heads of a profile or of a training run; None for runs without scores of heads."""
    if run.command in TRAININGS:
        history = read_trajectory(run.folder).looks()
        if not len(history.steps):
            return None
        scores = {score: history.measures[score][-1].ravel() for score in ("positional", "symbolic")}
        last = zip(history.head_names(), scores["positional"], scores["symbolic"], strict=True)
        known = [(name, float(p), float(s)) for name, p, s in last if isfinite(p) and isfinite(s)]
        ends = {name: f"in the end positional {p:.3f}, symbolic {s:.3f}" for name, p, s in known}
        widest = max(known, key=lambda head: abs(head[1] - head[2]), default=("", 0.0, 0.0))[0]
        heads = history.measures["positional"].shape[2]
        return HeadChoice(history.layers.tolist(), list(range(heads)), widest, ends)
    return None


def _train(run: Run) -> str:
    task = f"{run.config['task']} task, seed {run.config['seed']}"
    accuracy = run.results.get("test_accuracy")
    if not accuracy:
        return f"{task}: not ended yet"
    return f"{task}: test accuracy from {min(accuracy.values()):.4f} to {max(accuracy.values()):.4f} over hop counts"


def _watched(run: Run) -> str:
    """A model that was looked at again and again while something else trained it, or checkpoint by checkpoint."""
    history = read_trajectory(run.folder)
    looks, name = history.looks(), str(run.config.get("model", {}).get("name", "a model"))
    failed = (
        f"; looking failed at {len(history.steps) - len(looks.steps)} steps" if len(looks.steps) < len(history.steps) else ""
    )
    ended = "" if run.results else ", not ended yet"
    if not len(looks.steps):
        return f"{name}{ended}: no look has given scores{failed}"
    pure = purity(looks.measures["positional"][-1], looks.measures["symbolic"][-1])
    heads = int(np.isfinite(looks.measures["positional"][-1]).sum())
    kinds = f"{int((pure == POSITIONAL).sum())} pure positional, {int((pure == SYMBOLIC).sum())} pure symbolic of {heads} heads"
    return f"{name}, {len(looks.steps)} looks up to step {int(looks.steps[-1]):,}{ended}: {kinds}{failed}"


def _held(run: Run) -> str:
    claims = claims_of(run)
    return f"{sum(bool(claim['holds']) for claim in claims)} of {len(claims)} statements of the paper hold"


def _dynamics(run: Run) -> str:
    number = len(run.results)
    said = f"{number} training run{'' if number == 1 else 's'}"
    return f"{said}: {_held(run)}" if claims_of(run) else said


def _llm(run: Run) -> str:
    found = run.results.get("screening")
    if not found:
        return f"{run.config['model']['source']} on the number and letter tasks"
    passed = "passes" if found["passed"] else "fails"
    name, at = run.config["model"]["source"], f"{found['accuracy']:.2f} on the {found['task']} task at length {found['length']}"
    return f"{name} {passed} the screening: {at}, {found['single']:.0%} of answers a single token"


TRAININGS = ("train", "watch", "sweep")
"""Commands whose runs hold a history of heads."""

KINDS = {
    "train": Kind("Training", _train, dynamics.of_run),
    "watch": Kind("Training", _watched, dynamics.of_run),
    "sweep": Kind("Training", _watched, dynamics.of_run),
    "dynamics": Kind("Training", _dynamics, dynamics.of_dynamics),
    "llm": Kind("Chat models", _llm, llm.of_run),
}
"""Commands, in the order in which their runs stand on a page."""
