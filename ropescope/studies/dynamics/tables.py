"""Headline, table and labelled dataset of a run of dynamics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...runs import Run
from ..histories.milestones import heads_of
from ..histories.tables import milestones_table
from ..study import Table

if TYPE_CHECKING:
    import xarray as xr


def headline(run: Run) -> str:
    """One line on which runs were read."""
    return f"{len(run.results)} training run{'' if len(run.results) == 1 else 's'}: {', '.join(run.results)}"


def tables(run: Run) -> list[Table | str]:
    """One row for each training run."""
    return [milestones_table(run.results)]


def dataset(run: Run) -> xr.Dataset:
    """Steps at which hop counts were learned and heads became pure, first and for good, by run; NaN for never."""
    import xarray as xr  # noqa: PLC0415

    def steps(values: Sequence[float | None]) -> list[float]:
        return [float("nan") if step is None else float(step) for step in values]

    parts = []
    for found in run.results.values():
        purity = found["purity"]
        values: dict[str, Any] = {"learned_at": ("hops", steps(found["learned_at"]))}
        for when in ("first", "since"):
            rows = [[steps(its[f"{when}_{kind}"]) for kind in ("positional", "symbolic")] for its in purity.values()]
            values[f"pure_{when}"] = (("gamma", "kind", "head"), rows)
        values |= {name: ((), steps([found[name]])[0]) for name in ("best_accuracy", "step_of_best_accuracy")}
        hops = list(range(1, len(found["learned_at"]) + 1))
        at = {"hops": hops, "gamma": [float(gamma) for gamma in purity], "kind": ["positional", "symbolic"]}
        parts.append(xr.Dataset(values, at | {"head": heads_of(found)}))
    return xr.concat(parts, xr.Variable("run", list(run.results)), join="outer", data_vars="all")
