"""Headline, tables and the labelled dataset of a run on sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runs import Run
from ...tasks import TASKS
from ..claims import NotRunError, span
from ..study import Table
from .knobs import DEFAULT, KNOBS

if TYPE_CHECKING:
    import xarray as xr

Rows = Sequence[Mapping[str, Any]]
OUTCOMES = {
    "learned_at": "step of learning",
    "pure_positional": "pure positional heads",
    "pure_symbolic": "pure symbolic heads",
    "breaks_at": "breaking length",
}


def title(run: Run) -> str:
    """What the page calls the run."""
    return f"Three lengths apart: {len(run.results['models'])} models of other windows, paths and vocabularies"


def of_setting(run: Run, setting: str) -> list[Mapping[str, Any]]:
    """The models of a setting, one for each seed."""
    return [row for row in run.results["models"] if row["setting"] == setting]


def along(run: Run, task: str, knob: str, seed: int) -> list[tuple[int, Mapping[str, Any]]]:
    """The models of a task and seed over the values of a knob, the default model among them, the smallest value first."""
    rows = [row for row in run.results["models"] if (row["task"], row["seed"]) == (task, seed)]
    here = [row for row in rows if row["knob"] in (DEFAULT, knob)]
    values = [KNOBS[knob][1] if row["knob"] == DEFAULT else int(row["value"]) for row in here]
    return sorted(zip(values, here, strict=True), key=lambda pair: pair[0])


def change(run: Run, task: str, knob: str, seed: int, outcome: str) -> tuple[float, float] | None:
    """An outcome at the smallest and at the largest value of a knob; None if the knob was not turned.

    A model that has not learned counts with the last step, one that does not break with the longest length tested.
    """
    found = [row for _, row in along(run, task, knob, seed)]
    if len(found) < 2:
        return None
    first, last = (_known(run, row, outcome) for row in (found[0], found[-1]))
    return first, last


def _known(run: Run, row: Mapping[str, Any], outcome: str) -> float:
    at_least = {"learned_at": run.config["steps"], "breaks_at": row["lengths"][-1]}
    if outcome not in row:
        raise NotRunError(f"a model has no {OUTCOMES[outcome]}")
    found = row.get(outcome)
    return float(at_least[outcome] if found is None else found)


def headline(run: Run) -> str:
    """The step of learning and the breaking length of each task at the ends of every size, for the first seed."""
    parts = []
    for task in TASKS:
        for knob in KNOBS:
            ends = [change(run, task, knob, run.config["seed"], name) for name in ("learned_at", "breaks_at")]
            values = [value for value, _ in along(run, task, knob, run.config["seed"])]
            told = [f"{end[0]:,.0f} to {end[1]:,.0f}" for end in ends if end is not None]
            if told:
                parts.append(f"{task}, {knob} {values[0]} to {values[-1]}: learned at {told[0]}, breaks at {told[1]} tokens")
    return "; ".join(parts) or "no size was changed"


def tables(run: Run) -> list[Table | str]:
    """What the command prints."""
    titles = ["setting", "tokens", "learned", "step of learning", "accuracy"]
    titles += ["pure positional", "pure symbolic", "breaks at (tokens)", "in multiples"]
    about = f"Range over seeds ({run.config['seeds']}); breaking length: accuracy is half of that at the training length"
    return [Table(titles, [_row(run, setting) for setting in run.results["settings"]], about)]


def _row(run: Run, setting: str) -> list[str]:
    rows = of_setting(run, setting)
    length = rows[0]["lengths"][0]
    near = span(float(np.mean(row["accuracy"][0])) for row in rows)
    learned = f"{sum(row['learned'] for row in rows)} of {len(rows)}"
    heads = [span((row[name] for row in rows), "d") for name in ("pure_positional", "pure_symbolic")]
    cells = [_range(rows, "learned_at", 1, ",.0f"), near, *heads]
    return [setting, f"{length:.0f}", learned, *cells, _range(rows, "breaks_at", 1, ",.0f"), _range(rows, "breaks_at", length)]


def _range(rows: Rows, name: str, unit: float, form: str = ".1f") -> str:
    found = [row.get(name) for row in rows]
    known = [float(value) / unit for value in found if value is not None]
    never = len(found) - len(known)
    return ", ".join([*([span(known, form)] if known else []), *([f"never in {never}"] if never else [])])


def dataset(run: Run) -> xr.Dataset:
    """Outcomes of every model."""
    import xarray as xr  # noqa: PLC0415

    rows: Rows = run.results["models"]
    variables: dict[str, Any] = {
        name: ("model", [np.nan if row.get(name) is None else float(row[name]) for row in rows], {"long_name": label})
        for name, label in OUTCOMES.items()
    }
    accuracy = [np.mean(row["accuracy"], axis=1) for row in rows]
    variables["accuracy"] = (("model", "multiple"), accuracy, {"long_name": "accuracy, mean over hop counts"})
    for name in ("positional", "symbolic"):
        means = [np.mean(row[name], axis=1) for row in rows]
        variables[name] = (("model", "layer"), means, {"long_name": f"{name} score"})
    coords = {name: ("model", [row[name] for row in rows]) for name in ("setting", "task", "knob", "value", "seed", "learned")}
    return xr.Dataset(variables, {**coords, "multiple": [1, *run.config["multiples"]]})
