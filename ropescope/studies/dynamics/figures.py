"""Figures of a run of dynamics: all its training runs side by side, then each of them over its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from ...charts import COLOURS, Chart, Figure, chart_of
from ...runs import Run
from ..histories.axes import WIDTH
from ..histories.figures import history_figures
from ..histories.milestones import heads_of
from .stored import stored_histories

RANGE = [COLOURS["positional"], COLOURS["symbolic"]]


def figures(run: Run) -> dict[str, Figure]:
    """Milestones of all runs, and the figures of each run, named after it, where the folder holds its history."""
    reading = "Marks on a line: when each hop count was learned, and when heads became pure for good."
    found = {"milestones": Figure(milestones_chart(run.results), reading)}
    for name, history in stored_histories(run.folder).items():
        charts = history_figures(history, run.results[name], run.config.get("layers"))
        found |= {f"{name}-{which}": figure for which, figure in charts.items()}
    return found


def milestones_chart(results: Mapping[str, Any]) -> Chart:
    """A line for each run: steps at which hop counts were learned (upper half) and heads became pure for good (lower)."""
    marks = []
    for name, found in results.items():
        marks += [
            {"run": name, "what": "hops learned", "of": f"{hops}-hop", "step": step}
            for hops, step in enumerate(found.get("learned_at", ()), start=1)
            if step is not None
        ]
        for kind in ("positional", "symbolic"):
            since = found["purity"]["0.1"].get(f"since_{kind}", ())
            marks += [
                {"run": name, "what": f"pure {kind} heads", "of": head, "step": step}
                for head, step in zip(heads_of(found), since, strict=True)
                if step is not None
            ]
    kinds = ["hops learned", "pure positional heads", "pure symbolic heads"]
    last = max((int(found["last_step"]) for found in results.values()), default=1)
    legend = alt.Legend(title=None, orient="top", symbolOpacity=1)
    return (
        chart_of(marks)
        .mark_point(filled=True, size=80, opacity=0.75)
        .encode(
            x=alt.X("step:Q", title="training step", scale=alt.Scale(domain=[0, last], nice=False)),
            y=alt.Y("run:N", title=None, sort=list(results)),
            yOffset=alt.YOffset("what:N", scale=alt.Scale(domain=kinds)),
            color=alt.Color("what:N", legend=legend).scale(domain=kinds, range=["#000000", *RANGE]),
            shape=alt.Shape("what:N", legend=legend).scale(domain=kinds, range=["diamond", "square", "triangle-up"]),
            tooltip=[alt.Tooltip("run:N"), alt.Tooltip("what:N"), alt.Tooltip("of:N"), alt.Tooltip("step:Q")],
        )
        .properties(
            width=WIDTH,
            height=alt.Step(15),
            title=alt.TitleParams(
                "When hop counts are learned and heads become pure",
                subtitle="learned: accuracy of 0.99 on watched inputs; pure: one score at least 0.9, the other at most 0.1",
                anchor="start",
            ),
        )
    )
