"""Charts of a training run with one head per layer: accuracy, scores and purity over steps (paper B, figures 2, 6 and 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ...charts import COLOURS, Chart, chart_of
from ...measures.purity import POSITIONAL, SYMBOLIC, purity
from ...runs import Trajectory
from .axes import STEPS, WIDTH, number, step_axis
from .milestones import check_layers, heads_of, mean_purity

GAP = 48
KINDS = alt.Scale(domain=["positional", "symbolic"], range=[COLOURS["positional"], COLOURS["symbolic"]])


def telling_layers(result: Mapping[str, Any]) -> list[int]:
    """Layer 0 and, of each kind, the first and the last that became pure for good; then others up to four."""
    last, chosen = result["purity"]["0.1"], {0}
    for kind in ("positional", "symbolic"):
        since = sorted((step, layer) for layer, step in enumerate(last.get(f"since_{kind}", ())) if step is not None)
        chosen |= {layer for _, layer in since[:1] + since[-1:]}
    total = len(last.get("since_positional", ()))
    return sorted([*sorted(chosen), *sorted(set(range(total)) - chosen)][: min(total, max(4, len(chosen)))])


def accuracy_chart(run: Trajectory, below: str | None = None) -> Chart:
    """Accuracy of each hop count, with mean purity |positional - symbolic| over heads; `below` names the axis of steps."""
    accuracy = [
        {"step": int(step), "hops": str(hop), "value": number(value, 5)}
        for step, row in zip(run.steps, run.measures["accuracy"], strict=True)
        for hop, value in enumerate(row, start=1)
    ]
    degree = [{"step": int(step), "value": number(value, 5)} for step, value in zip(run.steps, mean_purity(run), strict=True)]
    lines = (
        chart_of(accuracy)
        .mark_line()
        .encode(
            x=step_axis(run, below),
            y=alt.Y("value:Q", title="accuracy, purity", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("hops:N", title="hops", scale=alt.Scale(scheme="viridis")),
            tooltip=[alt.Tooltip("step:Q"), alt.Tooltip("hops:N"), alt.Tooltip("value:Q")],
        )
    )
    mean = chart_of(degree).mark_line(color="black", strokeDash=[4, 3])
    return alt.layer(lines, mean.encode(x=step_axis(run, below), y="value:Q")).properties(
        width=WIDTH, height=220, title="Accuracy per hop count; dashed: mean purity of heads"
    )


def purity_charts(run: Trajectory, result: Mapping[str, Any], below: str | None = None) -> tuple[Chart, Chart]:
    """How many heads are pure at each step, and the step from which each of the finally pure ones stayed so.

    The axis of steps has a name in the second chart, and in the first if `below` is given.
    """
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
        {"step": step, "kind": name, "gamma": gamma, "head": heads_of(result)[n]}
        for name in kinds
        for gamma in gammas
        for n, step in enumerate(result["purity"][gamma].get(f"since_{name}", ()))
        if step is not None
    ]
    total = p.shape[1] * p.shape[2]
    lines = (
        chart_of(counts)
        .mark_line(interpolate="step-after")
        .encode(
            x=step_axis(run, below),
            y=alt.Y("heads:Q", title="pure heads", scale=alt.Scale(domain=[0, total])),
            color=alt.Color("kind:N", title="pure", scale=KINDS),
            strokeDash=alt.StrokeDash("gamma:N", title="up to gamma", sort=gammas).scale(range=[[1, 0], [2, 2]]),
            tooltip=[alt.Tooltip("step:Q"), alt.Tooltip("kind:N"), alt.Tooltip("gamma:N"), alt.Tooltip("heads:Q")],
        )
        .properties(width=WIDTH, height=180, title="Pure heads: one score at least 1 - gamma, the other at most gamma")
    )
    marks = (
        chart_of(since)
        .mark_point(filled=True, size=60)
        .encode(
            x=step_axis(run, STEPS),
            y=alt.Y("head:N", title="layer", scale=alt.Scale(domain=heads_of(result))),
            color=alt.Color("kind:N", title="pure", scale=KINDS),
            shape=alt.Shape("gamma:N", title="up to gamma", sort=gammas).scale(domain=gammas),
            tooltip=[alt.Tooltip("head:N"), alt.Tooltip("kind:N"), alt.Tooltip("gamma:N"), alt.Tooltip("step:Q")],
        )
        .properties(width=WIDTH, title="Step from which each head stayed pure")
    )
    return lines, marks


def scores_chart(run: Trajectory, layers: Sequence[int]) -> Chart:
    """Both scores and the entropy of chosen layers, side by side."""
    check_layers(run, layers)
    width = (WIDTH - GAP * (len(layers) - 1)) // len(layers)
    parts = [_layer_lines(run, n).properties(width=width, height=120, title=f"layer {n}") for n in layers]
    return alt.hconcat(*parts, spacing=GAP // 4)


def layers_chart(run: Trajectory) -> Chart:
    """Both scores and the entropy of every layer over steps."""
    layers = range(run.measures["positional"].shape[1])
    parts = [_layer_lines(run, n).properties(width=(WIDTH - 3 * GAP) // 4, height=110, title=f"layer {n}") for n in layers]
    return alt.concat(*parts, columns=4)


def _layer_lines(run: Trajectory, layer: int) -> Chart:
    names = ["positional", "symbolic", "entropy"]
    values = [
        {"step": int(step), "layer": f"L{layer}", "measure": name, "value": number(value)}
        for name in names
        for step, value in zip(run.steps, run.measures[name][:, layer].mean(-1), strict=True)
    ]
    colours = alt.Scale(domain=names, range=[COLOURS["positional"], COLOURS["symbolic"], COLOURS["neutral"]])
    return (
        chart_of(values)
        .mark_line()
        .encode(
            x=step_axis(run).axis(tickCount=3),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("measure:N", title=None, scale=colours),
            strokeDash=alt.StrokeDash("measure:N", title=None).scale(domain=names, range=[[1, 0], [1, 0], [3, 3]]),
            tooltip=[alt.Tooltip("layer:N"), alt.Tooltip("measure:N"), alt.Tooltip("step:Q"), alt.Tooltip("value:Q")],
        )
    )
