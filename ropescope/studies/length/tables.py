"""Headline, tables and the labelled dataset of a run on longer inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...runs import Run
from ..study import Table

if TYPE_CHECKING:
    import xarray as xr

FRONTS = {
    "same": "drawn like those in the window",
    "one letter": "one letter off the path, any digit",
    "one token": "one token, repeated",
}
"""What stands in front of an input, by its name in the settings."""


def description(task: str, config: Mapping[str, Any]) -> str:
    """One line on the model and the inputs that the results of a task come from."""
    seeds = "1 seed" if config["seeds"] == 1 else f"{config['seeds']} seeds"
    front = f"front: {FRONTS[config['fillers']]}"
    return f"{task} task, {config['models'][task]}; {front}; {config['samples']} sequences x {seeds}"


def headline(run: Run) -> str:
    """One line on what came out."""
    parts = []
    for task, found in run.results.items():
        half = found["crossings"]["0.5"]["overall"].get("measured")
        where = f"beyond {found['lengths'][-1]:,}" if half is None else f"at {half:,.0f}"
        parts.append(f"{task} task, {run.config['models'][task]}: half of the answers are right {where} tokens")
    return "; ".join(parts)


def tables(run: Run) -> list[Table | str]:
    """What the command prints: for each task accuracy over length, where it falls through levels, and heads."""
    shown: list[Table | str] = []
    for task, found in run.results.items():
        shown += [description(task, run.config), _accuracy(found), _crossings(found), *_half(found)]
    return shown


def _accuracy(found: Mapping[str, Any]) -> Table:
    curves = found["curves"]
    measured, *others = curves
    hops = [name for name in curves[measured] if name != "overall"]

    def cell(curve: str, at: int) -> str:
        overall = curves[curve]["overall"]
        mean, spread = overall["mean"][at], overall.get("sd", [None] * (at + 1))[at]
        return f"{mean:.3f}" if spread is None else f"{mean:.3f} ± {spread:.3f}"

    rows = [
        [f"{n:,}", cell(measured, at)]
        + [f"{curves[measured][name]['mean'][at]:.3f}" for name in hops]
        + [cell(curve, at) for curve in others]
        for at, n in enumerate(found["lengths"])
    ]
    return Table(["tokens", measured, *hops, *others], rows)


def _crossings(found: Mapping[str, Any]) -> Table:
    predicted = list(found["mean_distance"])
    measured, *others = found["curves"]
    others = [curve for curve in others if curve not in predicted]

    def times(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}x"

    rows = [
        [f"{level}, {name}", _tokens(at.get(measured))]
        + [text for curve in predicted for text in (_tokens(at.get(curve)), times(at.get(f"{curve} / {measured}")))]
        + [_tokens(at.get(curve)) for curve in others]
        for level, classes in found["crossings"].items()
        for name, at in classes.items()
        if any(at.get(curve) is not None for curve in at)
    ]
    titles = [text for curve in predicted for text in (f"by {curve}", "over measured")]
    return Table(["accuracy falls to", "at tokens", *titles, *others], rows)


def _half(found: Mapping[str, Any]) -> list[str]:
    simple = found["closed_form"]
    halves = zip(found["heads_are"], *(simple.get(f"half_{which}", ()) for which in ("predicted", "measured")), strict=True)
    shown = [
        "tokens at which the front has half of a head's attention, by its weight on wrong targets in short inputs alone / "
        "measured:",
        ", ".join(f"{head} {_tokens(predicted)}/{_tokens(measured)}" for head, predicted, measured in halves),
    ]
    if simple.get("off") is not None:
        shown.append(f"over heads: {simple['off']:.2f}x the measured length, give or take a factor {simple['spread']:.2f}")
    return shown


def _tokens(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def dataset(run: Run) -> xr.Dataset:
    """Accuracy by task, curve, hop count and length; margin and weight on the front by task, curve, length and head."""
    import xarray as xr  # noqa: PLC0415

    parts = []
    for found in run.results.values():
        curves, heads = found["curves"], found["heads"]
        classes = list(curves["measured"])
        values: dict[str, Any] = {
            name: (
                ("curve", "hops", "length"),
                [[[float("nan") if x is None else x for x in curve[h][key]] for h in classes] for curve in curves.values()],
            )
            for name, key in (("accuracy", "mean"), ("accuracy_sd", "sd"))
        }
        for name in ("margin", "front"):
            values[name] = (("curve", "length", "head"), [heads[curve][name] for curve in curves])
        at = {"curve": list(curves), "hops": classes, "length": found["lengths"], "head": found["heads_are"]}
        parts.append(xr.Dataset(values, at))
    return xr.concat(parts, xr.Variable("task", list(run.results)), join="outer", data_vars="all")
