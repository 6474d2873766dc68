"""Figures of a training run: accuracy, scores and purity over steps (paper B, figures 2, 6 and 7)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from ..runs import Trajectory
from .charts import COLOURS, Chart, write_chart

KINDS = alt.Scale(domain=["positional", "symbolic"], range=[COLOURS["positional"], COLOURS["symbolic"]])


def write_figures(run: Trajectory, result: Mapping[str, Any], folder: Path) -> list[str]:
    """All figures of one run; returns the names of the files."""
    learned = ", ".join(f"{hops}-hop at {step}" for hops, step in enumerate(result["learned_at"], start=1) if step is not None)
    heading = alt.TitleParams(
        f"{run.task} task, seed {run.seed}, {result['last_step']} steps",
        subtitle=f"accuracy of 0.99 on the watched inputs first reached: {learned or 'not yet'}",
    )
    panels = (accuracy_chart(run), *purity_charts(run, result, 0.1))
    over_time = alt.vconcat(*panels).resolve_scale(color="independent").properties(title=heading)
    files = write_chart(over_time, folder, f"{run.name}-learning")
    return files + write_chart(layers_chart(run).properties(title=heading), folder, f"{run.name}-layers")


def _step() -> alt.X:
    return alt.X("step:Q", title="training step")


def accuracy_chart(run: Trajectory) -> Chart:
    """Accuracy of each hop count, with mean purity |positional - symbolic| over heads."""
    accuracy = [
        {"step": int(step), "hops": str(hop), "value": round(float(value), 5)}
        for step, row in zip(run.steps, run.measures["accuracy"], strict=True)
        for hop, value in enumerate(row, start=1)
    ]
    degree = np.abs(run.measures["positional"] - run.measures["symbolic"]).mean((1, 2))
    purity = [{"step": int(step), "value": round(float(value), 5)} for step, value in zip(run.steps, degree, strict=True)]
    lines = (
        alt.Chart(alt.InlineData(values=accuracy))
        .mark_line()
        .encode(
            x=_step(),
            y=alt.Y("value:Q", title="accuracy, purity", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("hops:N", title="accuracy, hops", scale=alt.Scale(scheme="viridis")),
            tooltip=["step:Q", "hops:N", "value:Q"],
        )
    )
    mean = alt.Chart(alt.InlineData(values=purity)).mark_line(color="black", strokeDash=[4, 3])
    return alt.layer(lines, mean.encode(x="step:Q", y="value:Q")).properties(
        width=620, height=220, title="Accuracy per hop count; dashed: mean purity of heads"
    )


def purity_charts(run: Trajectory, result: Mapping[str, Any], gamma: float) -> tuple[Chart, Chart]:
    """How many heads are pure at each step, and the step from which each of the finally pure ones stayed so."""
    p, s = run.measures["positional"], run.measures["symbolic"]
    kinds = {"positional": (p >= 1 - gamma) & (s <= gamma), "symbolic": (s >= 1 - gamma) & (p <= gamma)}
    counts = [
        {"step": int(step), "kind": kind, "heads": int(count)}
        for kind, pure in kinds.items()
        for step, count in zip(run.steps, pure.sum((1, 2)), strict=True)
    ]
    since = [
        {"step": step, "kind": kind, "head": f"L{n}"}
        for kind in kinds
        for n, step in enumerate(result["purity"][str(gamma)][f"since_{kind}"])
        if step is not None
    ]
    total = p.shape[1] * p.shape[2]
    lines = (
        alt.Chart(alt.InlineData(values=counts))
        .mark_line(interpolate="step-after")
        .encode(
            x=_step(),
            y=alt.Y("heads:Q", title="pure heads", scale=alt.Scale(domain=[0, total])),
            color=alt.Color("kind:N", title="pure", scale=KINDS),
            tooltip=["step:Q", "kind:N", "heads:Q"],
        )
        .properties(width=620, height=180, title=f"Pure heads (gamma = {gamma})")
    )
    marks = (
        alt.Chart(alt.InlineData(values=since))
        .mark_point(filled=True, size=60)
        .encode(
            x=_step().scale(domain=[0, int(run.steps[-1])]),
            y=alt.Y("head:N", title="layer", scale=alt.Scale(domain=[f"L{n}" for n in range(total)])),
            color=alt.Color("kind:N", title="pure", scale=KINDS),
            tooltip=["head:N", "kind:N", "step:Q"],
        )
        .properties(width=620, title="Step from which each head stayed pure")
    )
    return lines, marks


def layers_chart(run: Trajectory) -> Chart:
    """Both scores and the entropy of every layer over steps."""
    names = ["positional", "symbolic", "entropy"]
    values = [
        {"step": int(step), "layer": f"L{layer}", "measure": name, "value": round(float(value), 4)}
        for name in names
        for step, row in zip(run.steps, run.measures[name].mean(-1), strict=True)
        for layer, value in enumerate(row)
    ]
    colours = alt.Scale(domain=names, range=[COLOURS["positional"], COLOURS["symbolic"], COLOURS["neutral"]])
    return (
        alt.Chart(alt.InlineData(values=values))
        .mark_line()
        .encode(
            x=_step(),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("measure:N", title=None, scale=colours),
            strokeDash=alt.StrokeDash("measure:N", title=None).scale(domain=names, range=[[1, 0], [1, 0], [3, 3]]),
            facet=alt.Facet("layer:N", columns=4, title=None, sort=[f"L{n}" for n in range(run.measures[names[0]].shape[1])]),
            tooltip=["layer:N", "measure:N", "step:Q", "value:Q"],
        )
        .properties(width=200, height=120)
    )
