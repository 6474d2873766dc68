"""Headline, figure, table and the labelled dataset of a demo run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...charts import Figure, plane_chart, share_chart
from ...runs import Run
from ..study import Table

if TYPE_CHECKING:
    import xarray as xr

SHOWN = ("positional", "symbolic", "symbol_share", "position_share", "binding_share", "entropy")


def _heads(run: Run) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] | None = run.read("heads.json")
    if found is None:
        raise ValueError(f"{run.folder} holds no heads.json: run the study again")
    return found


def headline(run: Run) -> str:
    """How many heads were scored, and on what."""
    return f"{len(run.results)} heads, hand-made, untrained and trained, on {run.config['inputs']} inputs each"


def figures(run: Run) -> dict[str, Figure]:
    """Heads in the plane of both scores, and what their logits depend on."""
    import altair as alt  # noqa: PLC0415

    rows, asked = _heads(run), run.config
    about = f"means over {asked['inputs']} inputs of 17 tokens with 95 % intervals; tau {asked['tau']:g}"
    title = alt.TitleParams(
        "ropescope demo: hand-made heads, and GPT-J untrained and trained on two tasks",
        subtitle=f"{about}, seed {asked['seed']}",
    )
    chart = alt.hconcat(plane_chart(rows, "hand-made"), share_chart(rows)).properties(title=title)
    chart = chart.resolve_scale(color="independent", shape="independent")
    return {"index": Figure(chart, "Pure positional heads are at the bottom right, pure symbolic ones at the top left.")}


def tables(run: Run) -> list[Table | str]:
    """A row for each head."""
    lines = [[f"{row['head']} ({row['group']})", *(f"{row[key]:.3f}" for key in SHOWN)] for row in _heads(run)]
    return [Table(["head", *(key.replace("_", " ") for key in SHOWN)], lines)]


def dataset(run: Run) -> xr.Dataset:
    """Every measure of every head."""
    import xarray as xr  # noqa: PLC0415

    rows = _heads(run)
    values = {key: ("head", [row[key] for row in rows]) for key in SHOWN}
    return xr.Dataset(values, coords={"head": [row["head"] for row in rows], "group": ("head", [row["group"] for row in rows])})
