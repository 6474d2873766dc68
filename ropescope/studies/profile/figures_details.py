"""Charts of a few heads in detail: attention before and after swaps, scores plane by plane, queries and keys in a plane."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from ...charts import COLOURS, Chart, Rows, across, chart_of, corners, up
from .look import DARK_TO_LIGHT, head_names, small_title, titled


def trace_chart(rows: Rows, about: str) -> Chart:
    """Weights of blocks before and after swaps: a line of panels per head, a panel per swap.

    Rows: head (name), kind, swap (what was done, as "nothing moved" or "3 and 17 swapped"), block (number of place), weight,
    moved (whether this place holds another block than before). Heads and swaps stand in the order in which they come. The swap
    that comes first is the input as it is; its weights are drawn as ticks over the bars of the others.
    """
    heads, swaps = (list(dict.fromkeys(row[name] for row in rows)) for name in ("head", "swap"))
    before = {(row["head"], row["block"]): row["weight"] for row in rows if row["swap"] == swaps[0]}
    width = max(150, min(240, 960 // len(swaps)))
    places = list(dict.fromkeys(row["block"] for row in rows))
    apart = -(-len(places) // 8)
    lines = []
    for head in heads:
        of_head = [dict(row) | {"before": before[row["head"], row["block"]]} for row in rows if row["head"] == head]
        top = max(row["weight"] for row in of_head)
        panels = []
        for n, swap in enumerate(swaps):
            x = alt.X("block:O", title="place" if head == heads[-1] else None).axis(
                labelAngle=0, values=places[::apart], labels=head == heads[-1], ticks=False
            )
            sides = alt.Axis(tickCount=3, labels=not n, ticks=not n, domain=not n)
            high = alt.Scale(domain=[0, 1.12 * top], nice=False)
            y = alt.Y("weight:Q", title=[head, of_head[0]["kind"]] if not n else None, axis=sides, scale=high)
            base = chart_of([row for row in of_head if row["swap"] == swap]).encode(x=x)
            bars = base.mark_bar().encode(
                y=y,
                color=alt.Color("moved:N", title=None)
                .scale(domain=[False, True], range=["#BBBBBB", COLOURS["symbolic"]])
                .legend(labelExpr="datum.value ? 'place holds another block' : 'place holds the same block'", orient="bottom"),
                tooltip=[
                    alt.Tooltip("head:N"),
                    alt.Tooltip("swap:N"),
                    alt.Tooltip("block:O"),
                    alt.Tooltip("weight:Q"),
                    alt.Tooltip("before:Q"),
                ],
            )
            ticks = base.mark_tick(color="black", thickness=1.5).encode(y=alt.Y("before:Q", title=None, scale=high))
            panel = alt.layer(bars, ticks) if n else bars
            panels.append(panel.properties(width=width, height=90, title=small_title(swap) if head == heads[0] else ""))
        lines.append(alt.hconcat(*panels, spacing=12, bounds="flush"))
    return titled(
        alt.vconcat(*lines, spacing=6),
        (width + 10) * len(swaps) + 60,
        "Attention to blocks when two of them change places",
        "Bars: weight at each place; black ticks: before the swap. A positional head keeps to the ticks, a symbolic one "
        "moves its weight with the block.",
        about,
    )


def path_chart(rows: Rows, about: str) -> Chart:
    """Where heads land in the positional-symbolic plane as they are given their planes one by one, the largest norm first.

    Rows: head (name), kind, kept (number of planes kept), positional, symbolic.
    """
    most = max(row["kept"] for row in rows)
    doubled = [2**n for n in range(int(most).bit_length())]
    charts = []
    for head in dict.fromkeys(row["head"] for row in rows):
        path = sorted((dict(row) for row in rows if row["head"] == head), key=lambda row: int(row["kept"]))
        base = chart_of(path)
        line = base.mark_line(color="#999999", strokeWidth=1).encode(
            across("positional"), up("symbolic"), order=alt.Order("kept:Q")
        )
        points = base.mark_circle(size=40, opacity=1).encode(
            across("positional"),
            up("symbolic"),
            color=alt.Color("kept:Q", title="planes kept").scale(type="log", scheme=DARK_TO_LIGHT).legend(values=doubled),
            tooltip=[
                alt.Tooltip("head:N"),
                alt.Tooltip("kind:N"),
                alt.Tooltip("kept:Q"),
                alt.Tooltip("positional:Q"),
                alt.Tooltip("symbolic:Q"),
            ],
        )
        ends = [row | {"text": str(row["kept"])} for row in (path[0], path[-1])]
        named = chart_of(ends)
        rings = named.mark_point(size=110, color="black", strokeWidth=1.5, opacity=1).encode(
            across("positional"), up("symbolic")
        )
        plane = alt.layer(*corners(named=False), line, points, rings, *head_names(ends, "text"))
        charts.append(plane.properties(width=240, height=240, title=small_title(f"{head}, {path[0]['kind']}")))
    return titled(
        alt.concat(*charts, columns=3),
        300 * min(3, len(charts)),
        "Where heads land as their planes are added one by one",
        "Planes with the largest logit norm come first, those not yet added are left out. Shaded: corners of "
        "pure positional, pure symbolic and uniform heads.",
        about,
    )


def geometry_chart(rows: Rows, about: str) -> Chart:
    """Queries and keys of heads in the plane each uses most, a panel per head, keys coloured by position.

    Rows: head (name), kind, plane (counted from 1), what ("query" or "key"), x, y, position, block (number; None outside all
    of them). Queries are drawn as rays as long as the longest key, since often one is many times as long as the other.
    """
    charts = []
    for head in dict.fromkeys(row["head"] for row in rows):
        of_head: list[dict[str, Any]] = [
            {key: row.get(key) for key in row} | {"norm": float(np.hypot(row["x"], row["y"]))}
            for row in rows
            if row["head"] == head
        ]
        keys, queries = ([row for row in of_head if row["what"] == what] for what in ("key", "query"))
        reach, longest = (max((row["norm"] for row in part), default=0.0) or 1.0 for part in (keys, queries))
        rays = [row | {"x": row["x"] / longest * reach, "y": row["y"] / longest * reach, "zero": 0} for row in queries]
        scale = alt.Scale(domain=[-1.12 * reach, 1.12 * reach], nice=False)
        x, y = (encode(f"{name}:Q", title=None, scale=scale).axis(tickCount=5) for encode, name in ((alt.X, "x"), (alt.Y, "y")))
        points = (
            chart_of(keys)
            .mark_circle(size=30, opacity=0.85)
            .encode(
                x=x,
                y=y,
                color=alt.Color("position:Q", title="position of key").scale(scheme=DARK_TO_LIGHT),
                tooltip=[
                    alt.Tooltip("position:Q"),
                    alt.Tooltip("block:N"),
                    alt.Tooltip("x:Q"),
                    alt.Tooltip("y:Q"),
                    alt.Tooltip("norm:Q"),
                ],
            )
        )
        drawn = chart_of(rays)
        shafts = drawn.mark_rule(strokeWidth=2).encode(
            x=alt.X("zero:Q", title=None, scale=scale),
            y=alt.Y("zero:Q", title=None, scale=scale),
            x2=alt.X2("x:Q"),
            y2=alt.Y2("y:Q"),
        )
        tips = drawn.mark_point(shape="diamond", filled=True, size=110, color="black", opacity=1)
        tips = tips.encode(x=x, y=y, tooltip=[alt.Tooltip("what:N"), alt.Tooltip("position:Q"), alt.Tooltip("norm:Q")])
        lines = [f"plane {of_head[0]['plane']}; longest query {longest / reach:.2g} times the longest key"]
        heading = small_title(f"{head}, {of_head[0]['kind']}", lines)
        charts.append(alt.layer(points, shafts, tips).properties(width=250, height=250, title=heading))
    return titled(
        alt.concat(*charts, columns=3),
        300 * min(3, len(charts)),
        "Queries and keys in the plane a head uses most",
        "Circles: keys; black: queries, scaled so that the longest query is as long as the longest key.",
        about,
    )


DETAILS = {"traces": trace_chart, "path": path_chart, "geometry": geometry_chart}
"""Charts by the name of their rows in the details of heads."""
