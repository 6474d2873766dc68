"""Every head of a profile as one row, for the table of the page and for its lists of heads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runs import Run
from .rows import LEAST_JUDGED, head_rows, short
from .tables import dataset

if TYPE_CHECKING:
    import xarray as xr

COLUMNS = {
    "head": "head",
    "layer": "layer",
    "kind": "kind",
    "positional": "positional",
    "symbolic": "symbolic",
    "lead": "symbolic \N{MINUS SIGN} positional",
    "judged": "judged",
    "on_blocks": "weight on what moves",
    "looks_at": "looks at",
    "previous_token": "previous token",
    "induction": "induction",
    "sink": "first token",
    "plane": "strongest plane",
}
"""Columns of the table of all heads, with their titles; those without any value are left out."""
TOLD = {
    "positional": "Score from 0 to 1: weights stay at their places when keys change places.",
    "symbolic": "Score from 0 to 1: weights follow the keys when these change places.",
    "lead": "Above 0 the head is more symbolic, below 0 more positional.",
    "judged": "Share of queries at which it has enough weight on what moves, and weights that differ enough, to be judged.",
    "on_blocks": "Share of the head's attention on the tokens that change places.",
    "looks_at": "Where its heaviest key is most often: how far before the query, or which token.",
    "previous_token": "Mean weight on the token just before the query.",
    "induction": "Mean weight on the token after an earlier occurrence of the query's token.",
    "sink": "Mean weight on the first token of the text.",
    "plane": "The RoPE plane with its largest logits; 1 turns fastest.",
}
"""What a column means, in one sentence."""


def head_list(run: Run) -> list[dict[str, Any]]:
    """One row for each head of the model: scores and kind, and what else the run folder knows of it. None is "not measured"."""
    stats = run.results
    scored = {row["name"]: row for row in head_rows(stats)}
    scores = dataset(run) if (run.folder / "profile.nc").exists() else None
    known = _measured(scores) if scores is not None else {}
    planes = stats["frequency"].get("largest", {}).get("norm", {}).get("plane")
    judged = stats.get("judged") or {}
    rows = []
    for n, layer in enumerate(stats["layer"]):
        for m, head in enumerate(stats["head"]):
            name = f"L{layer} H{head}"
            found = scored.get(name, {})
            rows.append(
                {"head": name, "layer": layer, "number": head, "kind": stats["kind"][n][m]}
                | {score: found.get(score) for score in ("positional", "symbolic")}
                | {"lead": found.get("difference"), "judged": judged.get(name)}
                | dict.fromkeys(("on_blocks", "looks_at", "previous_token", "induction", "sink"))
                | known.get(name, {})
                | {"plane": planes[n][m] if planes else None}
            )
    return rows


def _measured(scores: xr.Dataset) -> dict[str, dict[str, Any]]:
    """Means over prompts of what was measured of each head, and where it looks."""
    from .answers import looks_at  # noqa: PLC0415

    names = [name for name in ("on_blocks", "previous_token", "induction", "sink") if name in scores]
    means = {}
    for name in names:
        values = scores[name].transpose("layer", "head", ...).values.astype(float)
        flat = values.reshape(*values.shape[:2], -1)
        count = np.isfinite(flat).sum(-1)
        means[name] = np.where(count > 0, np.nansum(flat, -1) / np.maximum(count, 1), np.nan)
    found: dict[str, dict[str, Any]] = {}
    for n, layer in enumerate(scores["layer"].values):
        for m, head in enumerate(scores["head"].values):
            row: dict[str, Any] = {name: short(table[n, m], 3) for name, table in means.items()}
            if "heaviest" in scores and bool(np.isfinite(scores["heaviest"].values.take(m, 2).take(n, 1)).any()):
                row["looks_at"] = looks_at(scores.isel(layer=n, head=m))
            found[f"L{layer} H{head}"] = row
    return found


def can_be_judged(row: dict[str, Any]) -> bool:
    """Whether a head has scores, at enough of the queries; if that was not recorded, whether it has scores."""
    return row["lead"] is not None and (row["judged"] is None or row["judged"] >= LEAST_JUDGED)


def seen_example(scores: xr.Dataset, row: dict[str, Any]) -> dict[str, Any] | None:
    """Where a head looks in one text: the tokens around its heaviest key and before the query. None if texts were not kept."""
    if "texts" not in scores.attrs or "heaviest" not in scores:
        return None
    one = scores.sel(layer=row["layer"], head=row["number"])
    places = one["heaviest"].transpose("input", ...).values.reshape(one.sizes["input"], -1)
    judged = one["identifiable"].transpose("input", ...).values.reshape(places.shape) == 1
    chosen = np.argwhere(judged & np.isfinite(places))
    if not len(chosen):
        return None
    text, query = chosen[0]
    tokens = json.loads(scores.attrs["texts"])[int(one["input"][text])]
    at = int(one["position"].values[text, query]) if "position" in one.coords else int(one["tokens"].values[text]) - 1
    place = int(places[text, query])
    near = {n for middle in (place, at) for n in range(middle - 6, middle + 7) if 0 <= n <= at}
    parts: list[dict[str, Any]] = []
    for n in range(at + 1):
        if n in near:
            parts.append(
                {
                    "text": tokens[n],
                    "what": "moved" if n == place else "query" if n == at else "",
                    "weight": 0.0,
                    "share": float(n == place),
                }
            )
        elif not parts or parts[-1]["what"] != "gap":
            parts.append({"text": "\N{HORIZONTAL ELLIPSIS}", "what": "gap", "weight": 0.0, "share": 0.0})
    return {"before": parts, "after": [], "moved": tokens[place].strip()}
