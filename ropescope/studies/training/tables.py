"""Headlines, tables and datasets of training runs, of runs with a history, and of tested models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...measures.purity import POSITIONAL, SYMBOLIC, purity
from ...runs import Run, read_trajectory
from ..histories.milestones import milestones
from ..histories.tables import milestones_table
from ..study import Table

if TYPE_CHECKING:
    import xarray as xr


def train_headline(run: Run) -> str:
    """One line on what came out."""
    task = f"{run.config['task']} task, seed {run.config['seed']}"
    accuracy = run.results.get("test_accuracy")
    if not accuracy:
        return f"{task}: not ended yet"
    return f"{task}: test accuracy from {min(accuracy.values()):.4f} to {max(accuracy.values()):.4f} over hop counts"


def train_tables(run: Run) -> list[Table | str]:
    """Test accuracy per hop count, in one line."""
    accuracy = run.results.get("test_accuracy")
    return [f"{run.folder}: test accuracy {dict(accuracy) if accuracy else 'not known yet'}"]


def watched_headline(run: Run) -> str:
    """One line on a model that was measured again and again while something else trained it, or checkpoint by checkpoint."""
    history = read_trajectory(run.folder)
    looks, name = history.looks(), str(run.config.get("model", {}).get("name", "a model"))
    lost = len(history.steps) - len(looks.steps)
    failed = f"; measuring failed at {lost} step{'' if lost == 1 else 's'}" if lost else ""
    ended = "" if run.results else ", not ended yet"
    if not len(looks.steps):
        return f"{name}{ended}: no step has scores{failed}"
    pure = purity(looks.measures["positional"][-1], looks.measures["symbolic"][-1])
    heads = int(np.isfinite(looks.measures["positional"][-1]).sum())
    counts = (
        f"{int((pure == POSITIONAL).sum())} pure positional, {int((pure == SYMBOLIC).sum())} pure symbolic of {heads} heads"
    )
    return f"{name}, measured {len(looks.steps)} times up to step {int(looks.steps[-1]):,}{ended}: {counts}{failed}"


def watched_tables(run: Run) -> list[Table | str]:
    """When hop counts were learned, and which heads are pure."""
    history = read_trajectory(run.folder)
    return [milestones_table({run.name: milestones(history)})] if len(history.looks().steps) else []


def evaluate_headline(run: Run) -> str:
    """One line on what came out."""
    accuracy = run.results["accuracy"].values()
    return (
        f"{run.config['task']} task, model {run.config['model']}: test accuracy from {min(accuracy):.4f} to {max(accuracy):.4f}"
    )


def evaluate_tables(run: Run) -> list[Table | str]:
    """Accuracy per hop count, in one line."""
    found = ", ".join(f"{name} {value:.4f}" for name, value in run.results["accuracy"].items())
    return [f"{run.results['sequences']:,} test sequences: {found}"]


def evaluate_dataset(run: Run) -> xr.Dataset:
    """Accuracy by hop count."""
    import xarray as xr  # noqa: PLC0415

    accuracy = run.results["accuracy"]
    return xr.Dataset({"accuracy": ("hops", list(accuracy.values()))}, {"hops": list(range(1, len(accuracy) + 1))})
