"""Headline, tables, stored details and the labelled dataset of a run on mechanisms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...runs import Run
from ..study import Table
from . import DETAILS

if TYPE_CHECKING:
    import xarray as xr

SHARES = {
    "reflexive": "reflexive",
    "hop": "hop",
    "delivered": "delivered",
    "hop_past_next": "past next",
    "other": "other",
    "explained": "explained",
}
"""Shares of path nodes by layer, and their titles."""


def details(run: Run) -> dict[str, Any]:
    """Points and example of each task; runs of version 0.1 have them in closer.json, and older ones have none."""
    return run.read(DETAILS) or run.read("closer.json") or {}


def description(config: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    """One line on the model and the inputs that the results of a task come from."""
    flow = results["flow"]
    return (
        f"{config['model']}; {flow['inputs']:,} test sequences of seed {config['seed']}, of which {flow['solved']:,} are solved"
    )


def headline(run: Run) -> str:
    """One line on what came out."""
    return "; ".join(
        f"{task}: {found['flow']['solved']:,} of {found['flow']['inputs']:,} inputs solved"
        for task, found in run.results.items()
    )


def tables(run: Run) -> list[Table | str]:
    """What the command prints: for each task its layers, and changes of several layers."""
    shown: list[Table | str] = []
    for task, found in run.results.items():
        flow = found["flow"]
        shown.append(
            f"{task}: {flow['solved']:,} of {flow['inputs']:,} inputs solved; shares of their {flow['nodes']:,} path nodes"
        )
        together = {name: row for name, row in found["changes"].items() if not name.startswith("L")}
        rows = [[name, " ".join(f"{value:.3f}" for value in row)] for name, row in together.items()]
        shown += [_layers(found), Table(["change", "accuracy per hop"], rows)]
    return shown


def _layers(found: Mapping[str, Any]) -> Table:
    flow, planes = found["flow"], found["planes"]
    rows = [
        [
            f"L{n}",
            f"{found['scores']['positional'][n]:.2f} / {found['scores']['symbolic'][n]:.2f}",
            *(f"{flow[key][n]:.3f}" for key in SHARES),
            f"{flow['agreement_with_ideal'][n + 1]:.3f}",
            f"{planes['mean_plane_by_spread'][n]:.1f} ({planes['planes_in_use_by_spread'][n]:.0f})",
            " ".join(f"{value:.2f}" for value in found["changes"][f"L{n} out"]),
        ]
        for n in range(len(flow["hop"]))
    ]
    return Table(["layer", "pos / sym", *SHARES.values(), "as ideal", "plane (in use)", "without, per hop"], rows)


def dataset(run: Run) -> xr.Dataset:
    """Scores, shares of path nodes and use of planes by task and layer, and accuracy by task, change and hop count."""
    import xarray as xr  # noqa: PLC0415

    parts = []
    for found in run.results.values():
        flow, planes = found["flow"], found["planes"]
        by_layer = {**found["scores"], **{name: flow[name] for name in SHARES}}
        by_layer |= {name: values for name, values in planes.items() if name not in ("spread", "largest")}
        values: dict[str, Any] = {name: ("layer", row) for name, row in by_layer.items()}
        values |= {f"plane_{name}": (("layer", "plane"), planes[name]) for name in ("spread", "largest")}
        values["accuracy"] = (("change", "hops"), list(found["changes"].values()))
        at = {
            "layer": range(len(flow["hop"])),
            "plane": range(1, len(planes["spread"][0]) + 1),
            "change": list(found["changes"]),
            "hops": range(1, len(found["changes"]["none"]) + 1),
        }
        parts.append(xr.Dataset(values, {name: list(labels) for name, labels in at.items()}))
    return xr.concat(parts, xr.Variable("task", list(run.results)), join="outer", data_vars="all")
