"""Rows for charts and tables of heads, out of the run folder of a profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...runs import Run
from .statistics import SCORES, Table

Stats = Mapping[str, Any]
"""Results of a profile: what `statistics` returns."""
LEAST_JUDGED = 0.5
"""Share of queries at which a head must be identifiable to be named."""
FILE = "head_details.json"
OLD_FILE = "closer.json"
"""Name of the file in run folders of version 0.1."""


def read_details(run: Run) -> dict[str, Any] | None:
    """Details of heads in the run folder of a profile, as rows for charts; None if it has none."""
    found: dict[str, Any] | None = run.read(FILE) or run.read(OLD_FILE)
    return found


def once(details: dict[str, Any] | None) -> dict[str, Any] | None:
    """Details with every head under one kind: in a small model one head may be the example of two kinds."""
    if not details:
        return None
    found = {}
    for name, rows in details.items():
        kinds: dict[str, str] = {}
        found[name] = [row for row in rows if kinds.setdefault(row["head"], row["kind"]) == row["kind"]]
    return found


def head_rows(stats: Stats, **more: Table) -> list[dict[str, Any]]:
    """One row per head that has scores, with its name, kind, both scores, their intervals, and `more` tables (layer, head)."""
    rows = []
    for n, layer in enumerate(stats["layer"]):
        for m, head in enumerate(stats["head"]):
            kind = stats["kind"][n][m]
            if kind == "unscored":
                continue
            row: dict[str, Any] = {"name": f"L{layer} H{head}", "layer": layer, "head": head, "kind": kind}
            for score in (*SCORES, "difference"):
                ends = [end for end in ("mean", "low", "high") if end in stats["heads"][score]]
                found = {end: stats["heads"][score].get(end, ())[n][m] for end in ends}
                row |= {score: short(found["mean"]), f"{score}_text": _interval_text(found)}
                row |= {f"{score}_{end}": short(found.get(end)) for end in ("low", "high")}
            rows.append(row | {name: short(values[n, m]) for name, values in more.items()})
    return rows


def short(value: float | None, digits: int = 4) -> float | None:
    """Rounded, so that files stay small; None for NaN, which JSON does not have."""
    return None if value is None or not np.isfinite(value) else round(float(value), digits)


def _interval_text(found: Mapping[str, float | None]) -> str:
    if found.get("low") is None:
        return f"{found['mean']:.3f}"
    return f"{found['mean']:.3f} ({found['low']:.3f} to {found['high']:.3f})"


def signed(value: float | None, digits: int = 2) -> str:
    """A number with a real minus sign; a dash for none."""
    if value is None:
        return "\N{EN DASH}"
    return f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def planes_measured(stats: Stats) -> bool:
    """Whether single planes were scored: they can be left out, and layers without rotation have none."""
    return any(value is not None for value in stats["frequency"]["positional"].get("mean", ()))
