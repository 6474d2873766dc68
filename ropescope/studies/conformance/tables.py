"""Headline, table and the labelled dataset of a conformance run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runs import Run
from ..study import Table

if TYPE_CHECKING:
    import xarray as xr

SHOWN = ("family", "verdict", "layers", "rotation", "logit_error", "weight_error", "reason")


def headline(run: Run) -> str:
    """How many families have each verdict."""
    return ", ".join(f"{number} {verdict}" for verdict, number in run.results["verdicts"].items())


def tables(run: Run) -> list[Table | str]:
    """A row for each family."""
    rows = run.read("families.json") or []
    lines = [[str(row.get(key, "")) for key in SHOWN] for row in rows]
    parts: list[Table | str] = [Table([key.replace("_", " ") for key in SHOWN], lines)]
    if (found := run.results.get("changes")) is not None:
        columns = ["family", "what", "before", "after"]
        changed = [[each[key] for key in columns] for each in found]
        version = run.results["against"].get("transformers")
        since = f"transformers {version}" if version else "the run given"
        parts += [Table(columns, changed, f"Changes since {since}")] if changed else [f"no change since {since}"]
    return [*parts, headline(run)]


def dataset(run: Run) -> xr.Dataset:
    """Verdict, rotation and errors of every family."""
    import xarray as xr  # noqa: PLC0415

    rows = run.read("families.json") or []
    names = {key: ("family", ["" if row[key] is None else str(row[key]) for row in rows]) for key in ("verdict", "rotation")}
    errors = {
        key: ("family", [float("nan") if row[key] is None else row[key] for row in rows])
        for key in ("logit_error", "weight_error")
    }
    return xr.Dataset({**names, **errors}, coords={"family": [row["family"] for row in rows]})
