"""Headline, tables and the labelled dataset of a run in which a model chose among the items."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import TYPE_CHECKING, Any

from ...runs import Run
from ..study import Table
from .scores import LONG, rank_correlation

if TYPE_CHECKING:
    import xarray as xr

NUMBERS = ("mean", "std", "greedy", "chance", "by_place", "nats", "mass")


def name_of(run: Run) -> str:
    """The model's name."""
    return str(run.config["model"]["source"])


def headline(run: Run) -> str:
    """One line on what came out at the shortest and the longest window."""
    told = []
    for form, tasks in run.results["accuracy"].items():
        for task, cells in tasks.items():
            if cells:
                ends = [min(cells, key=int), max(cells, key=int)]
                values = " to ".join(f"{cells[end]['mean']:.2f}" for end in ends)
                told.append(f"{task} {values} ({form}, windows of {' to '.join(ends)})")
    return f"{name_of(run)} chooses right: {'; '.join(told) or 'no question fits into its context'}"


def pooled(cells: Mapping[str, Mapping[str, Any]]) -> tuple[float, int, float]:
    """Right answers over all windows of a task, the number of questions, and how many are right by chance."""
    asked = [(int(cell["questions"]), cell) for cell in cells.values()]
    right, by_chance = (sum(count * cell[name] for count, cell in asked) for name in ("mean", "chance"))
    return right, sum(count for count, _ in asked), by_chance


def tables(run: Run) -> list[Table | str]:
    """A table for each form: accuracy by window and task, beside what greedy decoding, chance and a guess by place reach."""
    shown: list[Table | str] = []
    for form, tasks in run.results["accuracy"].items():
        columns, rows = ["target window"], []
        for task in tasks:
            columns += [f"{task}", "greedy", "by place", "chance"]
        for n in sorted({int(n) for cells in tasks.values() for n in cells}):
            found = [part for cells in tasks.values() for part in _cells(cells.get(str(n)))]
            rows.append([str(n), *found])
        if rows:
            shown.append(Table(columns, rows, f"{form}: accuracy of forced choice"))
        for task, cells in tasks.items():
            if cells:
                right, count, by_chance = pooled(cells)
                shown.append(f"{form}, {task}, all windows: {right:.3g} of {count} right, by chance {by_chance:.1f}")
        for task, lengths in run.results["too_long"][form].items():
            if lengths:
                windows = ", ".join(map(str, lengths))
                shown.append(f"{form}, {task}: windows of {windows} do not fit into the model's context and were left out")
    late = run.results.get("late_symbolic")
    if late is not None:
        shown.append(f"mean symbolic score of heads in the second half of the layers: {late:.2f}")
    return [*shown, *_over_models(run.results.get("beside") or [])]


def _cells(cell: Mapping[str, Any] | None) -> list[str]:
    if cell is None:
        return ["-"] * 4
    spread = cell.get("std")
    mean = f"{cell['mean']:.2f}" if spread is None else f"{cell['mean']:.2f} ± {spread:.2f}"
    place = cell.get("by_place")
    return [mean, f"{cell['greedy']:.2f}", "-" if place is None else f"{place:.2f}", f"{cell['chance']:.3f}"]


def _over_models(models: list[Mapping[str, Any]]) -> list[Table | str]:
    """Models side by side: how symbolic late heads are, and mean accuracy above chance on long windows."""
    if not models:
        return []
    forms = {(form, task): None for model in models for form, tasks in model["held"].items() for task in tasks}
    rows, shown = [], []
    for model in models:
        late = model.get("late_symbolic")
        values = [model["held"].get(form, {}).get(task) for form, task in forms]
        rows.append([model["model"], *("-" if x is None else f"{x:.2f}" for x in (late, *values))])
    columns = ["model", "late symbolic", *(f"{form}, {task}" for form, task in forms)]
    for form, task in forms:
        pairs = [(m.get("late_symbolic"), m["held"].get(form, {}).get(task)) for m in models]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        if len(known) > 2 and not isnan(rho := rank_correlation([a for a, _ in known], [b for _, b in known])):
            shown.append(f"{form}, {task}: rank correlation with late symbolic scores {rho:.2f} over {len(known)} models")
    windows = ", ".join(map(str, LONG))
    return [Table(columns, rows, f"mean accuracy above chance at windows of {windows}"), *shown]


def dataset(run: Run) -> xr.Dataset:
    """Accuracy by form, task, window and draw; its mean and deviation, greedy accuracy, chance and guesses by place."""
    import numpy as np  # noqa: PLC0415
    import xarray as xr  # noqa: PLC0415

    found, config = run.results["accuracy"], run.config
    forms, tasks, lengths = list(config["forms"]), list(config["tasks"]), list(config["lengths"])
    shape = (len(forms), len(tasks), len(lengths))
    accuracy = np.full((*shape, config["runs"]), np.nan)
    values = {name: np.full(shape, np.nan) for name in NUMBERS}
    for i, form in enumerate(forms):
        for j, task in enumerate(tasks):
            for k, length in enumerate(lengths):
                if (cell := found[form][task].get(str(length))) is not None:
                    accuracy[i, j, k] = cell["runs"]
                    for name, array in values.items():
                        array[i, j, k] = np.nan if cell[name] is None else cell[name]
    axes = ("form", "task", "length")
    draws = list(range(config["seed"], config["seed"] + config["runs"]))
    at = {"form": forms, "task": tasks, "length": lengths, "run": draws}
    return xr.Dataset({"accuracy": ((*axes, "run"), accuracy)} | {name: (axes, array) for name, array in values.items()}, at)
