"""Figures of chat models on the number and letter tasks (paper B, 5C and 5D), and of several models side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ...charts import COLOURS, Chart, Figure, chart_of
from ...runs import Run
from ...tasks import TASKS
from .scores import LEAST_RIGHT, PAPER, PAPER_LENGTHS, SCREENED

TASK_COLOURS = {name: COLOURS[task.mechanism] for name, task in TASKS.items()}
PAPER_LOOKS = {
    "GPT 5.4": ("#009E73", [6, 3]),
    "GPT 5.5": ("#CC79A7", [2, 3]),
    "Claude Sonnet 3.7": ("#E69F00", [8, 2, 2, 2]),
}
TICKS = (12, 16, 24, 32, 48, 64, 100, 150, 200, 300)
UP = alt.Scale(domain=[-0.02, 1.03], nice=False)
LOST = alt.Scale(domain=[-0.25, 1.03], nice=False)


def description(config: Mapping[str, Any]) -> str:
    """How much was asked, in one line."""
    runs, hops = config["runs"], config["hops"]
    many = f"{config['samples']} questions x {runs} {'run' if runs == 1 else 'runs'} per length"
    return f"{many}; {hops} {'hop' if hops == 1 else 'hops'}"


def figures(run: Run) -> dict[str, Figure]:
    """Accuracy over length, and beside it that of other models where they were given."""
    chart = accuracy_figure(run.results["accuracy"], run.config["model"]["source"], description(run.config))
    reading = "Black: this model, with a standard deviation over runs; broken lines: paper B's models."
    shown = {"accuracy": Figure(chart, reading)}
    if run.results.get("beside"):
        reading = "Above: accuracy over length, a line for each model; below: what is lost against how symbolic late heads are."
        shown["beside"] = Figure(beside_figure(run.results["beside"]), reading)
    return shown


def accuracy_figure(accuracy: Mapping[str, Mapping[str, Any]], name: str, about: str) -> Chart:
    """Accuracy over length, a panel per task: the model measured, with a standard deviation over runs, and paper B's three."""
    panels = [_panel(task, cells, name, first=n == 0) for n, (task, cells) in enumerate(accuracy.items())]
    heading = alt.TitleParams(
        f"{name} on the number and letter tasks",
        subtitle=[about, "band: one standard deviation over runs; broken lines: means in table 3 of paper B"],
        anchor="start",
        offset=14,
    )
    return (
        alt.hconcat(*panels, spacing=30)
        .resolve_scale(color="shared", strokeDash="shared")
        .properties(title=heading)
        .configure_legend(labelLimit=400)
        .configure_title(fontSize=13, subtitleFontSize=12)
    )


def _panel(task: str, cells: Mapping[str, Any], name: str, first: bool) -> Chart:
    measured = [
        {
            "length": int(n),
            "model": name,
            "mean": cell["mean"],
            "std": cell["std"],
            "low": max(0.0, cell["mean"] - (cell["std"] or 0)),
            "high": min(1.0, cell["mean"] + (cell["std"] or 0)),
        }
        for n, cell in cells.items()
    ]
    paper = [
        {"length": n, "model": model, "mean": value}
        for model, tasks in PAPER.items()
        for n, value in zip(PAPER_LENGTHS, tasks[task], strict=True)
    ]
    lengths = [row["length"] for row in (*measured, *paper)]
    ends = [min(lengths), max(lengths)]
    across = alt.X(
        "length:Q", title="target window", axis=alt.Axis(values=[n for n in TICKS if ends[0] <= n <= ends[1]], gridOpacity=0.5)
    ).scale(type="log", domain=ends, nice=False)

    def up(field: str) -> alt.Y:
        axis = alt.Axis(values=[n / 5 for n in range(6)], format=".1f", gridOpacity=0.5)
        return alt.Y(f"{field}:Q", title="accuracy" if first else None, scale=UP, axis=axis)

    models = [name, *PAPER_LOOKS]
    look: dict[str, Any] = {"orient": "bottom", "symbolType": "stroke", "symbolStrokeWidth": 2, "symbolSize": 700}
    legend = alt.Legend(**look)
    colour = alt.Color("model:N", title=None, legend=legend).scale(
        domain=models, range=["#000000", *(shade for shade, _ in PAPER_LOOKS.values())]
    )
    dash = alt.StrokeDash("model:N", title=None, legend=legend).scale(
        domain=models, range=[[1, 0], *(dash for _, dash in PAPER_LOOKS.values())]
    )
    tooltip = ["model:N", "length:Q", alt.Tooltip("mean:Q", format=".3f")]
    ours, theirs = (chart_of(rows) for rows in (measured, paper))
    parts: list[Chart] = [
        theirs.mark_line(strokeWidth=1.5, opacity=0.9).encode(
            across, up("mean"), color=colour, strokeDash=dash, tooltip=tooltip
        ),
        ours.mark_area(opacity=0.15).encode(across, up("low"), y2="high:Q", color=colour),
        ours.mark_line(strokeWidth=2.5).encode(across, up("mean"), color=colour, strokeDash=dash),
        ours.mark_point(filled=True, size=40, opacity=1).encode(
            across, up("mean"), color=colour, tooltip=[*tooltip, alt.Tooltip("std:Q", format=".3f")]
        ),
    ]
    if task == SCREENED[0]:
        needed = [{"length": SCREENED[1], "mean": LEAST_RIGHT, "says": "screening"}]
        base = chart_of(needed)
        parts.append(base.mark_point(shape="triangle-up", size=70, color="#666666").encode(across, up("mean")))
        parts.append(base.mark_text(dy=14, color="#666666", fontStyle="italic").encode(across, up("mean"), text="says:N"))
    return alt.layer(*parts).properties(width=420, height=280, title=f"{task} task")


def beside_figure(models: Sequence[Mapping[str, Any]]) -> Chart:
    """Do models with more symbolic late heads lose less with length? Their curves, and a point per model and task."""
    names = [model["model"] for model in models]
    tasks = [task for task in TASK_COLOURS if any(task in model["with_length"] for model in models)]
    curves = [
        {"model": model["model"], "task": task, "length": int(n), "mean": cell["mean"]}
        for model in models
        for task, cells in model["accuracy"].items()
        for n, cell in cells.items()
    ]
    shades = alt.Scale(domain=names, range=["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"])
    colour = alt.Color("model:N", title=None, sort=names, scale=shades, legend=alt.Legend(orient="bottom", columns=4))
    shape = alt.Shape("model:N", title=None, sort=names, scale=alt.Scale(domain=names))
    panels: list[Chart] = []
    for number, task in enumerate(tasks):
        rows = [row for row in curves if row["task"] == task]
        across = alt.X("length:Q", title="target window", axis=alt.Axis(values=list(TICKS), gridOpacity=0.5)).scale(
            type="log", nice=False
        )
        # The whole scale: among models that hardly answer, differences are chance.
        up = alt.Y("mean:Q", title="accuracy" if number == 0 else None, axis=alt.Axis(gridOpacity=0.5), scale=UP)
        base = chart_of(rows).encode(across, up, color=colour, tooltip=["model:N", "length:Q", "mean:Q"])
        panels.append(
            (base.mark_line(strokeWidth=2) + base.mark_point(filled=True, size=50, opacity=1).encode(shape=shape)).properties(
                width=420, height=220, title=f"{task} task"
            )
        )
    points = _lost(models, tasks, colour, shape)
    heading = alt.TitleParams(
        "Do models with more symbolic late heads lose less with length?",
        subtitle="above: accuracy of each model; below: what it loses from its shortest to its longest window",
        anchor="start",
        offset=14,
    )
    return (
        alt.vconcat(alt.hconcat(*panels, spacing=24), points, spacing=24)
        .resolve_scale(color="shared", shape="shared")
        .properties(title=heading)
        .configure_title(fontSize=13, subtitleFontSize=12)
    )


def _lost(models: Sequence[Mapping[str, Any]], tasks: Sequence[str], colour: alt.Color, shape: alt.Shape) -> Chart:
    """What each model loses with length, against how symbolic its late heads are: a panel for each task."""
    lost = [
        {"model": model["model"], "task": task, "late": model["profile"]["symbolic_late"], **model["with_length"][task]}
        for model in models
        for task in tasks
        if task in model["with_length"]
    ]
    return (
        chart_of(lost)
        .mark_point(filled=True, size=110, opacity=1)
        .encode(
            alt.X("late:Q", title="median symbolic score, second half of the layers", scale=alt.Scale(domain=[0, 1])),
            alt.Y("lost:Q", title="accuracy lost, shortest to longest", axis=alt.Axis(gridOpacity=0.5), scale=LOST),
            color=colour,
            shape=shape,
            column=alt.Column(
                "task:N",
                title=None,
                sort=tasks,
                header=alt.Header(labelExpr="datum.value + ' task'", labelAnchor="start", labelFontWeight="bold"),
            ),
            tooltip=["model:N", "task:N", "late:Q", "lost:Q", "mean:Q"],
        )
        .properties(width=420, height=220)
    )
