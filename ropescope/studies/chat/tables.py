"""Headline, tables and the labelled dataset of a run on chat models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...runs import Run
from ..study import Table
from .scores import PAPER, PAPER_LENGTHS

if TYPE_CHECKING:
    import xarray as xr


def headline(run: Run) -> str:
    """One line on what came out."""
    name, found = run.config["model"]["source"], run.results.get("screening")
    if not found:
        return f"{name} on the number and letter tasks"
    passed = "passes" if found["passed"] else "fails"
    at = f"{found['accuracy']:.2f} on the {found['task']} task at length {found['length']}"
    return f"{name} {passed} the screening: {at}, {found['single']:.0%} of answers a single token"


def failed(run: Run) -> str:
    """One sentence if the model failed the screening and was therefore not asked all questions."""
    screened, found, too_long = (run.results.get(key) for key in ("screening", "accuracy", "too_long"))
    if not screened or screened["passed"] or found is None:
        return ""
    asked = sum(len(cells) for cells in found.values()) + sum(len(lengths) for lengths in (too_long or {}).values())
    if asked == len(run.config["tasks"]) * len(run.config["lengths"]):
        return ""
    return "the model fails the screening, so the rest was not asked: set anyway to ask it, too"


def tables(run: Run) -> list[Table | str]:
    """What the command prints: accuracy over length beside paper B's models, the screening, and what was left out."""
    name, found = run.config["model"]["source"], run.results["accuracy"]
    columns = ["target window", *(f"{name}, {task}" for task in found), *(f"{paper}, number / letter" for paper in PAPER)]
    measured = sorted({int(n) for cells in found.values() for n in cells})
    rows = [
        [str(n), *(_ours(cells.get(str(n))) for cells in found.values()), *(_theirs(tasks, n) for tasks in PAPER.values())]
        for n in measured
    ]
    shown: list[Table | str] = [Table(columns, rows)]
    if screened := run.results["screening"]:
        shown.append(
            f"screening: {screened['task']} at {screened['length']}: {screened['accuracy']:.2f} right (at least "
            f"{screened['least_accuracy']:.2f}), {screened['single']:.2f} single tokens (at least "
            f"{screened['least_single']:.2f}): {'passed' if screened['passed'] else 'failed'}"
        )
    for task, left_out in run.results["too_long"].items():
        windows = ", ".join(map(str, left_out))
        shown.append(f"{task}: windows of {windows} do not fit into the model's context and were left out")
    if reasoning := run.results["usage"].get("reasoning"):
        shown.append(f"the model reasoned ({reasoning:,} tokens), which paper B turned off: try reasoning none")
    return shown


def _ours(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return "-"
    return f"{cell['mean']:.2f}" if cell.get("std") is None else f"{cell['mean']:.2f} ± {cell['std']:.2f}"


def _theirs(tasks: Mapping[str, Sequence[float]], n: int) -> str:
    at = PAPER_LENGTHS.index(n) if n in PAPER_LENGTHS else None
    return "-" if at is None else f"{tasks['number'][at]:.2f} / {tasks['letter'][at]:.2f}"


def dataset(run: Run) -> xr.Dataset:
    """Accuracy by task, length and run, its mean and standard deviation over runs, and the share of single tokens."""
    import numpy as np  # noqa: PLC0415
    import xarray as xr  # noqa: PLC0415

    found, config = run.results["accuracy"], run.config
    tasks, lengths, runs = list(found), list(config["lengths"]), config["runs"]
    first = config["seed"]
    shape = (len(tasks), len(lengths))
    values = {name: np.full(shape, np.nan) for name in ("mean", "std", "single", "characters")}
    accuracy = np.full((*shape, runs), np.nan)
    for i, task in enumerate(tasks):
        for j, length in enumerate(lengths):
            if (cell := found[task].get(str(length))) is not None:
                accuracy[i, j] = cell["runs"]
                for name, array in values.items():
                    array[i, j] = np.nan if cell[name] is None else cell[name]
    by_cell = {name: (("task", "length"), array) for name, array in values.items()}
    at = {"task": tasks, "length": lengths, "run": list(range(first, first + runs))}
    return xr.Dataset({"accuracy": (("task", "length", "run"), accuracy), **by_cell}, at)
