"""Figures of a training run: accuracy, scores and purity over steps (paper B, figures 2, 6 and 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from ..measures.purity import POSITIONAL, SYMBOLIC, purity
from ..runs import Trajectory
from .charts import COLOURS, Chart, write_chart

WIDTH, GAP = 640, 48
KINDS = alt.Scale(domain=["positional", "symbolic"], range=[COLOURS["positional"], COLOURS["symbolic"]])


def write_figures(run: Trajectory, result: Mapping[str, Any], folder: Path, layers: Sequence[int] | None = None) -> list[str]:
    """All figures of one run; returns the names of the files. `layers` are those whose scores stand under the accuracy."""
    learned = ", ".join(f"{hops}-hop at {step}" for hops, step in enumerate(result["learned_at"], start=1) if step is not None)
    heading = alt.TitleParams(
        f"{run.task} task, seed {run.seed}, {result['last_step']} steps",
        subtitle=f"accuracy of 0.99 on the watched inputs first reached: {learned or 'not yet'}",
    )
    chosen = telling_layers(result) if layers is None else layers
    panels = (accuracy_chart(run), scores_chart(run, chosen), *purity_charts(run, result))
    over_time = (
        alt.vconcat(*panels)
        .resolve_scale(color="independent", strokeDash="independent", shape="independent")
        .properties(title=heading)
    )
    files = write_chart(over_time, folder, f"{run.name}-learning")
    return files + write_chart(layers_chart(run).properties(title=heading), folder, f"{run.name}-layers")


def telling_layers(result: Mapping[str, Any]) -> list[int]:
    """Layer 0 and, of each kind, the first and the last that became pure for good; then others up to four."""
    last, chosen = result["purity"]["0.1"], {0}
    for kind in ("positional", "symbolic"):
        since = sorted((step, layer) for layer, step in enumerate(last[f"since_{kind}"]) if step is not None)
        chosen |= {layer for _, layer in since[:1] + since[-1:]}
    total = len(last["since_positional"])
    return sorted([*sorted(chosen), *sorted(set(range(total)) - chosen)][: min(total, max(4, len(chosen)))])


def _step(run: Trajectory) -> alt.X:
    return alt.X("step:Q", title="training step", scale=alt.Scale(domain=[0, int(run.steps[-1])], nice=False))


def accuracy_chart(run: Trajectory) -> Chart:
    """Accuracy of each hop count, with mean purity |positional - symbolic| over heads."""
    accuracy = [
        {"step": int(step), "hops": str(hop), "value": round(float(value), 5)}
        for step, row in zip(run.steps, run.measures["accuracy"], strict=True)
        for hop, value in enumerate(row, start=1)
    ]
    degree = np.abs(run.measures["positional"] - run.measures["symbolic"]).mean((1, 2))
    mean_purity = [{"step": int(step), "value": round(float(value), 5)} for step, value in zip(run.steps, degree, strict=True)]
    lines = (
        alt.Chart(alt.InlineData(values=accuracy))
        .mark_line()
        .encode(
            x=_step(run),
            y=alt.Y("value:Q", title="accuracy, purity", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("hops:N", title="accuracy, hops", scale=alt.Scale(scheme="viridis")),
            tooltip=["step:Q", "hops:N", "value:Q"],
        )
    )
    mean = alt.Chart(alt.InlineData(values=mean_purity)).mark_line(color="black", strokeDash=[4, 3])
    return alt.layer(lines, mean.encode(x=_step(run), y="value:Q")).properties(
        width=WIDTH, height=220, title="Accuracy per hop count; dashed: mean purity of heads"
    )


def purity_charts(run: Trajectory, result: Mapping[str, Any]) -> tuple[Chart, Chart]:
    """How many heads are pure at each step, and the step from which each of the finally pure ones stayed so."""
    p, s = run.measures["positional"], run.measures["symbolic"]
    kinds = {"positional": POSITIONAL, "symbolic": SYMBOLIC}
    gammas = list(result["purity"])
    pure = {gamma: purity(p, s, float(gamma)) for gamma in gammas}
    counts = [
        {"step": int(step), "kind": name, "gamma": gamma, "heads": int(count)}
        for name, kind in kinds.items()
        for gamma in gammas
        for step, count in zip(run.steps, (pure[gamma] == kind).sum((1, 2)), strict=True)
    ]
    since = [
        {"step": step, "kind": name, "gamma": gamma, "head": f"L{n}"}
        for name in kinds
        for gamma in gammas
        for n, step in enumerate(result["purity"][gamma][f"since_{name}"])
        if step is not None
    ]
    total = p.shape[1] * p.shape[2]
    lines = (
        alt.Chart(alt.InlineData(values=counts))
        .mark_line(interpolate="step-after")
        .encode(
            x=_step(run),
            y=alt.Y("heads:Q", title="pure heads", scale=alt.Scale(domain=[0, total])),
            color=alt.Color("kind:N", title="pure", scale=KINDS),
            strokeDash=alt.StrokeDash("gamma:N", title="up to gamma", sort=gammas).scale(range=[[1, 0], [2, 2]]),
            tooltip=["step:Q", "kind:N", "gamma:N", "heads:Q"],
        )
        .properties(width=WIDTH, height=180, title="Pure heads: one score at least 1 - gamma, the other at most gamma")
    )
    marks = (
        alt.Chart(alt.InlineData(values=since))
        .mark_point(filled=True, size=60)
        .encode(
            x=_step(run),
            y=alt.Y("head:N", title="layer", scale=alt.Scale(domain=[f"L{n}" for n in range(total)])),
            color=alt.Color("kind:N", title="pure", scale=KINDS),
            shape=alt.Shape("gamma:N", title="up to gamma", sort=gammas),
            tooltip=["head:N", "kind:N", "gamma:N", "step:Q"],
        )
        .properties(width=WIDTH, title="Step from which each head stayed pure")
    )
    return lines, marks


def scores_chart(run: Trajectory, layers: Sequence[int]) -> Chart:
    """Both scores and the entropy of chosen layers, side by side."""
    total = run.measures["positional"].shape[1]
    if wrong := [n for n in layers if not 0 <= n < total]:
        raise ValueError(f"layer {wrong[0]} is not one of the {total} layers of {run.name}: they count from 0 to {total - 1}")
    width = (WIDTH - GAP * (len(layers) - 1)) // len(layers)
    parts = [_layer_lines(run, n).properties(width=width, height=120, title=f"layer {n}") for n in layers]
    return alt.hconcat(*parts, spacing=GAP // 4)


def layers_chart(run: Trajectory) -> Chart:
    """Both scores and the entropy of every layer over steps."""
    layers = range(run.measures["positional"].shape[1])
    parts = [_layer_lines(run, n).properties(width=200, height=120, title=f"layer {n}") for n in layers]
    return alt.concat(*parts, columns=4)


def _layer_lines(run: Trajectory, layer: int) -> Chart:
    names = ["positional", "symbolic", "entropy"]
    values = [
        {"step": int(step), "layer": f"L{layer}", "measure": name, "value": round(float(value), 4)}
        for name in names
        for step, value in zip(run.steps, run.measures[name][:, layer].mean(-1), strict=True)
    ]
    colours = alt.Scale(domain=names, range=[COLOURS["positional"], COLOURS["symbolic"], COLOURS["neutral"]])
    return (
        alt.Chart(alt.InlineData(values=values))
        .mark_line()
        .encode(
            x=_step(run).title(None).axis(tickCount=3),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("measure:N", title=None, scale=colours),
            strokeDash=alt.StrokeDash("measure:N", title=None).scale(domain=names, range=[[1, 0], [1, 0], [3, 3]]),
            tooltip=["layer:N", "measure:N", "step:Q", "value:Q"],
        )
    )
