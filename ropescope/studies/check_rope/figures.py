"""Charts of a check: by which angle layers depart, from which position on, and what is claimed."""

from __future__ import annotations

from typing import Any

import altair as alt

from ...charts import COLOURS, Chart, Figure, chart_of
from ...runs import Run
from .files import ANGLES, LAYERS

Row = dict[str, Any]
DEPARTS, RIGHT = COLOURS["symbolic"], COLOURS["positional"]
SHOWN = 24
"""Layers in the chart at most: those that depart first, then the others."""


def figures(run: Run) -> dict[str, Figure]:
    """Charts by name; none where nothing was compared."""
    rows, angles = run.read(LAYERS) or [], run.read(ANGLES) or []
    if not angles:
        return {}
    wrong = {row["layer"] for row in rows if row["departures"]}
    reading = "One line per layer. Above the dashed line, angles differ by more than rounding: the mark is where they part."
    found = {"parting": Figure(_parting(angles, wrong, rows), reading)}
    layer = min(wrong, default=min(row["layer"] for row in angles))
    chosen = [row for row in angles if row["layer"] == layer]
    found["angles"] = Figure(
        _angles(chosen, layer, rows),
        "The plane of one layer that differs most: seen against claimed. On the line they agree.",
        width="half",
    )
    return found


def _parting(angles: list[Row], wrong: set[int], rows: list[Row]) -> Chart:
    layers = sorted({row["layer"] for row in angles}, key=lambda layer: (layer not in wrong, layer))[:SHOWN]
    part = "key" if any(row["part"] == "key" for row in angles) else "query"
    shown = [
        {
            "layer": row["layer"],
            "position": row["position"] + 1,
            "apart": max(row["apart"], 1e-9),
            "allowed": row["allowed"],
            "plane": row["plane"],
            "verdict": "departs" if row["layer"] in wrong else "as claimed",
        }
        for row in angles
        if row["layer"] in layers and row["part"] == part
    ]
    base = chart_of(shown).encode(x=alt.X("position:Q", title="position + 1").scale(type="log"))
    colour = alt.Color("verdict:N", title=None).scale(domain=["departs", "as claimed"], range=[DEPARTS, RIGHT])
    lines = base.mark_line(opacity=0.6, strokeWidth=1.2).encode(
        y=alt.Y("apart:Q", title="difference of angles, radians").scale(type="log", domainMax=4).axis(format=".0e"),
        color=colour,
        detail="layer:N",
        tooltip=["layer:O", "position:Q", "plane:O", "apart:Q"],
    )
    limit = base.mark_line(strokeDash=[4, 3], color="#777777", strokeWidth=1).encode(y="max(allowed):Q")
    starts = [
        {"layer": row["layer"], "position": each["position"] + 1, "said": each["said"]}
        for row in rows
        for each in row["departures"][:1]
        if each.get("position") is not None and row["layer"] in layers
    ]
    parts: list[Any] = [lines, limit]
    if starts:
        marks = chart_of(starts).mark_rule(color=DEPARTS, strokeWidth=1, opacity=0.5)
        parts.append(marks.encode(x="position:Q", tooltip=["layer:O", "position:Q", "said:N"]))
    title = f"{len(wrong)} of {len(rows)} layers depart" if wrong else "All layers turn as claimed"
    return alt.layer(*parts).properties(width=640, height=300, title=alt.TitleParams(title, anchor="start"))


def _angles(chosen: list[Row], layer: int, rows: list[Row]) -> Chart:
    text = next((each["said"] for row in rows if row["layer"] == layer for each in row["departures"]), "as claimed")
    part = "key" if any(row["part"] == "key" for row in chosen) else "query"
    points = [row for row in chosen if row["part"] == part]
    near = [row for row in points if row["position"] <= 64] or points
    ends = [min(row["claimed"] for row in near), max(row["claimed"] for row in near)]
    base = chart_of(near)
    line = chart_of([{"x": end, "y": end} for end in ends]).mark_line(color="#999999", strokeDash=[3, 3])
    marks = base.mark_point(filled=True, size=30, color=RIGHT if text == "as claimed" else DEPARTS).encode(
        x=alt.X("claimed:Q", title="claimed angle, radians"),
        y=alt.Y("seen:Q", title="seen angle, radians"),
        tooltip=["position:Q", "plane:O", "claimed:Q", "seen:Q"],
    )
    title = alt.TitleParams(f"Layer {layer}, plane {points[0]['plane']}", subtitle=text, anchor="start")
    return alt.layer(line.encode(x="x:Q", y="y:Q"), marks).properties(width=360, height=300, title=title)
