"""Headline, tables and the labelled dataset of a run on several heads in a layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...measures.purity import POSITIONAL, SYMBOLIC
from ...runs import Run
from ..claims import span
from ..study import Table
from .sharing import NEEDED, degrees, kinds_of, layers_of

if TYPE_CHECKING:
    import xarray as xr

Rows = Sequence[Mapping[str, Any]]


def title(run: Run) -> str:
    """What the page calls the run."""
    return f"Several heads in a layer: {len(run.results['models'])} small models"


def settings_of(run: Run) -> list[str]:
    """The kinds of models of a run, without their seeds."""
    return list(dict.fromkeys(row["setting"] for row in run.results["models"]))


def of_setting(run: Run, setting: str) -> list[Mapping[str, Any]]:
    """The models of a kind, one for each seed."""
    return [row for row in run.results["models"] if row["setting"] == setting]


def headline(run: Run) -> str:
    """How pure heads are in each kind of model, mean over heads and seeds."""
    told = [
        f"{setting} {np.mean([degrees(row).mean() for row in of_setting(run, setting)]):.2f}" for setting in settings_of(run)
    ]
    return f"mean purity of heads (task, family, heads in a layer): {', '.join(told)}"


def tables(run: Run) -> list[Table | str]:
    """What the command prints."""
    titles = ["task, family, heads in a layer", "learned", "accuracy", "mean purity", "pure positional", "pure symbolic"]
    titles += ["of heads", "layers with both", "layers that do work", "work that no single head does"]
    about = f"Range over seeds ({run.config['seeds']}). A layer does work if accuracy falls by {NEEDED} without its heads"
    return [Table(titles, [_row(of_setting(run, setting)) for setting in settings_of(run)], about)]


def _row(rows: Rows) -> list[str]:
    layers = [layers_of(row) for row in rows]
    counts = [[int((kinds_of(row) == kind).sum()) for row in rows] for kind in (POSITIONAL, SYMBOLIC)]
    working = [[layer.shared for layer in each if layer.shared is not None] for each in layers]
    shared = [float(np.mean(each)) for each in working if each]
    return [
        rows[0]["setting"],
        f"{sum(row['learned'] for row in rows)} of {len(rows)}",
        span(float(np.mean(row["accuracy"])) for row in rows),
        span(float(degrees(row).mean()) for row in rows),
        *(span(each, "d") for each in counts),
        str(degrees(rows[0]).size),
        span((sum(layer.mixed for layer in each) for each in layers), "d"),
        span((len(each) for each in working), "d"),
        span(shared) if shared else "no layer does",
    ]


def dataset(run: Run) -> xr.Dataset:
    """Scores of every head and accuracy without it; models with fewer heads have NaN for those that they do not have."""
    import xarray as xr  # noqa: PLC0415

    rows: Rows = run.results["models"]
    most = max(row["heads"] for row in rows)
    labels = {
        "positional": "positional score",
        "symbolic": "symbolic score",
        "alone": "accuracy without this head",
    }
    variables: dict[str, Any] = {}
    for name, label in labels.items():
        values = np.full((len(rows), run.config["layers"], most), np.nan)
        for number, row in enumerate(rows):
            values[number, :, : row["heads"]] = row[name]
        variables[name] = (("model", "layer", "head"), values, {"long_name": label})
    together = {"long_name": "accuracy without all heads of this layer"}
    variables["together"] = (("model", "layer"), [row["together"] for row in rows], together)
    variables["accuracy"] = (("model", "hops"), [row["accuracy"] for row in rows], {"long_name": "accuracy"})
    coords: dict[str, Any] = {
        name: ("model", [row[name] for row in rows]) for name in ("setting", "task", "family", "heads", "seed", "learned")
    }
    # A coordinate that has the name of a dimension would have to label it.
    coords["heads_per_layer"] = coords.pop("heads")
    return xr.Dataset(variables, {**coords, "hops": 1 + np.arange(run.config["hops"])})
