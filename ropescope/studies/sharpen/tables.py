"""Headline, tables and the labelled dataset of a study of sharpened heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...measures.intervals import LEAST_INPUTS
from ...runs import Run
from ..study import Table
from .names import ALL, NONE, POSITIONAL, SYMBOLIC

if TYPE_CHECKING:
    import xarray as xr


def headline(run: Run) -> str:
    """By how much sharpening lowers the loss past the trained length, and the rank of symbolic heads among random ones."""
    found, config = run.results, run.config
    entries = found["choices"]
    text = (
        f"{config['model']}, {config['passages']} passages of {config['tokens']:,} tokens, trained on {config['trained']:,}: "
    )
    text += f"loss past it {_mean(entries[NONE]['past']):.2f} nats; gained by sharpening: "
    text += ", ".join(f"{name} heads {gained(entries[name])}" for name in (SYMBOLIC, POSITIONAL, ALL) if name in entries)
    if NONE in found["random"] and SYMBOLIC in found["random"][NONE]["beside"]:
        text += f"; {ranked(found['random'][NONE], SYMBOLIC)}"
    return text


def gained(entry: Mapping[str, Any]) -> str:
    """By how much the loss is lower than without a change, in nats, with the interval or the range over passages."""
    return with_doubt(entry["gain"])


def with_doubt(found: Mapping[str, Any]) -> str:
    """The mean with its 95 % interval; with the range over passages where they are too few for one."""
    passages = found["by_passage"]
    if len(passages) < LEAST_INPUTS:
        return f"{found['mean']:+.3f} ({min(passages):+.3f} to {max(passages):+.3f} over passages)"
    return f"{found['mean']:+.3f} (95 % {found['low']:+.3f} to {found['high']:+.3f})"


def ranked(drawn: Mapping[str, Any], name: str) -> str:
    """How many random choices do as well as a choice of as many heads."""
    return f"{drawn['beside'][name]['as_good']} of {len(drawn['gains'])} random choices do as well as {name} heads"


def tables(run: Run) -> list[Table | str]:
    """The loss of every choice by the number of keys, its gain past the trained length, and random choices."""
    found = run.results
    columns = ["choice", "heads", *band_names(found["bands"]), "gain past the trained length"]
    kinds = ", ".join(f"{len(heads)} {kind}" for kind, heads in found["kinds"].items() if heads)
    parts: list[Table | str] = [headline(run), f"heads by the profile: {kinds}"]
    parts.append(Table(columns, choice_rows(found), "Loss in nats by the number of keys that a query sees"))
    if found["random"]:
        columns = ["as many heads", "random choices", "do as well", "range of random choices", "ahead of their mean by"]
        parts.append(Table(columns, random_rows(found), "Beside random heads: gains past the trained length"))
    if found["choices"][NONE]["gain"].get("low") is None:
        parts.append(f"{run.config['passages']} passages are too few for intervals: ranges are over passages")
    return parts


def band_names(bands: Sequence[Sequence[int]]) -> list[str]:
    """Ranges of the number of keys, as text."""
    return [f"{first:,} to {last:,}" for first, last in bands]


def choice_rows(found: Mapping[str, Any]) -> list[list[str]]:
    """A row for each choice that is not random."""
    rows = []
    for name, entry in found["choices"].items():
        if not entry["drawn"]:
            losses = [f"{_mean(own):.3f}" for own in entry["loss"]]
            rows.append([name, str(entry["heads"] or "-"), *losses, "-" if name == NONE else gained(entry)])
    return rows


def random_rows(found: Mapping[str, Any]) -> list[list[str]]:
    """A row for each choice that has as many heads as random ones."""
    return [
        [
            name,
            str(len(drawn["gains"])),
            str(each["as_good"]),
            f"{min(drawn['gains']):+.3f} to {max(drawn['gains']):+.3f}",
            with_doubt(each["lead"]),
        ]
        for drawn in found["random"].values()
        for name, each in drawn["beside"].items()
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def dataset(run: Run) -> xr.Dataset:
    """Losses (choice, passage, band), losses past the trained length (choice, passage), and scores of heads (layer, head)."""
    import numpy as np  # noqa: PLC0415
    import xarray as xr  # noqa: PLC0415

    found = run.results
    entries = found["choices"]
    scores = {
        name: (("layer", "head"), np.array(found.get(name), dtype=float), {"long_name": f"{name} score on prose"})
        for name in (POSITIONAL, SYMBOLIC)
    }
    values = {
        "loss": (("choice", "passage", "band"), np.array([e["loss"] for e in entries.values()]).swapaxes(1, 2)),
        "past": (("choice", "passage"), np.array([entry["past"] for entry in entries.values()])),
        **scores,
    }
    coords: dict[str, Any] = {"choice": list(entries), "band": band_names(found["bands"]), "layer": list(found["layers"])}
    coords["drawn"] = ("choice", [entry["drawn"] for entry in entries.values()])
    return xr.Dataset(values, coords)
