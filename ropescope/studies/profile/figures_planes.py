"""Charts of RoPE planes: scores and logit norms of each plane, over all heads and of single heads."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import xarray as xr

from ...charts import COLOURS, PICKED, Chart, Rows, chart_of, literal, picked
from .figures_layers import WIDTH
from .look import KIND_COLOURS, KINDS, SCORE_COLOURS, legend, small_title, titled
from .rows import Stats, head_rows, short
from .statistics import SCORES, plane_bands, plane_means

TITLE = "RoPE plane, fastest first"
BORDERS = "Dotted: borders of the fastest eighth and slowest third."


def planes_chart(stats: Stats, about: str) -> Chart:
    """Mean plane scores from fast to slow planes, and their difference, with quartiles over layers; frequencies on top."""
    found = stats["frequency"]
    planes, turning = len(found["plane"]), found.get("frequency", ())
    ticks = sorted({1, *range(max(1, planes // 8), planes + 1, max(1, planes // 8))})
    ends = [end for end in ("mean", "lower", "upper") if end in found["positional"]]  # before version 0.3 without quartiles
    trend = found["trend_of_heads"]
    title = "Scores of single planes"
    if trend.get("share_rising") is not None:
        share = f"{round(trend['share_rising'] * trend['heads'])} of {trend['heads']} heads"
        title = f"Symbolic minus positional rises from fast to slow planes in {share}"
    top = alt.Axis(
        orient="top",
        values=ticks,
        labelExpr=f"{literal({n: frequency_text(turning[n - 1]) for n in ticks})}[datum.value]",
        labelOverlap=True,
        title="frequency, rad per token",
        grid=False,
    )
    scale = alt.Scale(domain=[0.5, planes + 0.5], nice=False)
    invisible = chart_of([{"plane": n} for n in ticks]).mark_point(opacity=0)
    frequencies = invisible.encode(x=alt.X("plane:Q", scale=scale, axis=top))
    scores = _lines_over_planes(found, SCORES, ticks, ends, "mean score", None)
    charts = [alt.layer(scores, frequencies).resolve_scale(x="independent").properties(width=WIDTH, height=180)]
    if "mean" in found.get("difference", {}):
        below = _lines_over_planes(found, ("difference",), ticks, ends, "symbolic \N{MINUS SIGN} positional", TITLE)
        charts.append(below.properties(width=WIDTH, height=110))
    return titled(
        alt.vconcat(*charts, spacing=12).resolve_scale(x="independent", color="independent"),
        WIDTH,
        title,
        "Each plane scored alone. " + ("Bands: middle half of the layers. " if len(ends) == 3 else "") + BORDERS,
        about,
    )


def _lines_over_planes(
    found: Stats, names: Sequence[str], ticks: list[int], ends: list[str], title: str, below: str | None
) -> Chart:
    """Means over heads of some scores, plane by plane; the axis of planes is named if `below` is."""
    planes = len(found["plane"])
    rows = [
        {"plane": plane, "score": name, **{end: short(found[name][end][n]) for end in ends}}
        for name in names
        for n, plane in enumerate(found["plane"])
    ]
    # Heights from the lowest value on: what a single plane scores is often near 1.
    known = [value for row in rows for end in ends if (value := row[end]) is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    room = 0.06 * (high - low or 1)
    up = alt.Scale(domain=[low - room, high + room], nice=False, zero=False)
    scale = alt.Scale(domain=[0.5, planes + 0.5], nice=False)
    axis = alt.Axis(grid=False, values=ticks, labels=below is not None, ticks=below is not None)
    x = alt.X("plane:Q", title=below, scale=scale, axis=axis)
    base = chart_of(rows).encode(x=x)
    colour: Any = alt.value("#333333")
    if len(names) > 1:
        colour = alt.Color("score:N", scale=SCORE_COLOURS, legend=legend("plane score"))
    tooltip = [alt.Tooltip("plane:Q"), alt.Tooltip("score:N"), *(alt.Tooltip(f"{end}:Q") for end in ends)]
    line = base.mark_line(point=alt.OverlayMarkDef(size=24)).encode(
        y=alt.Y("mean:Q", title=title, scale=up), color=colour, tooltip=tooltip
    )
    parts = []
    if len(ends) == 3:
        parts.append(
            base.mark_area(opacity=0.2).encode(y=alt.Y("lower:Q", title=title, scale=up), y2=alt.Y2("upper:Q"), color=colour)
        )
    edges = [{"plane": which.stop + 0.5} for which in list(plane_bands(planes).values())[:-1]]
    rules = chart_of(edges).mark_rule(color="#999999", strokeDash=[2, 3]).encode(x=x)
    if len(names) == 1:
        parts.append(chart_of([{"mean": 0}]).mark_rule(color="#999999").encode(y=alt.Y("mean:Q", scale=up)))
    return alt.layer(rules, *parts, line)


def frequency_text(value: float | None) -> str:
    """A frequency in a few letters; nothing where there is none."""
    if value is None or value == 0:
        return "" if value is None else "0"
    return f"{value:.2g}" if value >= 1e-3 else f"{value:.1e}".replace("e-0", "e\N{MINUS SIGN}")


def _plane_rows(dataset: xr.Dataset, stats: Stats) -> list[dict[str, Any]]:
    """One row per head with its place, and lists of planes and their scores: a tenth of the size of a row per plane."""
    tables = {score: plane_means(dataset, score) for score in SCORES}
    planes = [int(n) for n in dataset["plane"].values]
    rows = []
    for n, layer in enumerate(stats["layer"]):
        for m, head in enumerate(stats["head"]):
            lists = {score: [short(value, 3) for value in values[n, m]] for score, values in tables.items()}
            kind = stats["kind"][n][m]
            known = any(value is not None for value in lists["positional"])
            why = "" if known else "no scores" if kind == "unscored" else "no planes"
            rows.append(
                {"row": n, "column": m, "name": f"L{layer} H{head}", "kind": kind, "why": why, "plane": planes, **lists}
            )
    return rows


PART = 0.94
"""Share of its place that the panel of a head takes; the rest is left between panels."""


def planes_of_heads_chart(dataset: xr.Dataset, stats: Stats, about: str) -> Chart:
    """Plane scores of every head in a small panel of its own: layers downwards, heads across.

    All panels are drawn into one, side by side: hundreds of real facets take minutes and gigabytes.
    """
    planes = len(dataset["plane"])
    wide, high = max(26, min(230, 920 // len(stats["head"]))), 30
    rows = _plane_rows(dataset, stats)
    for row in rows:
        row["why"] = row["why"] if wide >= 50 else ""

    def x(field: str) -> alt.X:
        scale = alt.Scale(domain=[0, len(stats["head"])], nice=False)
        return alt.X(f"{field}:Q", scale=scale, axis=_panel_axis(stats["head"], "head", orient="top"))

    def y(field: str) -> alt.Y:
        scale = alt.Scale(domain=[len(stats["layer"]), 0], nice=False)
        return alt.Y(f"{field}:Q", scale=scale, axis=_panel_axis(stats["layer"], "layer"))

    base = chart_of(rows)
    ends = {"right": f"datum.column + {PART}", "below": f"datum.row + {PART}"}
    place = {"x": x("column"), "y": y("row"), "x2": alt.X2("right:Q"), "y2": alt.Y2("below:Q")}
    blue, orange, white = (alt.value(colour) for colour in (COLOURS["positional"], COLOURS["symbolic"], "white"))
    shade = alt.when(kind="positional").then(blue).when(kind="symbolic").then(orange).otherwise(white)
    tooltip = [alt.Tooltip("name:N"), alt.Tooltip("kind:N")]
    panels = base.transform_calculate(**ends).mark_rect(fillOpacity=0.14, stroke="#CCCCCC", strokeWidth=0.7)
    nothing = base.transform_calculate(middle=f"datum.column + {PART / 2}", half=f"datum.row + {PART / 2}")
    words = nothing.mark_text(color="#777777", fontSize=9).encode(x("middle"), y("half"), text=alt.Text("why:N"))
    chosen = base.transform_filter(f"datum.name == {PICKED}").transform_calculate(**ends)
    frame = chosen.mark_rect(filled=False, stroke="black", strokeWidth=2.5).encode(**place)
    lines = _panel_lines(base, planes, 1.3 if wide > 50 else 0.9).encode(x("across"), y("up"))
    chart = alt.layer(panels.encode(**place, fill=shade, tooltip=tooltip), lines, words, frame).add_params(picked())
    chart = chart.properties(width=wide * len(stats["head"]), height=high * len(stats["layer"]))
    trend = stats["frequency"]["trend_of_heads"]
    rising = None if trend.get("share_rising") is None else round(trend["share_rising"] * trend["heads"])
    gains = "" if rising is None else f": in {rising} of {trend['heads']}, symbolic gains on positional towards slow planes"
    return titled(
        chart.properties(view=alt.ViewBackground(stroke=None)),
        wide * len(stats["head"]) + 40,
        f"Plane scores of every head{gains}",
        f"In each panel from plane 1 (fastest, left) to {planes} (slowest, right); heights from 0 to 1. "
        "Each plane is scored alone. Shaded blue: mainly positional head; orange: mainly symbolic; white: mixed.",
        about,
    )


def _panel_axis(numbers: list[int], title: str, **more: Any) -> alt.Axis:
    """Names of layers or heads at the middle of their panels."""
    names = [str(number) for number in numbers]
    middles = [n + PART / 2 for n in range(len(numbers))]
    look: dict[str, Any] = {"domain": False, "ticks": False, "grid": False, "labelOverlap": False, "labelFontSize": 9}
    return alt.Axis(values=middles, labelExpr=f"{literal(names)}[floor(datum.value)]", title=title, **look, **more)


def _panel_lines(base: Chart, planes: int, width: float) -> Chart:
    """Lines of both scores over planes inside the panel of each head."""
    return (
        base.transform_flatten(["plane", *SCORES])
        .transform_fold(list(SCORES), ["score", "value"])
        .transform_filter("isValid(datum.value)")
        .transform_calculate(
            across=f"datum.column + {PART} * (datum.plane - 0.5) / {planes}",
            up=f"datum.row + {PART} * (0.97 - 0.94 * datum.value)",
        )
        .mark_line(strokeWidth=width)
        .encode(
            detail=alt.Detail("name:N"),
            order=alt.Order("plane:Q"),
            color=alt.Color("score:N", scale=SCORE_COLOURS, legend=legend("plane score")),
        )
    )


def _norm_rows(dataset: xr.Dataset, stats: Stats) -> list[dict[str, Any]]:
    """One row per head from most positional to most symbolic, with lists of planes and of their shares of the largest norm."""
    norms = plane_means(dataset, "norm")
    planes = [int(n) for n in dataset["plane"].values]
    heads: list[dict[str, Any]] = []
    for row in sorted(head_rows(stats), key=lambda row: (KINDS.index(row["kind"]), row["difference"])):
        values = norms[stats["layer"].index(row["layer"]), stats["head"].index(row["head"])]
        if np.isfinite(values).any():
            largest = np.nanmax(values)
            share = [short(value / largest, 3) for value in values]
            named = {"name": row["name"], "kind": row["kind"], "rank": len(heads)}
            heads.append(named | {"share": share, "largest": short(largest), "plane": planes})
    return heads


def norms_chart(dataset: xr.Dataset, stats: Stats, about: str) -> Chart:
    """Norm of the logits of each plane: mean over heads of a kind, and every head sorted by kind."""
    heads, planes = _norm_rows(dataset, stats), [int(n) for n in dataset["plane"].values]
    # Whole pixels for the rows and columns of tiles: those that end between pixels leave pale seams.
    width = max(2, 880 // len(planes)) * len(planes)
    x = alt.X(
        title="RoPE plane, fastest first",
        scale=alt.Scale(domain=[0.5, len(planes) + 0.5], nice=False),
        axis=alt.Axis(grid=False, tickMinStep=1),
    )
    parts = [_norms_by_kind(heads, planes, x).properties(width=width), _norms_of_heads(heads, x).properties(width=width)]
    return titled(
        alt.vconcat(*parts).resolve_scale(color="independent"),
        width + 120,
        _largest_text(stats["frequency"]["largest"]["norm"]["median"]),
        "Norm: root mean square of a plane's logits over keys, as a share of that of the head's largest plane.",
        about,
    )


def _largest_text(median: Mapping[str, float | None]) -> str:
    known = [f"{median[kind]:g} in {kind} heads" for kind in KINDS if median.get(kind) is not None]
    return "Plane with the largest logits (median): " + ", ".join(known) if known else "Logit norms of planes"


def _norms_by_kind(heads: Rows, planes: list[int], x: alt.X) -> Chart:
    rows = []
    for kind in KINDS:
        columns = zip(*(head["share"] for head in heads if head["kind"] == kind), strict=True)
        for plane, column in zip(planes, columns, strict=False):
            known = [value for value in column if value is not None]
            if known:
                low, high = np.quantile(known, [0.25, 0.75])
                found = {"mean": short(np.mean(known)), "low": short(low), "high": short(high)}
                rows.append({"kind": kind, "plane": plane, **found})
    base = chart_of(rows).encode(
        x=x.copy().field("plane").type("quantitative").title(None),
        color=alt.Color("kind:N", scale=KIND_COLOURS, legend=legend("kind of head")),
        tooltip=[
            alt.Tooltip("kind:N"),
            alt.Tooltip("plane:Q"),
            alt.Tooltip("mean:Q"),
            alt.Tooltip("low:Q"),
            alt.Tooltip("high:Q"),
        ],
    )
    band = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title="share of largest norm"), y2=alt.Y2("high:Q"))
    lines = base.mark_line().encode(y=alt.Y("mean:Q", scale=alt.Scale(domain=[0, 1])))
    return alt.layer(band, lines).properties(
        height=180, title=small_title("Mean over heads of a kind; bands: middle half of them")
    )


def _norms_of_heads(heads: Rows, x: alt.X) -> Chart:
    step = max(1, min(14, round(560 / max(1, len(heads)))))
    downwards = alt.Scale(domain=[len(heads), 0], nice=False)
    y = alt.Y("rank:Q", axis=None, scale=downwards)
    tiles = (
        chart_of(list(heads))
        .transform_flatten(["plane", "share"])
        .transform_calculate(left="datum.plane - 0.5", right="datum.plane + 0.5", below="datum.rank + 1")
        .mark_rect()
        .encode(
            x=x.copy().field("left").type("quantitative"),
            x2=alt.X2("right:Q"),
            y=y,
            y2=alt.Y2("below:Q"),
            color=alt.Color("share:Q", title="share of largest norm", scale=alt.Scale(scheme="viridis", domain=[0, 1])),
            tooltip=[
                alt.Tooltip("name:N"),
                alt.Tooltip("kind:N"),
                alt.Tooltip("plane:Q"),
                alt.Tooltip("share:Q"),
                alt.Tooltip("largest:Q", title="head's largest norm"),
            ],
        )
    )
    groups = []
    for kind in KINDS:
        ranks = [head["rank"] for head in heads if head["kind"] == kind]
        if ranks:
            group = {"kind": kind, "rank": ranks[0], "below": ranks[-1] + 1, "middle": (ranks[0] + ranks[-1] + 1) / 2}
            # A name longer than its strip would run into the next one.
            text = f"{len(ranks)} {kind}"
            groups.append(group | {"text": text if len(ranks) * step > 6.5 * len(text) else ""})
    of_kinds = chart_of(groups).encode(color=alt.Color("kind:N", scale=KIND_COLOURS, legend=None))
    strip = of_kinds.mark_rect().encode(x=alt.value(-12), x2=alt.value(-4), y=y, y2=alt.Y2("below:Q"))
    names = of_kinds.mark_text(angle=270, fontWeight="bold").encode(
        x=alt.value(-22), y=alt.Y("middle:Q", axis=None, scale=downwards), text=alt.Text("text:N")
    )
    heading = small_title("Every head, from most positional to most symbolic")
    return alt.layer(tiles, strip, names).resolve_scale(color="independent").properties(height=len(heads) * step, title=heading)


def head_chart(dataset: xr.Dataset, stats: Stats, about: str) -> Chart:
    """Of the chosen head: scores of every plane alone, over the mean of all heads, and the norms of its planes."""
    rows, norms, planes = _plane_rows(dataset, stats), _norm_rows(dataset, stats), stats["frequency"]["plane"]
    by_lead = sorted(head_rows(stats), key=lambda row: float(row["difference"]))
    scale = alt.Scale(domain=[0.5, len(planes) + 0.5], nice=False, zero=False)
    x = alt.X("plane:Q", title=TITLE, scale=scale, axis=alt.Axis(grid=False, tickMinStep=1))
    of_head = chart_of(norms).transform_filter(f"datum.name == {PICKED}")
    bars = (
        of_head.transform_flatten(["plane", "share"])
        .mark_bar(size=round(0.75 * 460 / len(planes), 1), color=COLOURS["neutral"])
        .encode(
            x=x,
            y=alt.Y("share:Q", title="logit norm, share", scale=alt.Scale(domain=[0, 1])),
            tooltip=[
                alt.Tooltip("name:N"),
                alt.Tooltip("plane:Q"),
                alt.Tooltip("share:Q"),
                alt.Tooltip("largest:Q", title="head's largest norm"),
            ],
        )
        .properties(width=460, height=130)
    )
    chart = alt.vconcat(_scores_of_head(rows, stats, x.copy().title(None)), bars, spacing=14)
    title = alt.TitleParams(
        alt.expr(f"'Head ' + {PICKED} + ', plane by plane'"),
        subtitle=[
            *textwrap.wrap("Dotted: mean over all heads. Below: norm of logits as a share of the largest plane.", 90),
            about,
        ],
        anchor="start",
        fontSize=15,
        subtitleColor="#555555",
        offset=12,
    )
    return chart.add_params(picked(by_lead[-1]["name"] if by_lead else "")).properties(title=title)


def _scores_of_head(rows: Rows, stats: Stats, x: alt.X) -> Chart:
    """Scores of every plane of the chosen head, over the mean of all heads."""
    found = stats["frequency"]
    # Heights from the head's lowest score on: what a single plane scores is often near 1.
    y = alt.Y("value:Q", title="plane score", scale=alt.Scale(zero=False, domainMax=1))
    names = alt.Scale(domain=list(SCORES), range=["circle", "triangle-up"])
    colour = alt.Color("score:N", scale=SCORE_COLOURS, legend=legend("plane score"))
    frequency = {
        plane: frequency_text(value)
        for plane, value in zip(found["plane"], found.get("frequency", ()), strict=True)
        if value is not None
    }
    mine = (
        chart_of(list(rows))
        .transform_filter(f"datum.name == {PICKED}")
        .transform_flatten(["plane", *SCORES])
        .transform_fold(list(SCORES), ["score", "value"])
        .transform_filter("isValid(datum.value)")
        .transform_calculate(frequency=f"{literal(frequency)}[datum.plane]")
        .encode(x=x, y=y, color=colour)
    )
    shape = alt.Shape("score:N", scale=names, legend=legend("plane score"))
    tooltip = [
        alt.Tooltip("name:N"),
        alt.Tooltip("plane:Q"),
        alt.Tooltip("frequency:N", title="rad per token"),
        alt.Tooltip("score:N"),
        alt.Tooltip("value:Q"),
    ]
    means = [
        {"plane": plane, "score": score, "value": short(value)}
        for score in SCORES
        for plane, value in zip(found["plane"], found[score].get("mean", ()), strict=True)
    ]
    others = chart_of(means).mark_line(strokeDash=[2, 3], opacity=0.6).encode(x=x, y=y, color=colour)
    points = mine.mark_point(filled=True, size=34, opacity=1).encode(shape=shape, tooltip=tooltip)
    return alt.layer(others, mine.mark_line(strokeWidth=2), points).properties(width=460, height=240)
