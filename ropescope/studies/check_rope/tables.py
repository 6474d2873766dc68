"""Headline, table, dataset and the verdict of a check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...runs import Run
from ..study import Table
from .files import LAYERS

if TYPE_CHECKING:
    import xarray as xr


def title(run: Run) -> str:
    """What was checked, in words."""
    return f"Rotation of {run.config['source']}, {run.results['what']}"


def headline(run: Run) -> str:
    """How many layers are as claimed, and the first departure."""
    found = run.results
    text = ", ".join(f"{number} {name}" for name, number in found["verdicts"].items() if number)
    start = f"rotation of {found['what']}: {found['layers']} layers, {text}"
    start += "; weights are probably permuted" if (found.get("weights") or {}).get("permuted") else ""
    first = found.get("first")
    return start if first is None else f"{start}; {_first(first)}"


def _first(first: Mapping[str, Any]) -> str:
    where = "" if first.get("position") is None else f", from position {first['position']:g} on"
    return f"layer {first['layer']}, {first['part']}: {first['said']}{where}"


def failed(run: Run) -> str:
    """One sentence if a layer departs, or nothing could be decided."""
    found = run.results
    if found["first"] is not None:
        return f"{found['verdicts']['departs']} of {found['layers']} layers depart: {_first(found['first'])}"
    if found["verdicts"]["as claimed"] == 0 and found["verdicts"]["not decided"]:
        return "nothing could be decided: give a reference, and vectors before the rotation or of equal tokens"
    return ""


def tables(run: Run) -> list[Table | str]:
    """One line a layer."""
    rows = run.read(LAYERS) or []
    columns = ["layer", "verdict", "turns", "paired", "trained", "frequencies", "positions", "left over", "angles"]
    columns.append("what departs")
    cost = run.results.get("cost")
    told = [f"the check takes {cost['check_over_plain']:.2f} plain passes over {cost['tokens']} tokens"] if cost else []
    return [Table(columns, [_line(row) for row in rows]), headline(run), *_warning(run), *told]


def _warning(run: Run) -> list[str]:
    """One sentence if weights seem to be permuted for another pairing than the runtime's; it does not change the verdict."""
    weights = run.results.get("weights")
    if not weights or not weights["permuted"]:
        return []
    layers, middle = f"{weights['leaning']['other']} of {weights['layers']}", weights["median"]
    return [
        f"warning: weights are probably permuted for the other pairing: in {layers} layers rows of queries and keys that it "
        f"would pair are alike ({middle['other']:.1f} standard errors above chance), not those that the rotation pairs "
        f"({middle['own']:.1f})"
    ]


def _line(row: Mapping[str, Any]) -> list[str]:
    text = "; ".join(f"{each['part']}: {each['said']}" for each in row["departures"]) or row["undecided"]
    if "pairing" not in row:
        return [str(row["layer"]), row["verdict"], *([""] * 7), text]
    turns = f"{row['dimensions']} of {row['head_dim']}" + (", backwards" if row["backwards"] else "")
    places = f"{row['positions'][0]:g} to {row['positions'][1]:g}"
    name = row["described"] if row["scaling"] != "none" else f"base {row['constants'].get('base', 0):g}"
    factor = f", factor {row['factor']:g}" if abs(row.get("factor", 1.0) - 1) > 1e-3 else ""
    left = f"{row['residual']:.1e}"
    start = [str(row["layer"]), row["verdict"], turns, row["pairing"], _trained(row)]
    return [*start, name + factor, places, left, row["precision"], text]


def _trained(row: Mapping[str, Any]) -> str:
    """The pairing that the weights of a layer were trained for, as far as they tell."""
    own = str(row["pairing"])
    other = {"half": "interleaved", "interleaved": "half"}.get(own, "")
    leaning = str((row.get("weights") or {}).get("leaning"))
    return {"own": own, "other": other}.get(leaning, "not told")


def dataset(run: Run) -> xr.Dataset:
    """Frequencies of every plane and layer, with their standard errors, and whether the layer is as claimed."""
    import numpy as np  # noqa: PLC0415
    import xarray as xr  # noqa: PLC0415

    rows = [row for row in run.read(LAYERS) or [] if "frequencies" in row]
    planes = max((len(row["frequencies"]) for row in rows), default=0)
    table = np.full((2, len(rows), planes), np.nan)
    for n, row in enumerate(rows):
        for at, name in enumerate(("frequencies", "errors")):
            table[at, n, : len(row[name])] = row[name]
    return xr.Dataset(
        {
            "frequency": (("layer", "plane"), table[0]),
            "error": (("layer", "plane"), table[1]),
            "as_claimed": ("layer", [row["verdict"] == "as claimed" for row in rows]),
        },
        {"layer": [row["layer"] for row in rows], "plane": list(range(planes))},
    )
