"""Figures of a training run: accuracy, scores and purity over steps (paper B, figures 2, 6 and 7), and its film."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from ..charts import COLOURS, PICKED, Chart, Figure, Inline, across, corners, picked, up, write_chart
from ..experiments.dynamics import dynamics, heads_of, mean_purity
from ..measures.purity import POSITIONAL, SYMBOLIC, purity
from ..runs import Run, Trajectory, read_trajectory
from . import many_heads
from .many_heads import number

WIDTH, GAP = 640, 48
KINDS = alt.Scale(domain=["positional", "symbolic"], range=[COLOURS["positional"], COLOURS["symbolic"]])


AT = "at"
"""The place in the film: a number of watched steps, with a fraction between two of them."""
TRAIL = 12
"""Watched steps that a head in the film draws behind it."""
MOST_LABELS = 64
"""Heads that the film can name without writing over itself."""
PURE = {"pure positional": "positional", "pure symbolic": "symbolic", "neither": "neutral"}


def write_figures(run: Trajectory, result: Mapping[str, Any], folder: Path, layers: Sequence[int] | None = None) -> list[str]:
    """All figures of one run; returns the names of the files. `layers` are those whose scores stand under the accuracy."""
    charts = figures(run, result, layers)
    return [file for name, chart in charts.items() for file in write_chart(chart, folder, f"{run.name}-{name}")]


def figures(run: Trajectory, result: Mapping[str, Any], layers: Sequence[int] | None = None) -> dict[str, Chart]:
    """The figures of one run by name."""
    run = run.looks()
    if run.command != "train" or not run.one_each:
        return _figures_of_many(run, result, layers)
    heading = alt.TitleParams(f"{run.task} task, seed {run.seed}, {result['last_step']} steps", subtitle=_learned_said(result))
    chosen = telling_layers(result) if layers is None else layers
    panels = (accuracy_chart(run), scores_chart(run, chosen), *purity_charts(run, result))
    over_time = (
        alt.vconcat(*panels)
        .resolve_scale(color="independent", strokeDash="independent", shape="independent")
        .properties(title=heading)
    )
    return {"learning": over_time, "layers": layers_chart(run).properties(title=heading)}


def _figures_of_many(run: Trajectory, result: Mapping[str, Any], layers: Sequence[int] | None) -> dict[str, Chart]:
    """The same where layers have many heads, or accuracy is not known."""
    heading = alt.TitleParams(
        f"{run.name}: {len(result.get('heads', run.layers))} heads, {len(run.steps)} looks up to step {result['last_step']:,}",
        subtitle=_learned_said(result) if run.accuracy is not None else "",
    )
    panels = [
        *([accuracy_chart(run)] if run.accuracy is not None else []),
        *([many_heads.loss_chart(run)] if run.loss is not None else []),
        many_heads.kinds_chart(run),
        many_heads.purity_map(run, result),
    ]
    if (since := many_heads.since_chart(run, result)) is not None:
        panels.append(since)
    over_time = alt.vconcat(*panels).resolve_scale(color="independent", strokeDash="independent", shape="independent")
    telling = many_heads.telling_heads(run, result, layers)
    return {
        "learning": over_time.properties(title=heading),
        "heads": many_heads.heads_chart(run, result, telling).properties(title=heading),
        "layers": many_heads.layers_chart(run).properties(title=heading),
    }


def _learned_said(result: Mapping[str, Any]) -> str:
    learned = ", ".join(f"{hops}-hop at {step}" for hops, step in enumerate(result["learned_at"], start=1) if step is not None)
    return f"accuracy of 0.99 on the watched inputs first reached: {learned or 'not yet'}"


def of_run(run: Run) -> dict[str, Figure]:
    """The figures of a training run, from its history alone; first those of its film."""
    history = read_trajectory(run.folder).looks()
    if not len(history.steps):
        return {}
    charts = figures(history, dynamics(history))
    found = {
        "film": Figure(
            film_chart(history),
            "Uniform attention is top right, pure heads are in the shaded corners beside it; lines are the way heads came.",
            "Heads over training",
            "half",
        )
    }
    if history.accuracy is not None:
        found["accuracy"] = Figure(
            film_accuracy_chart(history), "Accuracy per hop count; the vertical line is the step shown.", "Accuracy", "half"
        )
    found["head"] = Figure(
        head_history_chart(history),
        "Scores and entropy of the chosen head at every watched step.",
        "One head over training",
    )
    return found | (_of_single(charts) if len(charts) == 2 else _of_many(charts))


def _of_many(charts: Mapping[str, Chart]) -> dict[str, Figure]:
    return {
        "learning": Figure(
            charts["learning"],
            "From top to bottom: how training went, how many heads are of each kind, and what every head leans to.",
            "Training and heads",
        ),
        "heads": Figure(
            charts["heads"],
            "A panel for each: blue is the positional score, orange the symbolic, dashed the entropy.",
            "Heads that tell most",
        ),
        "layers": Figure(
            charts["layers"],
            "A panel for each layer, means over its heads: blue is the positional score, orange the symbolic, dashed entropy.",
            "Means of every layer",
        ),
    }


def _of_single(charts: Mapping[str, Chart]) -> dict[str, Figure]:
    return {
        "learning": Figure(
            charts["learning"],
            "From top to bottom: accuracy, scores of telling layers, and when heads became pure.",
            "Learning and purity",
        ),
        "layers": Figure(
            charts["layers"],
            "A panel for each layer: blue is the positional score, orange the symbolic, dashed the entropy.",
            "Scores of every layer",
        ),
    }


def of_dynamics(run: Run) -> dict[str, Figure]:
    """The figure of a run of `ropescope dynamics`: all its training runs side by side."""
    chart = milestones_chart(run.results)
    return {
        "milestones": Figure(chart, "Marks on a line: when each hop count was learned, and when heads became pure for good.")
    }


def telling_layers(result: Mapping[str, Any]) -> list[int]:
    """Layer 0 and, of each kind, the first and the last that became pure for good; then others up to four."""
    last, chosen = result["purity"]["0.1"], {0}
    for kind in ("positional", "symbolic"):
        since = sorted((step, layer) for layer, step in enumerate(last[f"since_{kind}"]) if step is not None)
        chosen |= {layer for _, layer in since[:1] + since[-1:]}
    total = len(last["since_positional"])
    return sorted([*sorted(chosen), *sorted(set(range(total)) - chosen)][: min(total, max(4, len(chosen)))])


def _step(run: Trajectory) -> alt.X:
    return many_heads.step_axis(run)


def accuracy_chart(run: Trajectory) -> Chart:
    """Accuracy of each hop count, with mean purity |positional - symbolic| over heads."""
    accuracy = [
        {"step": int(step), "hops": str(hop), "value": number(value, 5)}
        for step, row in zip(run.steps, run.measures["accuracy"], strict=True)
        for hop, value in enumerate(row, start=1)
    ]
    degree = [{"step": int(step), "value": number(value, 5)} for step, value in zip(run.steps, mean_purity(run), strict=True)]
    lines = (
        alt.Chart(Inline(values=accuracy))
        .mark_line()
        .encode(
            x=_step(run),
            y=alt.Y("value:Q", title="accuracy, purity", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("hops:N", title="accuracy, hops", scale=alt.Scale(scheme="viridis")),
            tooltip=[alt.Tooltip("step:Q"), alt.Tooltip("hops:N"), alt.Tooltip("value:Q")],
        )
    )
    mean = alt.Chart(Inline(values=degree)).mark_line(color="black", strokeDash=[4, 3])
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
        {"step": step, "kind": name, "gamma": gamma, "head": heads_of(result)[n]}
        for name in kinds
        for gamma in gammas
        for n, step in enumerate(result["purity"][gamma][f"since_{name}"])
        if step is not None
    ]
    total = p.shape[1] * p.shape[2]
    lines = (
        alt.Chart(Inline(values=counts))
        .mark_line(interpolate="step-after")
        .encode(
            x=_step(run),
            y=alt.Y("heads:Q", title="pure heads", scale=alt.Scale(domain=[0, total])),
            color=alt.Color("kind:N", title="pure", scale=KINDS),
            strokeDash=alt.StrokeDash("gamma:N", title="up to gamma", sort=gammas).scale(range=[[1, 0], [2, 2]]),
            tooltip=[alt.Tooltip("step:Q"), alt.Tooltip("kind:N"), alt.Tooltip("gamma:N"), alt.Tooltip("heads:Q")],
        )
        .properties(width=WIDTH, height=180, title="Pure heads: one score at least 1 - gamma, the other at most gamma")
    )
    marks = (
        alt.Chart(Inline(values=since))
        .mark_point(filled=True, size=60)
        .encode(
            x=_step(run),
            y=alt.Y("head:N", title="layer", scale=alt.Scale(domain=heads_of(result))),
            color=alt.Color("kind:N", title="pure", scale=KINDS),
            shape=alt.Shape("gamma:N", title="up to gamma", sort=gammas),
            tooltip=[alt.Tooltip("head:N"), alt.Tooltip("kind:N"), alt.Tooltip("gamma:N"), alt.Tooltip("step:Q")],
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
        {"step": int(step), "layer": f"L{layer}", "measure": name, "value": number(value)}
        for name in names
        for step, value in zip(run.steps, run.measures[name][:, layer].mean(-1), strict=True)
    ]
    colours = alt.Scale(domain=names, range=[COLOURS["positional"], COLOURS["symbolic"], COLOURS["neutral"]])
    return (
        alt.Chart(Inline(values=values))
        .mark_line()
        .encode(
            x=_step(run).title(None).axis(tickCount=3),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("measure:N", title=None, scale=colours),
            strokeDash=alt.StrokeDash("measure:N", title=None).scale(domain=names, range=[[1, 0], [1, 0], [3, 3]]),
            tooltip=[alt.Tooltip("layer:N"), alt.Tooltip("measure:N"), alt.Tooltip("step:Q"), alt.Tooltip("value:Q")],
        )
    )


def _head_names(run: Trajectory) -> list[tuple[int, int, str, str]]:
    """Place among the layers, head, name and the shortest name of every head that has scores."""
    _, layers, heads = run.measures["positional"].shape
    scored, ids = np.asarray(np.isfinite(run.measures["positional"]).any(0)), run.layers
    return [
        (layer, head, f"L{ids[layer]} H{head}", f"L{ids[layer]}" if heads == 1 else f"L{ids[layer]} H{head}")
        for layer in range(layers)
        for head in range(heads)
        if scored[layer, head]
    ]


def _rounded(values: Any) -> list[float | None]:
    return [number(value) for value in values]


def film_chart(run: Trajectory) -> Chart:
    """Heads in the positional-symbolic plane at one time of training, with the way they came; all times are in the chart."""
    last = len(run.steps) - 1
    steps = [int(step) for step in run.steps]
    rows = []
    named = _head_names(run)
    for layer, head, name, label in named:
        x, y = (_rounded(run.measures[score][:, layer, head]) for score in ("positional", "symbolic"))
        # Beside every value the next one, so that heads can be drawn between two watched steps.
        lists = {"n": list(range(last + 1)), "step": steps, "positional": x, "symbolic": y}
        rows.append({"name": name, "label": label, **lists, "x_next": _following(x), "y_next": _following(y)})
    unfolded = ["n", "step", "positional", "symbolic", "x_next", "y_next"]
    base = alt.Chart(Inline(values=rows)).transform_flatten([*unfolded])
    if not np.isfinite(run.measures["positional"]).all():  # a head may lack scores at some looks
        base = base.transform_filter("isValid(datum.positional)")
    part = f"({AT} - floor({AT}))"
    now = (
        base.transform_filter(f"datum.n == floor({AT})")
        .transform_calculate(
            x=f"datum.positional + {part} * (datum.x_next - datum.positional)",
            y=f"datum.symbolic + {part} * (datum.y_next - datum.symbolic)",
        )
        .transform_calculate(
            kind="datum.x >= 0.9 && datum.y <= 0.1 ? 'pure positional' : "
            "datum.y >= 0.9 && datum.x <= 0.1 ? 'pure symbolic' : 'neither'"
        )
    )
    trail = (
        base.transform_filter(f"datum.n <= {AT} && datum.n > {AT} - {TRAIL}")
        .mark_line(opacity=0.35, strokeWidth=1.5, color=COLOURS["neutral"])
        .encode(across("positional"), up("symbolic"), detail=alt.Detail("name:N"), order=alt.Order("n:Q"))
    )
    tip = now.mark_rule(opacity=0.35, strokeWidth=1.5, color=COLOURS["neutral"]).encode(
        across("positional"), up("symbolic"), x2=alt.X2("x:Q"), y2=alt.Y2("y:Q")
    )
    legend = alt.Legend(title=None, orient="top")
    colour = alt.Color("kind:N", legend=legend).scale(domain=list(PURE), range=[COLOURS[kind] for kind in PURE.values()])
    shape = alt.Shape("kind:N", legend=legend).scale(domain=list(PURE), range=["square", "triangle-up", "circle"])
    tooltip = [
        alt.Tooltip("name:N"),
        alt.Tooltip("step:Q"),
        alt.Tooltip("positional:Q"),
        alt.Tooltip("symbolic:Q"),
        alt.Tooltip("kind:N"),
    ]
    points = now.mark_point(filled=True, size=110, opacity=0.9).encode(
        across("x"), up("y"), color=colour, shape=shape, tooltip=tooltip
    )
    ring = now.transform_filter(f"datum.name == {PICKED}").mark_point(size=330, strokeWidth=2.5, opacity=1, color="black")
    # Heads that are close to each other share a label.
    labels = (
        now.transform_calculate(cell="round(datum.x * 16) + ' ' + round(datum.y * 16)")
        .transform_aggregate(heads="values(label)", x="mean(x)", y="mean(y)", groupby=["cell"])
        .transform_calculate(said="join(pluck(datum.heads, 'label'), ' ')")
    )
    # Along the upper edge, where heads often stand in a row, labels go down aslant.
    sides: dict[str, dict[str, Any]] = {
        "datum.y >= 0.85": {"align": "left", "angle": 40, "dx": 10, "dy": 2},
        "datum.y < 0.85 && datum.x < 0.6": {"align": "left", "dx": 11},
        "datum.y < 0.85 && datum.x >= 0.6": {"align": "right", "dx": -11},
    }
    names = [
        labels.transform_filter(where).mark_text(fontSize=11, **side).encode(across("x"), up("y"), text=alt.Text("said:N"))
        for where, side in sides.items()
    ]
    if len(named) > MOST_LABELS:
        names = []
    return (
        alt.layer(*corners(), trail, tip, points, ring.encode(across("x"), up("y")), *names)
        .add_params(alt.param(name=AT, value=last), picked())
        .properties(width=430, height=430, title=alt.TitleParams(_step_said(steps), anchor="start", offset=10))
    )


def _following(values: list[float | None]) -> list[float | None]:
    """Beside every value the one after it; where there is none, itself."""
    return [value if after is None else after for value, after in zip(values, [*values[1:], values[-1]], strict=True)]


def _step_said(steps: list[int]) -> Any:
    """A title that says the step of the film."""
    return alt.expr(f"'Heads at step ' + format({steps}[floor({AT})], ',')")


def film_accuracy_chart(run: Trajectory) -> Chart:
    """Accuracy of each hop count over all of training, with a line at one time."""
    assert run.accuracy is not None
    last = len(run.steps) - 1
    steps = [int(step) for step in run.steps]
    rows = []
    for hop, values in enumerate(run.accuracy.T, start=1):
        accuracy = _rounded(values)
        lists = {"n": list(range(last + 1)), "step": steps, "accuracy": accuracy}
        following = {"step_next": [*steps[1:], steps[-1]], "accuracy_next": _following(accuracy)}
        rows.append({"hops": f"{hop}-hop", **lists, **following})
    unfolded = ["n", "step", "accuracy", "step_next", "accuracy_next"]
    base = alt.Chart(Inline(values=rows)).transform_flatten([*unfolded])
    x = alt.X("step:Q", title="training step", scale=alt.Scale(domain=[0, steps[-1]], nice=False), axis=alt.Axis(tickCount=5))
    y = alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(domain=[0, 1.02], nice=False))
    names = [str(row["hops"]) for row in rows]
    legend = alt.Legend(title=None, orient="top", symbolType="stroke", symbolStrokeWidth=2, symbolSize=400)
    colour = alt.Color("hops:N", sort=names, legend=legend).scale(
        domain=names, scheme=alt.SchemeParams("viridis", extent=[0, 0.85])
    )
    dashes = [[1, 0], [7, 3], [3, 3], [8, 2, 2, 2]]
    dash = alt.StrokeDash("hops:N", sort=names, legend=legend)
    dash = dash.scale(domain=names, range=[dashes[n % len(dashes)] for n in range(len(names))])
    lines = base.mark_line(strokeWidth=2).encode(x, y, color=colour, strokeDash=dash)
    part = f"({AT} - floor({AT}))"
    now = base.transform_filter(f"datum.n == floor({AT})").transform_calculate(
        now=f"datum.step + {part} * (datum.step_next - datum.step)",
        value=f"datum.accuracy + {part} * (datum.accuracy_next - datum.accuracy)",
    )
    cursor = (
        now.transform_filter(f"datum.hops == '{names[0]}'")
        .mark_rule(color="black", strokeWidth=1)
        .encode(x=alt.X("now:Q", scale=x["scale"]))
    )
    dots = now.mark_point(filled=True, size=70, opacity=1).encode(
        x=alt.X("now:Q", scale=x["scale"]),
        y=alt.Y("value:Q", scale=y["scale"]),
        color=colour,
        tooltip=[alt.Tooltip("hops:N"), alt.Tooltip("step:Q"), alt.Tooltip("accuracy:Q")],
    )
    return (
        alt.layer(lines, cursor, dots)
        .add_params(alt.param(name=AT, value=last))
        .properties(width=430, height=430, title=alt.TitleParams("Accuracy per hop count", anchor="start", offset=10))
    )


def head_history_chart(run: Trajectory) -> Chart:
    """Both scores and the entropy of the chosen head over training."""
    names = ["positional", "symbolic", "entropy"]
    steps = [int(step) for step in run.steps]
    rows = [
        {"name": name, "step": steps, **{measure: _rounded(run.measures[measure][:, layer, head]) for measure in names}}
        for layer, head, name, _ in _head_names(run)
    ]
    colours = alt.Scale(domain=names, range=[COLOURS["positional"], COLOURS["symbolic"], COLOURS["neutral"]])
    legend = alt.Legend(title=None, orient="top", symbolType="stroke", symbolStrokeWidth=2, symbolSize=400)
    chart = (
        alt.Chart(Inline(values=rows))
        .transform_filter(f"datum.name == {PICKED}")
        .transform_flatten(["step", *names])
        .transform_fold([*names], ["measure", "value"])
        .mark_line(strokeWidth=2)
        .encode(
            x=_step(run),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("measure:N", scale=colours, legend=legend),
            strokeDash=alt.StrokeDash("measure:N", legend=legend).scale(domain=names, range=[[1, 0], [6, 2], [2, 3]]),
            tooltip=[alt.Tooltip("name:N"), alt.Tooltip("step:Q"), alt.Tooltip("measure:N"), alt.Tooltip("value:Q")],
        )
    )
    last = np.abs(run.measures["positional"][-1] - run.measures["symbolic"][-1])
    title = alt.TitleParams(alt.expr(f"'Head ' + {PICKED} + ' over training'"), anchor="start", offset=10)
    first = max(_head_names(run), key=lambda named: np.nan_to_num(last[named[0], named[1]], nan=-1))[2]
    return chart.add_params(picked(first)).properties(width=WIDTH, height=200, title=title)


def milestones_chart(results: Mapping[str, Any]) -> Chart:
    """A line for each run: steps at which hop counts were learned (upper half) and heads became pure for good (lower)."""
    marks = []
    for name, found in results.items():
        marks += [
            {"run": name, "what": "hops learned", "of": f"{hops}-hop", "step": step}
            for hops, step in enumerate(found["learned_at"], start=1)
            if step is not None
        ]
        for kind in ("positional", "symbolic"):
            since = found["purity"]["0.1"][f"since_{kind}"]
            marks += [
                {"run": name, "what": f"pure {kind} heads", "of": head, "step": step}
                for head, step in zip(heads_of(found), since, strict=True)
                if step is not None
            ]
    kinds = ["hops learned", "pure positional heads", "pure symbolic heads"]
    last = max((int(found["last_step"]) for found in results.values()), default=1)
    legend = alt.Legend(title=None, orient="top", symbolOpacity=1)
    return (
        alt.Chart(Inline(values=marks))
        .mark_point(filled=True, size=80, opacity=0.75)
        .encode(
            x=alt.X("step:Q", title="training step", scale=alt.Scale(domain=[0, last], nice=False)),
            y=alt.Y("run:N", title=None, sort=list(results)),
            yOffset=alt.YOffset("what:N", scale=alt.Scale(domain=kinds)),
            color=alt.Color("what:N", legend=legend).scale(domain=kinds, range=["#000000", *KINDS["range"]]),
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
