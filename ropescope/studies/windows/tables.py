"""Headline, tables and the labelled dataset of a study of windows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...measures.intervals import LEAST_INPUTS, MeanInterval, mean_interval
from ...runs import Run
from ..study import Table
from .rankings import RANKINGS

if TYPE_CHECKING:
    import xarray as xr

LABELS = {name: ranking.label for name, ranking in RANKINGS.items()} | {"gates": "gates trained as by DuoAttention"}
RANDOM = "random"


def title(run: Run) -> str:
    """What the page calls the run."""
    return f"Which key heads of {run.config['model']} need the whole context"


def headline(run: Run) -> str:
    """How many key heads are windowed, and what that costs and saves."""
    found = run.results
    before, after = found["before"], found["after"]
    kinds = ", ".join(f"{kind} {before[name]:.2f} to {after[name]:.2f}" for name, kind in _kinds(before))
    text = f"{run.config['model']}: {len(found['windowed'])} of {found['candidates']} key heads windowed"
    text += f" ({windows_of(run)}); log probability of answers: {kinds}"
    text += f"; perplexity {perplexity(before):.2f} to {perplexity(after):.2f}"
    cache = found.get("cache")
    if cache is not None:
        text += f"; cache at {cache['tokens']:,} tokens {cache['windowed_bytes'] / cache['full_bytes']:.0%}"
    return text


def windows_of(run: Run) -> str:
    """Sinks and window, and when they begin: with the question, or when the context is read."""
    at_prefill = ", at prefill, too" if run.config["prefill"] == "windowed" else ""
    return f"{run.config['sinks']} + {run.config['window']}{at_prefill}"


def perplexity(found: Mapping[str, Any]) -> float:
    """Of prose."""
    return math.exp(min(found["prose: loss"], 50.0))


def _kinds(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, name.partition(":")[0]) for name in found if name.endswith("log probability")]


def tables(run: Run) -> list[Table | str]:
    """The split beside the whole context and random splits; with a comparison, all rankings."""
    found = run.results
    kinds = [kind for _, kind in _kinds(found["before"])]
    columns = ["windowed", *(f"{kind}: log p (right)" for kind in kinds), "perplexity"]
    total, count = found["candidates"], len(found["windowed"])
    rows = [["nothing", *_cells(found["before"], kinds)]]
    rows.append([f"{count} of {total} by {run.config['ranking']}", *_cells(found["after"], kinds)])
    rows += [[f"{count} at random", *_cells(each, kinds)] for each in found["random"]]
    parts: list[Table | str] = [headline(run), Table(columns, rows, "Held-out prompts and prose")]
    if not any(found["before"][f"{kind}: right"] for kind in kinds):
        parts.append("The model answers none of the prompts with nothing windowed: only prose can tell what a split costs.")
    bands = [f"{band['from']} to {band['to']}" for band in found["before"]["prose by position"]]
    losses = [
        [name, *(f"{math.exp(min(band['loss'], 50.0)):.2f}" for band in found[key]["prose by position"])]
        for name, key in (("nothing", "before"), (rows[1][0], "after"))
    ]
    parts.append(Table(["windowed", *bands], losses, "Perplexity of prose by position"))
    cost = found["calibration"]
    parts.append(
        f"calibration: {cost['passages']} texts, {cost['tokens']:,} tokens: as long as {cost['plain_passes']:.1f} plain passes "
        f"over one of them ({cost['seconds']:.0f} s of one core)"
    )
    cache = found.get("cache")
    if cache is not None:
        parts.append(
            f"cache at {cache['tokens']:,} tokens: {cache['full_bytes'] / 2**20:.1f} MB, windowed "
            f"{cache['windowed_bytes'] / 2**20:.1f} MB; logits differ by {cache['logit_difference']:.1e} at most"
        )
    if found["tried"]:
        parts.append(
            "tried: " + ", ".join(f"{row['share']:.0%} windowed loses {row['loss']:.3f} nats" for row in found["tried"])
        )
    return parts + _compared(run)


def _cells(found: Mapping[str, Any], kinds: list[str]) -> list[str]:
    shown = [f"{found[f'{kind}: log probability']:.2f} ({found[f'{kind}: right']:.0%})" for kind in kinds]
    return [*shown, f"{perplexity(found):.2f}"]


def _compared(run: Run) -> list[Table | str]:
    found = run.results
    correlations, areas, curves = found.get("correlations"), found.get("areas"), found["curves"]
    if areas is None:
        return []
    shares = [f"{row['share']:.0%}" for row in next(iter(curves.values()))]
    rows = []
    for name in sorted(found["scores"], key=lambda name: -areas[name]):
        each = None if correlations is None else correlations[name]
        rho = "not run" if each is None else f"{each['rho']:.2f} ({each['low']:.2f} to {each['high']:.2f})"
        rows.append([name, rho, f"{areas[name]:.2f}", behind_best(found, name), *(_answers(row) for row in curves[name])])
    drawn = [name for name in curves if name.startswith(RANDOM)]
    if drawn:
        means = [
            {key: sum(curves[name][n][key] for name in drawn) / len(drawn) for key in _numbers(curves[drawn[0]][n])}
            for n in range(len(shares))
        ]
        area = sum(areas[name] for name in drawn) / len(drawn)
        rows.append([f"{RANDOM}, mean of {len(drawn)}", "-", f"{area:.2f}", "-", *(_answers(row) for row in means)])
    columns = [
        "ranking",
        "rank correlation with damage (95 %)",
        "mean log p",
        "behind the best (95 %)",
        *(f"{share} windowed: log p (right)" for share in shares),
    ]
    return [Table(columns, rows, "Rankings, by the mean log probability of answers over shares windowed")]


def lead_of(ours: Sequence[float], theirs: Sequence[float]) -> MeanInterval | None:
    """By how much one ranking's area is above another's, over the same contexts; None for too few contexts."""
    pairs = zip(ours, theirs, strict=True)
    return mean_interval([one - other for one, other in pairs]) if len(ours) >= LEAST_INPUTS else None


def best_free(areas: Mapping[str, float]) -> str:
    """The ranking without training whose splits lose least."""
    return max((name for name in areas if name in RANKINGS), key=lambda name: areas[name])


def behind_best(found: Mapping[str, Any], name: str) -> str:
    """By how much a ranking's mean log probability is below that of the best one without training, on the same contexts."""
    best, single = best_free(found["areas"]), found.get("areas by context")
    if name == best:
        return "best"
    difference = found["areas"][best] - found["areas"][name]
    interval = None if single is None else lead_of(single[best], single[name])
    return f"{difference:.2f}" + ("" if interval is None else f" ({interval.low:.2f} to {interval.high:.2f})")


def _numbers(row: Mapping[str, Any]) -> list[str]:
    return [key for key in row if key.endswith((": log probability", ": right"))]


def _answers(row: Mapping[str, Any]) -> str:
    """Log probability and share of right answers, mean over kinds of prompts."""
    names = [name for name, _ in _kinds(row)]
    right = [name.replace("log probability", "right") for name in names]
    return f"{sum(row[name] for name in names) / len(names):.2f} ({sum(row[name] for name in right) / len(right):.0%})"


def dataset(run: Run) -> xr.Dataset:
    """Need of every key head, scores by ranking, and damage alone where it was measured (layer, key head)."""
    import numpy as np  # noqa: PLC0415
    import xarray as xr  # noqa: PLC0415

    found = run.results
    axes = ("layer", "key_head")
    windowed = {tuple(place) for place in found["windowed"]}
    values: dict[str, Any] = {"need": (axes, np.array(found["need"]))}
    values["windowed"] = (
        axes,
        np.array([[(layer, head) in windowed for head in range(found["key_heads"])] for layer in found["layers"]]),
    )
    values["score"] = (("ranking", *axes), np.array([found["scores"][name] for name in found["scores"]]))
    harm = found.get("damage")
    if harm is not None:
        values["damage"] = (axes, np.array([[np.nan if x is None else x for x in row] for row in harm]))
    coords = {"layer": list(found["layers"]), "key_head": list(range(found["key_heads"])), "ranking": list(found["scores"])}
    return xr.Dataset(values, coords)
