"""Headline, tables and the labelled dataset of a comparison."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING, Any

from ...runs import Run
from ..study import Table
from .run import FILE, KINDS

if TYPE_CHECKING:
    import xarray as xr

SHOWN = 10
"""Heads in the table of largest changes."""


def title(run: Run) -> str:
    """What the page calls the run: both profiles."""
    return f"{run.results['names']['a']} beside {run.results['names']['b']}"


def headline(run: Run) -> str:
    """How many heads keep their kind, and how many changed beyond chance."""
    found, names = run.results, run.results["names"]
    start = f"{names['a']} beside {names['b']}: "
    if not found["same_heads"]:
        return start + "different heads, compared by depth"
    kept = f"{found['kept']} of {found['heads']} heads keep their kind"
    if found.get("changed") is None:
        return f"{start}{kept}; too few prompts to test changes"
    changed = f"{found['changed']} changed beyond chance (p < 0.05 among all heads)"
    return f"{start}{kept}; {changed}, the largest by {found['largest_change']:.2g}"


def read_heads(run: Run) -> list[dict[str, Any]]:
    """One row per head; NaN as None. No rows if the models have different heads."""
    path = run.folder / FILE
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = []
    for row in csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))):
        numbers = {name: _number(text) for name, text in row.items() if not name.startswith("kind")}
        layer, head = int(row["layer"]), int(row["head"])
        kinds = {name: row[name] for name in ("kind_a", "kind_b")}
        rows.append(numbers | kinds | {"layer": layer, "head": head, "name": f"L{layer} H{head}"})
    return rows


def _number(text: str) -> float | None:
    value = float(text)
    return None if math.isnan(value) else value


def tables(run: Run) -> list[Table | str]:
    """How kinds changed, and the heads that changed most."""
    found, names = run.results, run.results["names"]
    parts: list[Table | str] = [headline(run)]
    if not found["same_heads"]:
        for name, depth in zip("ab", found["depth"], strict=True):
            rows = [[third, *(f"{shares[kind]:.0%}" for kind in KINDS)] for third, shares in depth.items()]
            parts.append(Table(["layers", *KINDS], rows, f"Share of heads of each kind, {names[name]}"))
        return parts
    moved = [[before, *(str(found["moves"][before][after]) for after in KINDS)] for before in KINDS]
    parts.append(Table([f"{names['a']} \N{RIGHTWARDS ARROW} {names['b']}", *KINDS], moved, "Heads by kind, before and after"))
    most = sorted(read_heads(run), key=lambda row: -abs(row["change"] or 0))[:SHOWN]
    shown = [[row["name"], *map(_text, (row["lead_a"], row["lead_b"])), _change(row), _text(row["p_value"], 4)] for row in most]
    parts.append(
        Table(["head", "lead in a", "lead in b", "change (95 %)", "p"], shown, "Largest changes of symbolic minus positional")
    )
    parts.append("prompts are compared one by one" if found["paired"] else "the two sets of prompts are compared as a whole")
    return parts


def _text(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _change(row: dict[str, Any]) -> str:
    if row["low"] is None:
        return _text(row["change"])
    return f"{_text(row['change'])} ({_text(row['low'])} to {_text(row['high'])})"


def dataset(run: Run) -> xr.Dataset:
    """Leads of every head in both profiles, changes, intervals and p-values (layer, head)."""
    import numpy as np  # noqa: PLC0415
    import xarray as xr  # noqa: PLC0415

    rows = read_heads(run)
    if not rows:
        raise ValueError(f"{run.folder} compares models with different heads: there is no table of heads")
    layers, heads = (sorted({row[name] for row in rows}) for name in ("layer", "head"))
    names = ("lead_a", "lead_b", "change", "low", "high", "p_value")
    values = {name: np.array([row[name] for row in rows], dtype=float).reshape(len(layers), len(heads)) for name in names}
    return xr.Dataset({name: (("layer", "head"), each) for name, each in values.items()}, {"layer": layers, "head": heads})
