"""A history as a labelled dataset, as a row of a table, and as heads that a page lets its reader choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from ...runs import Run, read_trajectory
from ..study import HeadChoice, Table
from .milestones import heads_of

if TYPE_CHECKING:
    import xarray as xr

MOST_NAMES = 16
"""Heads that a table names one by one."""


def history_dataset(run: Run) -> xr.Dataset:
    """Every measure by step, layer and head; accuracy by step and hop count, and loss by step, where they are known."""
    import xarray as xr  # noqa: PLC0415

    history = read_trajectory(run.folder)
    axes = {3: ("step", "layer", "head"), 2: ("step", "hops"), 1: ("step",)}
    found = xr.Dataset(
        {name: (axes[values.ndim], values) for name, values in history.measures.items()},
        {"step": history.steps, "layer": history.layers},
    )
    return found.assign_coords(
        {
            name: range(int(name == "hops"), size + (name == "hops"))
            for name, size in found.sizes.items()
            if name in ("head", "hops")
        }
    )


def milestones_table(results: Mapping[str, Mapping[str, Any]]) -> Table:
    """One row for each run: when it learned what, and its pure heads."""
    rows = [
        [
            name,
            ", ".join("-" if step is None else str(step) for step in result.get("learned_at", ())),
            "-" if (best := result.get("best_accuracy")) is None else f"{result['step_of_best_accuracy']} ({best:.3f})",
            *(_heads(result, result["purity"]["0.1"][f"final_{kind}"]) for kind in ("positional", "symbolic")),
            "-" if (go := result.get("purity_and_accuracy")) is None else f"rho {go['spearman']:.2f}",
        ]
        for name, result in results.items()
    ]
    titles = ["run", "learned at (per hop)", "best accuracy at", "pure positional", "pure symbolic", "purity ~ accuracy"]
    return Table(titles, rows)


def _heads(result: Mapping[str, Any], numbers: Sequence[int]) -> str:
    """Heads by name; of many, how many."""
    names = [heads_of(result)[n] for n in numbers]
    return " ".join(names) if 0 < len(names) <= MOST_NAMES else str(len(names) or "none")


def history_heads(run: Run) -> HeadChoice | None:
    """The heads of a history; None if there are no scores. First the head whose scores differ most at the end."""
    history = read_trajectory(run.folder).looks()
    if not len(history.steps):
        return None
    scores = {score: history.measures[score][-1].ravel() for score in ("positional", "symbolic")}
    last = zip(history.head_names(), scores["positional"], scores["symbolic"], strict=True)
    known = [(name, float(p), float(s)) for name, p, s in last if isfinite(p) and isfinite(s)]
    ends = {name: f"in the end positional {p:.3f}, symbolic {s:.3f}" for name, p, s in known}
    widest = max(known, key=lambda head: abs(head[1] - head[2]), default=("", 0.0, 0.0))[0]
    return HeadChoice(history.layers.tolist(), list(range(history.measures["positional"].shape[2])), widest, ends)
