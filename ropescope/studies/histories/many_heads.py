"""Charts of a model over its training when layers have many heads, accuracy may not be known, and some steps lack scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from ...charts import COLOURS, PICKED, Chart, chart_of, literal, picked
from ...measures.purity import MARGIN, POSITIONAL, SYMBOLIC, head_kinds, purity
from ...runs import Trajectory
from .axes import STEPS, WIDTH, number, step_axis
from .milestones import check_layers, heads_of

MOST_COLUMNS = 150
"""Steps that a map of purity shows; of more, evenly chosen ones."""
MOST_ROWS = 48
"""Heads that can be listed below each other."""
MOST_POINTS = 60
"""Points that a line can have without looking like beads."""
TELLING = 12
"""Heads that get a panel of their own."""
KINDS = {"positional": POSITIONAL, "symbolic": SYMBOLIC}
SCORES = ("positional", "symbolic", "entropy")


def telling_heads(run: Trajectory, result: Mapping[str, Any], layers: Sequence[int] | None = None) -> list[int]:
    """All heads of chosen layers; else, by number, those that became pure first and last of each kind, then those whose lean
    changed most.
    """
    count = run.measures["positional"].shape[2]
    scored = np.isfinite(run.measures["positional"]).any(0).ravel()
    if layers is not None:
        check_layers(run, layers)
        known = run.layers.tolist()
        return [n for layer in layers for n in range(known.index(layer) * count, (known.index(layer) + 1) * count) if scored[n]]
    chosen: list[int] = []
    for kind in KINDS:
        since = result["purity"]["0.1"].get(f"since_{kind}", ())
        pure = sorted((step, head) for head, step in enumerate(since) if step is not None)
        chosen += [head for _, head in pure[:2] + pure[-2:]]
    lean = (run.measures["symbolic"] - run.measures["positional"]).reshape(len(run.steps), -1)[:, scored]
    moved = np.flatnonzero(scored)[np.argsort(-(np.nanmax(lean, 0) - np.nanmin(lean, 0)), kind="stable")]
    return sorted(list(dict.fromkeys([*chosen, *moved.tolist()]))[: min(TELLING, int(scored.sum()))])


def loss_chart(run: Trajectory) -> Chart:
    """Loss wherever it is known: often it is logged less often than heads are looked at, and the line joins what there is."""
    assert run.loss is not None
    known = [(step, value) for step, value in zip(run.steps, run.loss, strict=True) if np.isfinite(value)]
    rows = [{"step": int(step), "loss": number(value, 5)} for step, value in known]
    y = alt.Y("loss:Q", title="loss", scale=alt.Scale(zero=False))
    return (
        chart_of(rows)
        .mark_line(color="#000000", point=alt.OverlayMarkDef(color="#000000", size=14) if len(rows) <= MOST_POINTS else False)
        .encode(x=step_axis(run), y=y, tooltip=[alt.Tooltip("step:Q"), alt.Tooltip("loss:Q")])
        .properties(width=WIDTH, height=140, title="Loss")
    )


def kinds_chart(run: Trajectory) -> Chart:
    """How many heads are mainly positional or symbolic at each step, and how many of them are pure."""
    p, s = (run.measures[score].astype(np.float64) for score in ("positional", "symbolic"))
    pure, lean = purity(p, s), head_kinds(p, s)
    counts = {("mainly", kind): (lean == kind).sum((1, 2)) for kind in KINDS} | {
        ("pure", kind): (pure == number).sum((1, 2)) for kind, number in KINDS.items()
    }
    rows = [
        {"step": int(step), "kind": kind, "how": how, "heads": int(count)}
        for (how, kind), values in counts.items()
        for step, count in zip(run.steps, values, strict=True)
    ]
    total = int(np.isfinite(p).any(0).sum())
    return (
        chart_of(rows)
        .mark_line(interpolate="step-after")
        .encode(
            x=step_axis(run),
            y=alt.Y("heads:Q", title=f"of {total} heads", axis=alt.Axis(tickMinStep=1)),
            color=alt.Color("kind:N", title="kind").scale(domain=list(KINDS), range=[COLOURS[kind] for kind in KINDS]),
            strokeDash=alt.StrokeDash("how:N", title="how much").scale(domain=["pure", "mainly"], range=[[1, 0], [3, 3]]),
            tooltip=[alt.Tooltip("step:Q"), alt.Tooltip("how:N"), alt.Tooltip("kind:N"), alt.Tooltip("heads:Q")],
        )
        .properties(
            width=WIDTH,
            height=180,
            title=alt.TitleParams(
                "Heads of each kind",
                subtitle=f"pure: one score at least 0.9, the other at most 0.1; mainly: they differ by {MARGIN:g} or more",
                anchor="start",
            ),
        )
    )


def purity_map(run: Trajectory, result: Mapping[str, Any], is_last: bool = True) -> Chart:
    """Every head at every look: blue is mainly positional, orange mainly symbolic. The last panel names the axis of steps."""
    names, (looks, layers, heads) = heads_of(result), run.measures["positional"].shape
    columns = np.unique(np.linspace(0, looks - 1, min(looks, MOST_COLUMNS)).round().astype(int))
    scores = {score: run.measures[score].reshape(looks, -1)[columns] for score in ("positional", "symbolic")}
    rows = [
        {
            "name": names[n] if heads > 1 else f"{names[n]} H0",
            "place": n,
            "step": run.steps[columns].tolist(),
            **{score: [number(x, 3) for x in values[:, n]] for score, values in scores.items()},
            "difference": [number(x, 3) for x in scores["symbolic"][:, n] - scores["positional"][:, n]],
        }
        for n in range(layers * heads)
    ]
    # A tick for a layer stands at its first head.
    ticks = list(range(0, layers * heads, heads * max(1, round(layers / 32))))
    labels = " : ".join(f"datum.value == {n} ? {literal(f'L{run.layers[n // heads]}')}" for n in ticks) + " : ''"
    step = max(2.0, min(14.0, 480 / (layers * heads)))
    shown_steps = run.steps[columns[:: max(1, round(len(columns) / 10))]].tolist()
    wide = max(4.0, WIDTH / len(columns))
    base = chart_of(rows).transform_flatten(["step", "positional", "symbolic", "difference"])
    base = base.encode(
        x=alt.X(
            "step:O",
            title=STEPS if is_last else None,
            axis=alt.Axis(values=shown_steps, labelAngle=0, labelExpr="format(datum.value, ',')"),
        ),
        y=alt.Y("place:O", title="head, layer by layer", axis=alt.Axis(values=ticks, labelExpr=labels, labelBaseline="top")),
    )
    tiles = base.mark_rect().encode(
        color=alt.Color("difference:Q", title="symbolic minus positional")
        .scale(scheme="blueorange", domain=[-1, 1])
        .legend(values=[-1, 0, 1], gradientLength=160, format=".0f"),
        tooltip=[
            alt.Tooltip("name:N", title="head"),
            *(alt.Tooltip(f"{x}:Q") for x in ("step", "positional", "symbolic", "difference")),
        ],
    )
    shown = base.transform_filter(f"datum.name == {PICKED}").mark_rect(filled=False, stroke="#000", strokeWidth=1)
    return (
        alt.layer(tiles, shown)
        .add_params(picked())
        .properties(
            width=alt.Step(wide),
            height=alt.Step(step),
            view=alt.ViewBackground(fill="#DDDDDD"),
            title=alt.TitleParams(
                "Every head, look by look",
                subtitle="blue: to places, orange: to things, white: to neither, grey: no scores",
                anchor="start",
            ),
        )
    )


def since_chart(run: Trajectory, result: Mapping[str, Any]) -> Chart | None:
    """The heads that became pure and are so in the end, and since when; the first at the top. Nothing if there are none."""
    names, pure, start = heads_of(result), result["purity"]["0.1"], int(run.steps[0])
    rows = [
        {"head": names[n], "kind": kind, "step": step}
        for kind in KINDS
        for n, step in enumerate(pure.get(f"since_{kind}", ()))
        if step is not None
    ]
    always = sum(row["step"] == start for row in rows)
    rows = [row for row in rows if row["step"] > start]
    if not rows:
        return None
    rows.sort(key=lambda row: (row["step"], names.index(row["head"])))
    first = "" if len(rows) <= MOST_ROWS else f"the first {MOST_ROWS} of "
    title = f"Step from which each of {first}{len(rows)} heads stayed pure" + (f"; {always} always were" if always else "")
    rows = rows[:MOST_ROWS]
    return (
        chart_of(rows)
        .mark_point(filled=True, size=60)
        .encode(
            x=step_axis(run, STEPS),
            y=alt.Y("head:N", title=None, sort=[row["head"] for row in rows]),
            color=alt.Color("kind:N", title="kind").scale(domain=list(KINDS), range=[COLOURS[kind] for kind in KINDS]),
            shape=alt.Shape("kind:N", title="kind").scale(domain=list(KINDS), range=["square", "triangle-up"]),
            tooltip=[alt.Tooltip("head:N"), alt.Tooltip("kind:N"), alt.Tooltip("step:Q")],
        )
        .properties(width=WIDTH, height=alt.Step(13), title=title)
    )


def heads_chart(run: Trajectory, result: Mapping[str, Any], heads: Sequence[int]) -> Chart:
    """Both scores and the entropy of some heads over steps, a panel for each."""
    names = heads_of(result)
    parts = [_lines(run, {m: _flat(run, m)[:, n] for m in SCORES}, names[n]) for n in heads]
    return alt.concat(*parts, columns=4)


def layers_chart(run: Trajectory) -> Chart:
    """Means over the heads of every layer, a panel for each."""
    parts = []
    for n, layer in enumerate(run.layers):
        means = {}
        for measure in SCORES:
            values = run.measures[measure][:, n]
            known = np.isfinite(values)
            count = np.maximum(known.sum(-1), 1)
            means[measure] = np.where(known.any(-1), np.where(known, values, 0).sum(-1) / count, np.nan)
        parts.append(_lines(run, means, f"layer {layer}"))
    return alt.concat(*parts, columns=4)


def _flat(run: Trajectory, measure: str) -> Any:
    return run.measures[measure].reshape(len(run.steps), -1)


def _lines(run: Trajectory, values: Mapping[str, Any], title: str) -> Chart:
    rows = [
        {"step": int(step), "of": title, "measure": name, "value": number(value)}
        for name, column in values.items()
        for step, value in zip(run.steps, column, strict=True)
    ]
    colours = alt.Scale(domain=list(SCORES), range=[COLOURS["positional"], COLOURS["symbolic"], COLOURS["neutral"]])
    return (
        chart_of(rows)
        .mark_line()
        .encode(
            x=step_axis(run).axis(tickCount=3),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("measure:N", title=None, scale=colours),
            strokeDash=alt.StrokeDash("measure:N", title=None).scale(domain=list(SCORES), range=[[1, 0], [1, 0], [3, 3]]),
            tooltip=[alt.Tooltip("of:N"), alt.Tooltip("measure:N"), alt.Tooltip("step:Q"), alt.Tooltip("value:Q")],
        )
        .properties(width=(WIDTH - 3 * 48) // 4, height=100, title=title)
    )
