"""The atlas: all profiled models in one view, each with its plane of heads, its kinds by layer, and its card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...runs import Run
from ..story import View
from .model_page import facts, model_name, size_text, title
from .rows import head_rows, signed

KINDS = ("positional", "mixed", "symbolic", "unscored")
SIDE = 100
"""Units of a plane in each direction; both scores go from 0 to 1."""


def overview(runs: Sequence[Run]) -> View | None:
    """One card for each profile that has scores; None if fewer than two have."""
    cards = [card(run) for run in runs if any(run.results["kinds"][kind] for kind in KINDS[:3])]
    if len(cards) < 2:
        return None
    cards.sort(key=lambda one: (one["family"], one["size"], one["title"]))
    data = [{key: one[key] for key in ("name", "title", "points", "numbers", "depth")} for one in cards]
    return View("atlas.html", {"cards": cards, "side": SIDE, "count": len(cards)}, {"models": data})


def card(run: Run) -> dict[str, Any]:
    """What the atlas shows of one profile."""
    stats, model = run.results, run.config.get("model", {})
    heads = head_rows(stats)
    size = int(model.get("parameters") or 0)
    shares = {kind: stats["kinds"][kind] / (len(stats["layer"]) * len(stats["head"])) for kind in KINDS}
    return {
        "name": run.name,
        "title": title(run),
        "model": model_name(run),
        "family": str(model.get("family") or ""),
        "size": size,
        "size_text": size_text(size) if size else "",
        "layers": len(stats["layer"]),
        "heads": len(stats["layer"]) * len(stats["head"]),
        "counts": stats["kinds"],
        "shares": shares,
        "facts": facts(run),
        "paths": {kind: _path(heads, kind) for kind in KINDS[:3]},
        "strips": _strips(stats["kind"]),
        "points": [[round(row["positional"], 3), round(row["symbolic"], 3), KINDS.index(row["kind"])] for row in heads],
        "depth": _depth(heads, stats["layer"]),
        "numbers": _numbers(stats, size, shares),
    }


def _path(rows: Sequence[Mapping[str, Any]], kind: str) -> str:
    """Heads of a kind as dots of one path in the plane of scores."""
    places = ((SIDE * row["positional"], SIDE * (1 - row["symbolic"])) for row in rows if row["kind"] == kind)
    return "".join(f"M{x:.1f} {y:.1f}h0" for x, y in places)


def _strips(kinds: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """How many heads of each layer are of each kind, as bars on top of each other: layers from left to right."""
    wide = SIDE / len(kinds)
    bars = []
    for layer, row in enumerate(kinds):
        top = 0.0
        for kind in reversed(KINDS):  # symbolic above positional, as in the plane
            share = sum(one == kind for one in row) / len(row)
            if share:
                bars.append({"kind": kind, "x": round(layer * wide, 2), "y": round(100 * top, 2)})
                bars[-1] |= {"width": round(wide * 0.92, 2), "height": round(100 * share, 2)}
            top += share
    return bars


def _depth(rows: Sequence[Mapping[str, Any]], layers: Sequence[int]) -> list[list[float]]:
    """Depth from 0 to 1, and the median of symbolic minus positional over the heads of the layer there."""
    found = []
    for n, layer in enumerate(layers):
        leads = [float(row["difference"]) for row in rows if row["layer"] == layer]
        if leads:
            found.append([round(n / max(1, len(layers) - 1), 4), round(float(np.median(leads)), 4)])
    return found


def _numbers(stats: Mapping[str, Any], size: int, shares: Mapping[str, float]) -> list[list[Any]]:
    """Rows of the comparison: what it is, the number to subtract, if that says something, and the text."""
    found, depth = stats["correlation"], stats["depth"]

    def row(name: str, value: float | None, text: str) -> list[Any]:
        return [name, value, text if value is not None else "\N{EN DASH}"]

    halves = {
        f"{score} score, median of the {half} half of layers": (depth[score] or {}).get(half)
        for score in ("positional", "symbolic")
        for half in ("first", "second")
    }
    return [
        ["parameters", None, size_text(size) if size else "\N{EN DASH}"],
        row("layers", float(len(stats["layer"])), str(len(stats["layer"]))),
        row("heads", float(len(stats["layer"]) * len(stats["head"])), str(len(stats["layer"]) * len(stats["head"]))),
        *(row(f"mainly {kind}" if kind != "mixed" else kind, shares[kind], f"{shares[kind]:.0%}") for kind in KINDS[:3]),
        *(row(name, value, f"{value or 0:.2f}") for name, value in halves.items()),
        row(
            "correlation of both scores",
            found["pearson"]["r"] if found else None,
            signed(found["pearson"]["r"]) if found else "",
        ),
    ]
