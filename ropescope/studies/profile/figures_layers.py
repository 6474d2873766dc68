"""Charts of heads layer by layer: how many of each kind, scores of every head, medians over depth."""

from __future__ import annotations

import altair as alt

from ...charts import PICKED, Chart, chart_of, literal, picked
from ...measures.purity import MARGIN
from .look import HEAD_TOOLTIP, KIND_COLOURS, KINDS, SCORE_COLOURS, legend, small_title, titled
from .rows import LEAST_JUDGED, Stats, head_rows
from .statistics import SCORES

WIDTH = 960
"""Of charts that take the whole width of a page; there it grows and shrinks with the window."""


def layer_axis(stats: Stats, title: str | None = "layer, first to last") -> alt.X:
    """Layers from left to right."""
    axis = alt.Axis(labelAngle=0, labelOverlap="greedy", ticks=False, domain=False, grid=False)
    return alt.X("layer:O", title=title, axis=axis, scale=alt.Scale(domain=stats["layer"], paddingInner=0.06, paddingOuter=0.1))


def kinds_chart(stats: Stats, about: str) -> Chart:
    """Every head as a tile over its layer, sorted by kind: how many heads of a layer are of which kind."""
    rows, heads = head_rows(stats), len(stats["head"])
    unsure = [name for name, share in (stats.get("judged") or {}).items() if share < LEAST_JUDGED]
    high = max(4.0, min(26.0, 300 / heads), 44 / heads)
    base = (
        chart_of(rows)
        .transform_calculate(group=f"indexof({literal(KINDS)}, datum.kind)", sure=f"indexof({literal(unsure)}, datum.name) < 0")
        .transform_window(
            place="row_number()",
            groupby=["layer"],
            sort=[alt.SortField("group"), alt.SortField("difference")],
            frame=[None, None],
        )
        .transform_calculate(rank="datum.place - 1", top="datum.place - 0.08")
    )
    y = alt.Y(
        "rank:Q",
        title="heads of the layer" if high * heads > 100 else "heads",
        axis=alt.Axis(tickMinStep=1, grid=False, tickCount=min(heads, 5)),
    )
    place = {"x": layer_axis(stats), "y": y.scale(domain=[0, heads], nice=False), "y2": alt.Y2("top:Q")}
    colour = alt.Color("kind:N", scale=KIND_COLOURS, legend=legend("mainly"))
    tiles = base.mark_bar(strokeWidth=1.4).encode(
        **place, color=colour, fillOpacity=alt.condition("datum.sure", alt.value(1), alt.value(0.12)), tooltip=HEAD_TOOLTIP
    )
    rims = base.transform_filter("!datum.sure").mark_bar(filled=False, strokeWidth=1.4, strokeDash=[2, 2])
    frames = base.transform_filter(f"datum.name == {PICKED}").mark_bar(filled=False, stroke="black", strokeWidth=3)
    counted = ", ".join(f"{stats['kinds'][kind]} {kind}" for kind in KINDS)
    hollow = f" Hollow: {len(unsure)} heads that cannot be judged on these prompts." if unsure else ""
    chart = alt.layer(tiles, rims.encode(**place, color=colour), frames.encode(**place)).add_params(picked())
    return titled(
        chart.properties(width=WIDTH, height=high * heads, view=alt.ViewBackground(stroke=None)),
        WIDTH,
        f"Heads layer by layer: {counted}",
        f"One tile per head. Mainly: the scores differ by {MARGIN} or more.{hollow}",
        about,
    )


def heat_map_chart(stats: Stats, about: str) -> Chart:
    """Layers across, heads down: both scores and their difference, below each other."""
    rows, heads = head_rows(stats), len(stats["head"])
    high = max(5, min(18, 220 // heads))
    panels: dict[str, tuple[str, alt.Scale, list[float]]] = {
        "positional": ("Positional score", alt.Scale(scheme="viridis", domain=[0, 1]), [0, 0.5, 1]),
        "symbolic": ("Symbolic score", alt.Scale(scheme="viridis", domain=[0, 1]), [0, 0.5, 1]),
        "difference": ("Symbolic minus positional", alt.Scale(scheme="blueorange", domain=[-1, 1]), [-1, 0, 1]),
    }
    charts = []
    for score, (title, scale, ticks) in panels.items():
        last = score == "difference"
        axis = alt.Axis(labelOverlap="greedy", ticks=False, domain=False)
        base = chart_of(rows).encode(
            x=layer_axis(stats, "layer, first to last" if last else None),
            y=alt.Y("head:O", title="head", axis=axis, scale=alt.Scale(domain=stats["head"], paddingInner=0.06)),
        )
        length = max(60, min(140, high * heads))
        shown = alt.Legend(title=None, orient="right", gradientLength=length, gradientThickness=12, values=ticks, format=".1f")
        tiles = base.mark_rect().encode(color=alt.Color(f"{score}:Q", scale=scale, legend=shown), tooltip=HEAD_TOOLTIP)
        # Two frames, so that the chosen tile is seen among dark and among light ones.
        chosen = base.transform_filter(f"datum.name == {PICKED}")
        frames = [chosen.mark_rect(filled=False, stroke=shade, strokeWidth=wide) for shade, wide in (("#000", 5), ("#FFF", 2))]
        chart = alt.layer(tiles, *frames).properties(width=WIDTH - 60, height=high * heads, title=small_title(title))
        charts.append(chart.properties(view=alt.ViewBackground(fill="#DDDDDD", stroke=None)))
    return titled(
        alt.vconcat(*charts, spacing=14).resolve_scale(color="independent").add_params(picked()),
        WIDTH,
        f"Scores of every head: {_halves_text(stats['depth'])}",
        "Below: blue is mainly positional, orange mainly symbolic. Grey: no scores.",
        about,
    )


def _halves_text(depth: Stats) -> str:
    if depth.get("positional") is None or depth.get("symbolic") is None:
        return "layer by layer"
    halves = {score: f"{depth[score]['first']:.2f} \N{RIGHTWARDS ARROW} {depth[score]['second']:.2f}" for score in depth}
    return f"medians from first to second half, positional {halves['positional']}, symbolic {halves['symbolic']}"


def depth_chart(stats: Stats, about: str) -> Chart:
    """Median and quartiles of both scores in each layer, every head behind them, and the medians of both halves."""
    rows = [
        {"name": row["name"], "layer": row["layer"], "score": score, "value": row[score]}
        for row in head_rows(stats)
        for score in SCORES
    ]
    layers, half = stats["layer"], len(stats["layer"]) // 2
    ends = [layers[0] - 0.5, layers[-1] + 0.5]
    x = alt.X("layer:Q", title="layer", scale=alt.Scale(domain=ends, nice=False), axis=alt.Axis(tickMinStep=1, grid=False))
    y = alt.Y("value:Q", title="score", scale=alt.Scale(domain=[0, 1]))
    colour = alt.Color("score:N", scale=SCORE_COLOURS, legend=legend("score"))
    base = chart_of(rows).encode(x=x, color=colour)
    heads = base.mark_circle(size=10, opacity=0.35).encode(
        y=y, tooltip=[alt.Tooltip("name:N"), alt.Tooltip("score:N"), alt.Tooltip("value:Q")]
    )
    spread = base.mark_errorband(extent="iqr", opacity=0.18).encode(y=y)
    medians = base.mark_line(point=alt.OverlayMarkDef(size=28)).encode(y=alt.Y("median(value):Q", title="score"))
    halves = [
        {"layer": first, "until": last, "score": score, "value": depth[part]}
        for score in stats["depth"]
        if (depth := stats["depth"].get(score)) is not None
        for part, first, last in (("first", ends[0], layers[half - 1] + 0.5), ("second", layers[-half] - 0.5, ends[1]))
    ]
    rules = chart_of(halves).mark_rule(strokeDash=[5, 3], strokeWidth=1.5).encode(x=x, x2=alt.X2("until:Q"), y=y, color=colour)
    ring = base.transform_filter(f"datum.name == {PICKED}").mark_point(size=130, strokeWidth=2.5, opacity=1)
    return titled(
        alt.layer(heads, spread, rules, medians, ring.encode(y=y)).add_params(picked()).properties(width=WIDTH, height=300),
        WIDTH,
        f"Over depth: {_halves_text(stats['depth'])}",
        "Lines: medians over the heads of a layer; bands: middle half of them; dots: heads; dashed: medians of both halves.",
        about,
    )
