"""The figure of accuracy by hop count over length: every model, and the paper's points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ...charts import COLOURS, Chart, Figure, chart_of
from ...runs import Run
from .claims import PAPER
from .figures import PAPER_NAME
from .tables_hops import MIXES

WIDTH, HEIGHT = 250, 190
TICKS = (17, 100, 1000, 5000)
SHADES = ("#0072B2", "#D55E00", "#CC79A7", "#666666", "#56B4E9", "#E69F00")
DASHES = ([1, 0], [5, 3])
STROKES: dict[str, Any] = {"symbolType": "stroke", "symbolStrokeWidth": 2, "symbolSize": 300}


def figures(run: Run) -> dict[str, Figure]:
    """One figure for each task."""
    reading = (
        "Each panel is a mix of hop counts, each line a model with its checkpoint and fillers; the diamonds are the paper's "
        "points. In which panel do they lie on the lines?"
    )
    tasks = dict.fromkeys(row["task"] for row in run.results["curves"])
    lengths = run.results["lengths"]
    return {
        task: Figure(_figure(task, lengths, [row for row in run.results["curves"] if row["task"] == task]), reading)
        for task in tasks
    }


def _figure(task: str, lengths: Sequence[int], rows: Sequence[Mapping[str, Any]]) -> Chart:
    recipes = list(dict.fromkeys(_recipe(row) for row in rows))
    fillers = list(dict.fromkeys(row["fillers"] for row in rows))
    colour = alt.Color("recipe:N", title="recipe", legend=alt.Legend(**STROKES)).scale(
        domain=recipes, range=[SHADES[n % len(SHADES)] for n in range(len(recipes))]
    )
    dash = alt.StrokeDash("fillers:N", title="fillers", legend=alt.Legend(**STROKES, symbolStrokeColor="black")).scale(
        domain=fillers, range=DASHES[: len(fillers)]
    )
    panels = [_panel(task, name, lengths, rows, colour, dash) for name in MIXES]
    grid = alt.vconcat(*(alt.hconcat(*panels[n : n + 3], spacing=16) for n in range(0, len(panels), 3)), spacing=20)
    heading = alt.TitleParams(f"Accuracy over length by hop count, {task} task", anchor="start")
    return grid.resolve_scale(color="shared", strokeDash="shared", shape="shared").properties(title=heading)


def _recipe(row: Mapping[str, Any]) -> str:
    return f"{row['recipe']}, {row['checkpoint']} checkpoint"


def _panel(
    task: str, mix: str, lengths: Sequence[int], rows: Sequence[Mapping[str, Any]], colour: alt.Color, dash: alt.StrokeDash
) -> Chart:
    """Accuracy of one mix of hop counts over length."""
    values = [
        {
            "length": n,
            "accuracy": value,
            "recipe": _recipe(row),
            "fillers": row["fillers"],
            "curve": f"{row['name']}, {row['checkpoint']} checkpoint, fillers: {row['fillers']}",
        }
        for row in rows
        for n, value in zip(lengths, row["mixes"][mix]["mean"], strict=True)
    ]
    axis = alt.Axis(values=[n for n in TICKS if lengths[0] <= n <= lengths[-1]], format=",d", gridOpacity=0.5)
    scale = alt.Scale(type="log", domain=[lengths[0], max(lengths[-1], lengths[0] + 1)], nice=False)
    x = alt.X("length:Q", title="tokens", axis=axis, scale=scale)
    y = alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(domain=[0, 1.03], nice=False)).axis(values=[0, 0.5, 1])
    tooltip = [alt.Tooltip("curve:N"), alt.Tooltip("length:Q", format=",d"), alt.Tooltip("accuracy:Q", format=".3f")]
    lines = (
        chart_of(values)
        .mark_line(strokeWidth=1.5, opacity=0.8, point=alt.OverlayMarkDef(size=14))
        .encode(x, y, detail="curve:N", color=colour, strokeDash=dash, tooltip=tooltip)
    )
    points = [
        {"length": n, "accuracy": value, "curve": PAPER_NAME}
        for n, value in PAPER[task].items()
        if lengths[0] <= n <= lengths[-1]
    ]
    theirs = (
        chart_of(points)
        .mark_point(size=90, color=COLOURS["binding"], strokeWidth=2)
        .encode(x, y, tooltip=tooltip, shape=alt.Shape("curve:N", title=None).scale(domain=[PAPER_NAME], range=["diamond"]))
    )
    return alt.layer(lines, theirs).properties(width=WIDTH, height=HEIGHT, title=mix)
