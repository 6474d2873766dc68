"""Accuracy of forced choice over length, a row of panels for each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ...charts import COLOURS, INSIDE, TICKS, Chart, Figure, chart_of
from ...runs import Run
from ...tasks import TASKS
from .tables import name_of

WINDOWS = (12, 16, 24, 32, 48, 64, 100, 150, 200, 300)
LINES = {"mean": "forced choice", "by_place": "guess by place", "window": "chance, 1 / window"}
DASHES = [[1, 0], [5, 3], [1, 3]]
FORMS = {"words": "in words", "python": "as Python"}


def figures(run: Run) -> dict[str, Figure]:
    """Accuracy over length of this model, and of those beside it."""
    own = {"model": name_of(run), "accuracy": run.results["accuracy"]}
    models = run.results.get("beside") or [own]
    count = run.config["samples"]
    about = f"{count} question{'' if count == 1 else 's'} x {run.config['runs']} draws per point"
    reading = (
        "Solid: the item of the window with the highest log probability is the answer; broken: the places chosen for other "
        "questions, taken as the answer; dotted: 1 / window."
    )
    return {"accuracy": Figure(accuracy_figure(models, about if len(models) == 1 else ""), reading)}


def accuracy_figure(models: Sequence[Mapping[str, Any]], about: str) -> Chart:
    """A row of panels for each model, a panel for each form: number and letter over length."""
    rows = [row for model in models for row in _rows(model)]
    ends = [min((row["length"] for row in rows), default=12), max((row["length"] for row in rows), default=300)]
    forms = list(dict.fromkeys(row["form"] for row in rows))
    names = [model["model"] for model in models]
    panels = [
        alt.hconcat(*(_panel(rows, name, form, ends, name == names[-1], form == forms[0]) for form in forms), spacing=22)
        for name in names
    ]
    title = alt.TitleParams("Number and letter, answered by choosing among the items", subtitle=about or " ", anchor="start")
    return alt.vconcat(*panels, spacing=14).resolve_scale(color="shared", strokeDash="shared").properties(title=title)


def _rows(model: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for form, tasks in model["accuracy"].items():
        for task, cells in tasks.items():
            for n, cell in cells.items():
                where = {"model": model["model"], "form": form, "task": task, "length": int(n)}
                values = {"mean": cell["mean"], "by_place": cell.get("by_place"), "window": 1 / int(n)}
                rows += [{**where, "line": LINES[name], "value": x} for name, x in values.items() if x is not None]
    return rows


def _panel(rows: Sequence[Mapping[str, Any]], model: str, form: str, ends: Sequence[int], last: bool, first: bool) -> Chart:
    own = [row for row in rows if row["model"] == model and row["form"] == form]
    ticks = [n for n in WINDOWS if ends[0] <= n <= ends[1]]
    across = alt.X(
        "length:Q", title="target window" if last else None, axis=alt.Axis(values=ticks, gridOpacity=0.5, labelOverlap=True)
    ).scale(type="log", domain=ends, nice=False)
    up = alt.Y("value:Q", title="accuracy" if first else None, scale=INSIDE, axis=TICKS)
    tasks = list(TASKS)
    colour = alt.Color("task:N", title="task", sort=tasks).scale(
        domain=tasks, range=[COLOURS[TASKS[task].mechanism] for task in tasks]
    )
    dash = alt.StrokeDash("line:N", title=None, sort=list(LINES.values())).scale(domain=list(LINES.values()), range=DASHES)
    tooltip = ["model:N", "form:N", "task:N", "line:N", "length:Q", alt.Tooltip("value:Q", format=".3f")]
    chosen = chart_of([row for row in own if row["line"] == LINES["mean"]])
    lines = chart_of(own).mark_line(strokeWidth=2).encode(across, up, color=colour, strokeDash=dash, tooltip=tooltip)
    points = chosen.mark_point(filled=True, size=36, opacity=1).encode(across, up, color=colour, tooltip=tooltip)
    return (lines + points).properties(width=330, height=170, title=f"{model}, {FORMS.get(form, form)}")
