"""The film of a training run: heads in the positional-symbolic plane step by step, and what is shown beside it."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from ...charts import COLOURS, PICKED, Chart, across, chart_of, corners, literal, picked, up
from ...runs import Trajectory
from .axes import STEPS, WIDTH, number, step_axis

AT = "at"
"""The place in the film: a number of watched steps, with a fraction between two of them."""
TRAIL = 12
"""Watched steps that a head in the film draws behind it."""
MOST_LABELS = 64
"""Heads that the film can name without writing over itself."""
PURE = {"pure positional": "positional", "pure symbolic": "symbolic", "neither": "neutral"}


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
    base = chart_of(rows).transform_flatten([*unfolded])
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
    labels = _labels(now) if len(named) <= MOST_LABELS else []
    return (
        alt.layer(*corners(), trail, tip, points, ring.encode(across("x"), up("y")), *labels)
        .add_params(alt.param(name=AT, value=last), picked())
        .properties(width=430, height=430, title=alt.TitleParams(_step_title(steps), anchor="start", offset=10))
    )


def _labels(now: Chart) -> list[Chart]:
    """Names beside heads."""
    # Heads that are close to each other share a label.
    shared = (
        now.transform_calculate(cell="round(datum.x * 16) + ' ' + round(datum.y * 16)")
        .transform_aggregate(heads="values(label)", x="mean(x)", y="mean(y)", groupby=["cell"])
        .transform_calculate(more="datum.heads.length > 3 ? ' +' + (datum.heads.length - 3) : ''")
        .transform_calculate(names="join(slice(pluck(datum.heads, 'label'), 0, 3), ' ') + datum.more")
    )
    # Along the upper edge, where heads often stand in a row, labels go down aslant.
    sides: dict[str, dict[str, Any]] = {
        "datum.y >= 0.85": {"align": "left", "angle": 40, "dx": 10, "dy": 2},
        "datum.y < 0.85 && datum.x < 0.6": {"align": "left", "dx": 11},
        "datum.y < 0.85 && datum.x >= 0.6": {"align": "right", "dx": -11},
    }
    return [
        shared.transform_filter(where).mark_text(fontSize=11, **side).encode(across("x"), up("y"), text=alt.Text("names:N"))
        for where, side in sides.items()
    ]


def _following(values: list[float | None]) -> list[float | None]:
    """Beside every value the one after it; where there is none, itself."""
    return [value if after is None else after for value, after in zip(values, [*values[1:], values[-1]], strict=True)]


def _step_title(steps: list[int]) -> Any:
    """A title with the step of the film."""
    return alt.expr(f"'Heads at step ' + format({literal(steps)}[floor({AT})], ',')")


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
    base = chart_of(rows).transform_flatten([*unfolded])
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
        now.transform_filter(f"datum.hops == {literal(names[0])}")
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
        chart_of(rows)
        .transform_filter(f"datum.name == {PICKED}")
        .transform_flatten(["step", *names])
        .transform_fold([*names], ["measure", "value"])
        .mark_line(strokeWidth=2)
        .encode(
            x=step_axis(run, STEPS),
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
