"""The figure of a run on sizes: outcomes over each size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ...charts import COLOURS, Chart, Figure, chart_of
from ...runs import Run
from .knobs import DEFAULT, KNOBS
from .tables import OUTCOMES

LINES = {"number": COLOURS["positional"], "letter": COLOURS["symbolic"]}
LOGARITHMIC = ("learned_at", "breaks_at")


def figures(run: Run) -> dict[str, Figure]:
    """The figure of a run, unless no size was changed."""
    turned = [knob for knob in KNOBS if any(row["knob"] == knob for row in run.results["models"])]
    reading = (
        "A column for each size: a flat line says that it does not matter. A missing point: never learned, or never broken."
    )
    return {"sizes": Figure(sizes_figure(run, turned), reading)} if turned else {}


def sizes_figure(run: Run, turned: Sequence[str]) -> Chart:
    """Step of learning, pure heads and breaking length over the values of every size."""
    columns = []
    shown = [name for name in OUTCOMES if any(row.get(name) is not None for row in run.results["models"])]
    for knob in turned:
        rows = [point for row in run.results["models"] if row["knob"] in (DEFAULT, knob) for point in _points(row, knob)]
        panels = [_panel(rows, name, knob == turned[0], name == shown[-1]) for name in shown]
        panels[0] = panels[0].properties(title=alt.TitleParams(KNOBS[knob][0], fontSize=11.5, anchor="start"))
        columns.append(alt.vconcat(*panels, spacing=10))
    heading = alt.TitleParams(
        "What the sizes of the tasks move",
        subtitle=[
            "One size changed at a time; every column shows the default model too. Points: seeds, lines: their means",
            "Faint points: models that have not learned the task",
        ],
        anchor="start",
    )
    return alt.hconcat(*columns, spacing=18).resolve_scale(color="shared").properties(title=heading)


def _points(row: Mapping[str, Any], knob: str) -> list[dict[str, Any]]:
    value = KNOBS[knob][1] if row["knob"] == DEFAULT else row["value"]
    at = {"value": value, **{name: row[name] for name in ("task", "seed", "setting", "learned")}}
    return [{**at, "outcome": name, "is": float(row[name])} for name in OUTCOMES if row.get(name) is not None]


def _panel(rows: Sequence[Mapping[str, Any]], outcome: str, first: bool, last: bool) -> Chart:
    axis = alt.Axis(labelAngle=0, labels=last, ticks=last, title=None)
    scale = alt.Scale(type="log", nice=False, padding=8) if outcome in LOGARITHMIC else alt.Scale(zero=True, padding=8)
    title = [OUTCOMES[outcome], *(["(tokens)"] if outcome == "breaks_at" else [])] if first else None
    colour = alt.Color("task:N", title="task").scale(domain=list(LINES), range=list(LINES.values()))
    base = chart_of([row for row in rows if row["outcome"] == outcome])
    tooltip = ["setting:N", "seed:Q", alt.Tooltip("is:Q", title=OUTCOMES[outcome], format=",.0f")]
    values = sorted({row["value"] for row in rows})  # of all outcomes, so that panels stand under each other
    x = alt.X("value:O", axis=axis, scale=alt.Scale(domain=values))
    each, mean = (alt.Y(field, scale=scale, title=title) for field in ("is:Q", "mean(is):Q"))
    faint = alt.condition("datum.learned", alt.value(0.9), alt.value(0.25))
    points = base.mark_point(filled=True, size=34).encode(x, each, color=colour, opacity=faint, tooltip=tooltip)
    lines = base.mark_line(strokeWidth=1.5).encode(x, mean, color=colour)
    return alt.layer(lines, points).properties(width=alt.Step(46), height=110)
