"""Headline, tables and the labelled dataset of accuracy by hop count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...runs import Run
from ..study import Table
from .claims import PAPER

if TYPE_CHECKING:
    import xarray as xr

MIXES = {"1 and 2 hops": (1, 2), "all": (1, 2, 3, 4), "1 hop": (1,), "2 hops": (2,), "3 hops": (3,), "4 hops": (4,)}
"""Hop counts over which accuracy is averaged, with equal shares."""


def title(_: Run) -> str:
    """What the page calls the run."""
    return "Accuracy by hop count, and the paper's points"


def headline(run: Run) -> str:
    """Which mix of hop counts is nearest to the paper's points in every task."""
    parts = []
    for task in dict.fromkeys(row["task"] for row in run.results["curves"]):
        rows = [row["distance"] for row in run.results["distances"] if row["task"] == task]
        if rows:
            means = {name: sum(row[name] for row in rows) / len(rows) for name in MIXES}
            best = min(means, key=lambda name: means[name])
            parts.append(f"{task}: nearest to the paper is {best} (at most {means[best]:.2f} away; all: {means['all']:.2f})")
    return "; ".join(parts) or f"{len(run.results['curves'])} curves up to {run.results['lengths'][-1]:,} tokens"


def tables(run: Run) -> list[Table | str]:
    """Accuracy by length of every model and mix, and the distance to the paper's points."""
    lengths, parts = run.results["lengths"], list[Table | str]([headline(run)])
    for task in dict.fromkeys(row["task"] for row in run.results["curves"]):
        rows = []
        for row in run.results["curves"]:
            if row["task"] == task:
                away = next((each["distance"] for each in run.results["distances"] if _same(each, row)), None)
                for name, mix in row["mixes"].items():
                    told = [row["name"], row["checkpoint"], row["fillers"], name, *(f"{value:.2f}" for value in mix["mean"])]
                    rows.append([*told, "-" if away is None else f"{away[name]:.2f}"])
        paper = [f"{PAPER[task][n]:.2f}" if n in PAPER[task] else "" for n in lengths]
        rows.append(["paper B, approximate", "", "", "", *paper, ""])
        columns = ["model", "checkpoint", "fillers", "hops", *(f"{n:,}" for n in lengths), "farthest from the paper"]
        parts.append(Table(columns, rows, f"{task} task: accuracy by length"))
    return parts


def _same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return all(a[name] == b[name] for name in ("name", "task", "checkpoint", "fillers"))


def dataset(run: Run) -> xr.Dataset:
    """Accuracy by curve, hop count and length."""
    import numpy as np  # noqa: PLC0415
    import xarray as xr  # noqa: PLC0415

    rows = run.results["curves"]
    about = {name: ("curve", [row[name] for row in rows]) for name in ("name", "recipe", "task", "checkpoint", "fillers")}
    hops = list(range(1, len(rows[0]["per_hop"]) + 1))
    coords = {"curve": list(range(len(rows))), "hops": hops, "length": list(run.results["lengths"]), **about}
    return xr.Dataset({"accuracy": (("curve", "hops", "length"), np.array([row["per_hop"] for row in rows]))}, coords)
