"""Figures of a run on cues: outcomes over each knob, and whether outcomes at the training length predict longer ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from ...charts import COLOURS, INSIDE, Chart, Figure, chart_of
from ...runs import Run
from .knobs import DEFAULT, KNOBS
from .tables import predicted

SHADES = ["#666666", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
OUTCOMES = {
    "preference": ["follow letters"],
    "scores": ["positional score", "symbolic score"],
    "alone": ["integers alone", "letters alone"],
    "far": ["both cues"],
}
"""Rows of the first figure, and their lines."""
LINES = {
    "follow letters": "#000000",
    "positional score": COLOURS["positional"],
    "symbolic score": COLOURS["symbolic"],
    "integers alone": COLOURS["positional"],
    "letters alone": COLOURS["symbolic"],
    "both cues": COLOURS["binding"],
}


def figures(run: Run) -> dict[str, Figure]:
    """The figures of a run, by name; the second only if a model has learned the task."""
    reading = "A column for each knob: where the black line is high, models follow letters when the two cues disagree."
    shown = {"knobs": Figure(knobs_figure(run), reading)}
    if rows := _learned(run):
        told = "A point for each model that learned the task: a rising cloud says that short inputs tell."
        shown["length"] = Figure(length_figure(run, rows), told)
    return shown


def knobs_figure(run: Run) -> Chart:
    """Cue preference, scores of heads, accuracy by one cue, and accuracy on long inputs over the values of every knob."""
    length, *_, longest = run.results["lengths"]
    titles = {
        "preference": ["cue preference", "(share by letters)"],
        "scores": ["score", "(mean over heads)"],
        "alone": ["accuracy", f"by one cue, {length} tokens"],
        "far": ["accuracy", f"at {longest} tokens"],
    }
    turned = [knob for knob in KNOBS if any(row["knob"] == knob for row in run.results["models"])]
    of_knobs = {
        knob: [values for row in run.results["models"] if row["knob"] in (DEFAULT, knob) for values in _values(row, knob)]
        for knob in turned
    }
    # No model has a preference if none answers by either cue.
    shown = [name for name in OUTCOMES if all(any(row["outcome"] == name for row in rows) for rows in of_knobs.values())]
    columns = []
    for knob, rows in of_knobs.items():
        panels = [
            _panel(
                [row for row in rows if row["outcome"] == outcome],
                titles[outcome] if knob == turned[0] else None,
                OUTCOMES[outcome],
            ).properties(width=alt.Step(52), height=110)
            for outcome in shown
        ]
        panels[0] = panels[0].properties(title=alt.TitleParams(KNOBS[knob][0], fontSize=11.5, anchor="start"))
        columns.append(alt.vconcat(*panels, spacing=10))
    heading = alt.TitleParams(
        "Which cue small models learn",
        subtitle=[
            "One knob turned at a time; every column shows the default model too. Points: seeds, lines: their means",
            "Both cues lead to the answer in training; faint points: models that have not learned the task",
        ],
        anchor="start",
    )
    return alt.hconcat(*columns, spacing=18).resolve_scale(color="shared").properties(title=heading)


def _values(row: Mapping[str, Any], knob: str) -> list[dict[str, Any]]:
    """Points of a model in the column of a knob."""
    value = KNOBS[knob][1] if row["knob"] == DEFAULT else row["value"]
    shown = {
        "follow letters": row.get("preference"),
        "positional score": np.mean(row["positional"]),
        "symbolic score": np.mean(row["symbolic"]),
        "integers alone": np.mean(row["integers_alone"]),
        "letters alone": np.mean(row["letters_alone"]),
        "both cues": np.mean(row["accuracy"][-1]),
    }
    at = {"number": value, "value": label(knob, value), "seed": row["seed"], "learned": row["learned"]}
    return [
        {**at, "outcome": outcome, "line": line, "is": float(shown[line])}
        for outcome, lines in OUTCOMES.items()
        for line in lines
        if shown[line] is not None
    ]


def label(knob: str, value: float) -> str:
    """A value of a knob as it is written under its axis."""
    if knob == "log n":
        return f"base {value:g}" if value else "none"
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def _panel(rows: Sequence[Mapping[str, Any]], title: list[str] | None, lines: Sequence[str]) -> Chart:
    order = [row["value"] for row in sorted(rows, key=lambda row: row["number"])]
    bottom = "both cues" in lines
    axis = alt.Axis(labelAngle=0, labels=bottom, ticks=bottom, title=None)
    x = alt.X("value:N", sort=list(dict.fromkeys(order)), axis=axis)
    y: dict[str, Any] = {"scale": INSIDE, "axis": alt.Axis(values=[0, 0.5, 1], format=".1f"), "title": title}
    colour = alt.Color("line:N", title=None).scale(domain=list(LINES), range=list(LINES.values()))
    base = chart_of(rows)
    tooltip = ["line:N", "value:N", "seed:Q", alt.Tooltip("is:Q", format=".3f")]
    return alt.layer(
        base.mark_line(strokeWidth=1.5).encode(x, alt.Y("mean(is):Q", **y), color=colour),
        base.mark_point(filled=True, size=34).encode(
            x,
            alt.Y("is:Q", **y),
            color=colour,
            opacity=alt.condition("datum.learned", alt.value(0.9), alt.value(0.25)),
            tooltip=tooltip,
        ),
    )


def _learned(run: Run) -> list[dict[str, Any]]:
    """Points of the second figure: models that have learned the task and answer by a cue."""
    return [
        {
            "lead": row["lead"],
            "preference": row["preference"],
            "far": float(np.mean(row["accuracy"][-1])),
            "knob": row["knob"],
            "setting": row["setting"],
            "seed": row["seed"],
        }
        for row in run.results["models"]
        if row["learned"] and row.get("preference") is not None
    ]


def length_figure(run: Run, rows: Sequence[Mapping[str, Any]]) -> Chart:
    """Accuracy at the longest length over the lead of symbolic scores and over cue preference, for every model."""
    longest = run.results["lengths"][-1]
    shades = {
        knob: shade for knob, shade in zip((DEFAULT, *KNOBS), SHADES, strict=True) if knob in {row["knob"] for row in rows}
    }
    colour = alt.Color("knob:N", title="turned").scale(domain=list(shades), range=list(shades.values()))
    shape = alt.Shape("knob:N", title="turned").scale(domain=list(shades))
    tooltip = ["setting:N", "seed:Q", *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("lead", "preference", "far"))]

    def panel(name: str, title: str, first: bool) -> Chart:
        scale = alt.Scale(zero=False, padding=12)
        up = alt.Y("far:Q", title=f"accuracy at {longest} tokens" if first else None, scale=INSIDE)
        points = chart_of(rows).mark_point(filled=True, size=60, opacity=0.85)
        across = alt.X(f"{name}:Q", title=title, scale=scale)
        return points.encode(across, up, color=colour, shape=shape, tooltip=tooltip).properties(width=330, height=260)

    panels = (
        panel("lead", "symbolic minus positional score, mean over heads", True),
        panel("preference", "cue preference: share of answers that follow letters", False),
    )
    text = predicted(run).split(": ")
    heading = alt.TitleParams("Do short inputs predict long ones?", subtitle=[f"{text[0]}:", text[1]], anchor="start")
    return alt.hconcat(*panels, spacing=24).properties(title=heading)
