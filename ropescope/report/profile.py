"""Figures of a profiled language model: heads, planes, depth, and how much hangs on how scores are taken (paper A)."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import altair as alt
import numpy as np
import xarray as xr

from ..charts import COLOURS, INSIDE, PICKED, TICKS, Chart, Figure, Inline, Rows, across, corners, picked, up, write_chart
from ..experiments.profile_statistics import (
    MARGIN,
    SCORES,
    Table,
    by_input,
    mean_of_known,
    paired_means,
    plane_bands,
    plane_means,
)
from ..runs import Run, read_profile

Stats = Mapping[str, Any]

KINDS = ["positional", "mixed", "symbolic"]
KIND_COLOURS = alt.Scale(domain=KINDS, range=[COLOURS["positional"], "#999999", COLOURS["symbolic"]])
SCORE_COLOURS = alt.Scale(domain=list(SCORES), range=[COLOURS[score] for score in SCORES])
DARK_TO_LIGHT = alt.SchemeParams(name="viridis", extent=[0, 0.93])
"""Even steps to the eye, also to colour-blind ones; without the yellow end, which is lost on white."""
CLASSICAL = {"previous_token": "weight on the previous token", "induction": "induction", "sink": "weight on the first token"}
HEAD_TOOLTIP = [
    alt.Tooltip("name:N", title="head"),
    alt.Tooltip("kind:N"),
    alt.Tooltip("positional_said:N", title="positional"),
    alt.Tooltip("symbolic_said:N", title="symbolic"),
]


def write_figures(dataset: xr.Dataset, stats: Stats, about: str, folder: Path) -> list[str]:
    """All figures of a profile and its `statistics`; `about` says where the data come from. Returns the names of the files."""
    charts = figures(dataset, stats, about)
    return [file for name, chart in charts.items() for file in write_chart(chart, folder, name)]


def figures(dataset: xr.Dataset, stats: Stats, about: str) -> dict[str, Chart]:
    """All figures of a profile by name."""
    return {
        "heads": heads_chart(stats, about),
        "heat-maps": heat_map_chart(stats, about),
        "depth": depth_chart(stats, about),
        "planes": planes_chart(stats, about),
        "planes-of-heads": planes_of_heads_chart(dataset, stats, about),
        "norms": norms_chart(dataset, stats, about),
        "sensitivity": sensitivity_chart(dataset, stats, about),
        "classical": classical_chart(dataset, stats, about),
    }


READING = {
    "heads": "Right: weights stay at their places when keys move; up: they follow the keys. Click a head to see it everywhere.",
    "head": "Each RoPE plane of the chosen head scored alone, fastest left; below, how large its logits are in each plane.",
    "heat-maps": "One tile per head, layers downwards; on the right blue leans to places and orange to things.",
    "head-geometry": "Keys (circles) and queries (rays) in the plane it uses most.",
    "depth": "Each dot is a head; lines are medians over a layer, bands the middle half of its heads.",
    "planes": "Scores of single planes, mean over heads, from fast planes to slow ones; where lines cross, both are equal.",
    "planes-of-heads": "A small panel for each head: plane scores from the fastest plane (left) to the slowest (right).",
    "norms": "Bright tiles are the planes with the largest logits of a head; heads go from positional to symbolic.",
    "sensitivity": "Scores taken in another way (up) against the usual ones (across): on the dashed line nothing changes.",
    "classical": "The plane of heads again; darker heads have more of a score that is known from elsewhere.",
    "traces": "Bars are weights after a swap, black ticks before it: a positional head keeps to the ticks.",
    "path": "A head given its planes one by one, the largest first: rings mark the first and the last step.",
    "geometry": "Keys (circles) by position and queries (black), each head in the plane that it uses most.",
}
"""How to read each figure, in the order in which they stand on a page."""
BESIDE: dict[str, tuple[str | None, Literal["half", "two-thirds", "third"]]] = {
    "heads": (None, "half"),
    "head": ("One head, plane by plane", "half"),
    "heat-maps": (None, "two-thirds"),
    "head-geometry": ("One head, its queries and keys", "third"),
}
"""Titles and widths of figures that stand side by side."""


def of_run(run: Run) -> dict[str, Figure]:
    """All figures that can be drawn from what is in a run folder of `ropescope profile`."""
    stats = run.results
    about = f"{stats['model']}, {stats['precision']}; {stats['prompts']}"
    closer, scores = run.read("closer.json"), run.folder / "profile.nc"
    if scores.exists():
        dataset = read_profile(scores)
        charts = {**figures(dataset, stats, about), "head": head_chart(dataset, stats, about)}
    else:
        drawn = {"heads": heads_chart, "heat-maps": heat_map_chart, "depth": depth_chart, "planes": planes_chart}
        charts = {name: draw(stats, about) for name, draw in drawn.items()}
    if closer:
        charts |= {name: draw(closer[name], about) for name, draw in CLOSER.items()}
        charts["head-geometry"] = head_geometry_chart(closer["geometry"], about)
    return {name: Figure(charts[name], reading, *BESIDE.get(name, ())) for name, reading in READING.items() if name in charts}


def titled(chart: Chart, width: float, title: str, *lines: str) -> Chart:
    """The chart under a title that says what is seen, and lines on how to read it and where the data come from."""
    subtitle = [part for line in lines for part in textwrap.wrap(line, int(max(width, 560) / 5.9))]
    heading = alt.TitleParams(title, subtitle=subtitle, anchor="start", fontSize=15, subtitleColor="#555555", offset=12)
    return chart.properties(title=heading)


def _small(title: str, said: list[str] | None = None) -> alt.TitleParams:
    """The title of one panel among several."""
    more: dict[str, Any] = {"subtitle": said} if said else {}
    return alt.TitleParams(title, anchor="start", frame="group", fontSize=12, subtitleFontSize=10, **more)


def _legend(title: str, **more: Any) -> alt.Legend:
    """A legend whose symbols are not as pale as the bands of the chart."""
    return alt.Legend(title=title, symbolOpacity=1, **more)


def head_rows(stats: Stats, **more: Table) -> list[dict[str, Any]]:
    """One row per head that has scores, with its name, kind, both scores, their intervals, and `more` tables (layer, head)."""
    rows = []
    for n, layer in enumerate(stats["layer"]):
        for m, head in enumerate(stats["head"]):
            kind = stats["kind"][n][m]
            if kind == "unscored":
                continue
            row: dict[str, Any] = {"name": f"L{layer} H{head}", "layer": layer, "head": head, "kind": kind}
            for score in (*SCORES, "difference"):
                found = {end: stats["heads"][score][end][n][m] for end in ("mean", "low", "high")}
                row |= {score: _short(found["mean"]), f"{score}_said": _said(found)}
                row |= {f"{score}_{end}": _short(found[end]) for end in ("low", "high")}
            rows.append(row | {name: _short(values[n, m]) for name, values in more.items()})
    return rows


def _short(value: float | None, digits: int = 4) -> float | None:
    """Rounded, so that files stay small; None for NaN, which JSON does not have."""
    return None if value is None or not np.isfinite(value) else round(float(value), digits)


def _said(found: Mapping[str, float | None]) -> str:
    if found["low"] is None:
        return f"{found['mean']:.3f}"
    return f"{found['mean']:.3f} ({found['low']:.3f} to {found['high']:.3f})"


def _signed(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def heads_chart(stats: Stats, about: str) -> Chart:
    """Every head in the positional-symbolic plane by depth; the intervals of the head under the pointer."""
    rows = head_rows(stats)
    pointed = alt.selection_point(on="pointerover", nearest=True, empty=False, fields=["name"])
    base = alt.Chart(Inline(values=rows))
    points = (
        base.mark_circle(size=55, opacity=0.85, stroke="white", strokeWidth=0.5)
        .encode(
            across("positional"),
            up("symbolic"),
            color=alt.Color("layer:Q", title="layer").scale(scheme=DARK_TO_LIGHT).legend(gradientLength=200, tickCount=6),
            tooltip=HEAD_TOOLTIP,
        )
        .add_params(pointed)
    )
    shown = base.transform_filter(pointed)
    intervals = [
        shown.mark_rule().encode(across("positional_low"), up("symbolic"), x2=alt.X2("positional_high:Q")),
        shown.mark_rule().encode(across("positional"), up("symbolic_low"), y2=alt.Y2("symbolic_high:Q")),
    ]
    ring = base.transform_filter(f"datum.name == {PICKED}").mark_point(size=220, strokeWidth=3, opacity=1, color="black")
    chosen = ring.encode(across("positional"), up("symbolic")).add_params(picked())
    by_lead = sorted(rows, key=lambda row: float(row["difference"]))
    counted, found = stats["kinds"], stats["correlation"]
    title = f"{len(rows)} heads between places and things"
    reading = (
        f"{counted['positional']} heads lean to places by {MARGIN} or more, {counted['symbolic']} to things, "
        f"{counted['mixed']} to neither. Means over {stats['inputs']} prompts; point at a head for its 95 % intervals."
    )
    if found is not None:
        r, low, high = (_signed(found["pearson"][name]) for name in ("r", "low", "high"))
        title += f": r = {r}"
        reading += f" Interval of r, layers drawn anew: {low} to {high}."
    names = _names([*by_lead[:1], *by_lead[-1:]])
    plane = alt.layer(*corners(), *intervals, chosen, points, *names).properties(width=480, height=480)
    return titled(plane, 580, title, reading, about)


def _names(rows: Rows, field: str = "name") -> list[Chart]:
    """Names under heads in the positional-symbolic plane, with a white rim so that they can be read over others."""
    base = alt.Chart(Inline(values=list(rows)))
    look: dict[str, Any] = {"fontWeight": "bold", "dy": 15}
    rim = base.mark_text(stroke="white", strokeWidth=4, strokeJoin="round", **look)
    return [
        mark.encode(across("positional"), up("symbolic"), text=alt.Text(f"{field}:N")) for mark in (rim, base.mark_text(**look))
    ]


def heat_map_chart(stats: Stats, about: str) -> Chart:
    """Layer by head: both scores and their difference, side by side."""
    rows, heads = head_rows(stats), len(stats["head"])
    step = max(8, min(22, 300 // heads))
    scores = alt.Scale(scheme="viridis", domain=[0, 1])
    panels = {
        "positional": ("positional", scores),
        "symbolic": ("symbolic", scores),
        "difference": ("symbolic minus positional", alt.Scale(scheme="blueorange", domain=[-1, 1])),
    }
    charts = []
    for n, (score, (title, scale)) in enumerate(panels.items()):
        base = alt.Chart(Inline(values=rows)).encode(
            x=alt.X("head:O", title="head", axis=alt.Axis(labelAngle=0, labelOverlap="parity")).scale(domain=stats["head"]),
            y=alt.Y("layer:O", title="layer" if not n else None, scale=alt.Scale(domain=stats["layer"])),
        )
        legend = alt.Legend(orient="bottom", gradientLength=heads * step, gradientThickness=10, tickCount=5)
        colour = alt.Color(f"{score}:Q", title=None, scale=scale, legend=legend)
        tiles = base.mark_rect().encode(color=colour, tooltip=HEAD_TOOLTIP)
        # Two frames, so that the chosen tile is seen among dark and among light ones.
        shown = base.transform_filter(f"datum.name == {PICKED}")
        frames = [shown.mark_rect(filled=False, stroke=shade, strokeWidth=wide) for shade, wide in (("#000", 5), ("#FFF", 2))]
        chart = alt.layer(tiles, *frames).properties(width=alt.Step(step), height=alt.Step(13), title=title)
        charts.append(chart.properties(view=alt.ViewBackground(fill="#DDDDDD")))
    return titled(
        alt.hconcat(*charts, spacing=24).resolve_scale(color="independent").add_params(picked()),
        3 * heads * step + 120,
        f"Scores of every head: {_halves_said(stats['depth'])}",
        "Blue on the right: leans to places; orange: to things. Grey: no scores.",
        about,
    )


def _halves_said(depth: Stats) -> str:
    if depth["positional"] is None or depth["symbolic"] is None:
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
    colour = alt.Color("score:N", scale=SCORE_COLOURS, legend=_legend("score"))
    base = alt.Chart(Inline(values=rows)).encode(x=x, color=colour)
    heads = base.mark_circle(size=10, opacity=0.35).encode(
        y=y, tooltip=[alt.Tooltip("name:N"), alt.Tooltip("score:N"), alt.Tooltip("value:Q")]
    )
    spread = base.mark_errorband(extent="iqr", opacity=0.18).encode(y=y)
    medians = base.mark_line(point=alt.OverlayMarkDef(size=28)).encode(y=alt.Y("median(value):Q", title="score"))
    halves = [
        {"layer": first, "until": last, "score": score, "value": depth[part]}
        for score, depth in stats["depth"].items()
        if depth is not None
        for part, first, last in (("first", ends[0], layers[half - 1] + 0.5), ("second", layers[-half] - 0.5, ends[1]))
    ]
    rules = (
        alt.Chart(Inline(values=halves))
        .mark_rule(strokeDash=[5, 3], strokeWidth=1.5)
        .encode(x=x, x2=alt.X2("until:Q"), y=y, color=colour)
    )
    ring = base.transform_filter(f"datum.name == {PICKED}").mark_point(size=130, strokeWidth=2.5, opacity=1)
    return titled(
        alt.layer(heads, spread, rules, medians, ring.encode(y=y)).add_params(picked()).properties(width=640, height=300),
        740,
        f"Over depth: {_halves_said(stats['depth'])}",
        "Lines: medians over the heads of a layer; bands: middle half of them; dots: heads; dashed: medians of both halves.",
        about,
    )


def planes_chart(stats: Stats, about: str) -> Chart:
    """Mean plane scores from fast to slow planes, with intervals over layers; frequencies along the top."""
    found = stats["frequency"]
    rows = [
        {"plane": plane, "score": score, **{end: _short(found[score][end][n]) for end in ("mean", "low", "high")}}
        for score in SCORES
        for n, plane in enumerate(found["plane"])
    ]
    planes = len(found["plane"])
    ticks = sorted({1, *range(max(1, planes // 8), planes + 1, max(1, planes // 8))})
    scale = alt.Scale(domain=[0.5, planes + 0.5], nice=False)
    x = alt.X("plane:Q", title="RoPE plane, fastest first", scale=scale, axis=alt.Axis(grid=False, values=ticks))
    base = alt.Chart(Inline(values=rows)).encode(
        x=x,
        color=alt.Color("score:N", scale=SCORE_COLOURS, legend=_legend("plane score")),
        tooltip=[
            alt.Tooltip("plane:Q"),
            alt.Tooltip("score:N"),
            alt.Tooltip("mean:Q"),
            alt.Tooltip("low:Q"),
            alt.Tooltip("high:Q"),
        ],
    )
    y = alt.Y("mean:Q", title="mean over heads", scale=alt.Scale(domain=[0, 1]))
    lines = base.mark_line(point=alt.OverlayMarkDef(size=24)).encode(y=y)
    band = base.mark_area(opacity=0.2).encode(y=alt.Y("low:Q", title="mean over heads"), y2=alt.Y2("high:Q"))
    edges = [{"plane": which.stop + 0.5} for which in list(plane_bands(planes).values())[:-1]]
    rules = alt.Chart(Inline(values=edges)).mark_rule(color="#999999", strokeDash=[2, 3]).encode(x=x)
    top = alt.Axis(
        orient="top",
        values=ticks,
        labelExpr=f"{ ({n: _frequency_said(found['frequency'][n - 1]) for n in ticks})!r}[datum.value]",
        labelOverlap=False,
        title="frequency, rad per token",
        grid=False,
    )
    invisible = alt.Chart(Inline(values=[{"plane": n} for n in ticks])).mark_point(opacity=0)
    frequencies = invisible.encode(x=alt.X("plane:Q", scale=scale, axis=top))
    trend = found["trend_of_heads"]
    share = "in no head" if trend["share_rising"] is None else f"in {trend['share_rising']:.0%} of {trend['heads']} heads"
    return titled(
        alt.layer(alt.layer(rules, band, lines), frequencies).resolve_scale(x="independent").properties(width=640, height=280),
        740,
        f"Symbolic minus positional rises from fast to slow planes {share}",
        "Each plane scored alone. Bands: 95 % intervals, layers drawn anew. "
        "Dotted: borders of the fastest eighth and slowest third.",
        about,
    )


def _frequency_said(value: float | None) -> str:
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
            lists = {score: [_short(value, 3) for value in values[n, m]] for score, values in tables.items()}
            kind = stats["kind"][n][m]
            known = any(value is not None for value in lists["positional"])
            why = "" if known else "no scores" if kind == "unscored" else "no planes"
            rows.append(
                {"row": n, "column": m, "name": f"L{layer} H{head}", "kind": kind, "why": why, "plane": planes, **lists}
            )
    return rows


def planes_of_heads_chart(dataset: xr.Dataset, stats: Stats, about: str) -> Chart:
    """Plane scores of every head in a small panel of its own: layers downwards, heads across.

    All panels are drawn into one, side by side: hundreds of real facets take minutes and gigabytes.
    """
    planes = len(dataset["plane"])
    wide, high = max(26, min(72, 720 // len(stats["head"]))), 30
    rows = _plane_rows(dataset, stats)
    for row in rows:
        row["why"] = row["why"] if wide >= 50 else ""
    part = 0.94  # of its place is taken by a panel, the rest is left between panels

    def axis(numbers: list[int], title: str, **more: Any) -> alt.Axis:
        names = [str(number) for number in numbers]
        middles = [n + part / 2 for n in range(len(numbers))]
        look: dict[str, Any] = {"domain": False, "ticks": False, "grid": False, "labelOverlap": False, "labelFontSize": 9}
        return alt.Axis(values=middles, labelExpr=f"{names!r}[floor(datum.value)]", title=title, **look, **more)

    def x(field: str) -> alt.X:
        scale = alt.Scale(domain=[0, len(stats["head"])], nice=False)
        return alt.X(f"{field}:Q", scale=scale, axis=axis(stats["head"], "head", orient="top"))

    def y(field: str) -> alt.Y:
        scale = alt.Scale(domain=[len(stats["layer"]), 0], nice=False)
        return alt.Y(f"{field}:Q", scale=scale, axis=axis(stats["layer"], "layer"))

    base = alt.Chart(Inline(values=rows))
    blue, orange, white = (alt.value(colour) for colour in (COLOURS["positional"], COLOURS["symbolic"], "white"))
    shade = alt.when(kind="positional").then(blue).when(kind="symbolic").then(orange).otherwise(white)
    panels = (
        base.transform_calculate(right=f"datum.column + {part}", below=f"datum.row + {part}")
        .mark_rect(fillOpacity=0.14, stroke="#CCCCCC", strokeWidth=0.7)
        .encode(
            x("column"),
            y("row"),
            x2=alt.X2("right:Q"),
            y2=alt.Y2("below:Q"),
            fill=shade,
            tooltip=[alt.Tooltip("name:N"), alt.Tooltip("kind:N")],
        )
    )
    lines = (
        base.transform_flatten(["plane", *SCORES])
        .transform_fold(list(SCORES), ["score", "value"])
        .transform_filter("isValid(datum.value)")
        .transform_calculate(
            across=f"datum.column + {part} * (datum.plane - 0.5) / {planes}",
            up=f"datum.row + {part} * (0.97 - 0.94 * datum.value)",
        )
        .mark_line(strokeWidth=1.3 if wide > 50 else 0.9)
        .encode(
            x("across"),
            y("up"),
            detail=alt.Detail("name:N"),
            order=alt.Order("plane:Q"),
            color=alt.Color("score:N", scale=SCORE_COLOURS, legend=_legend("plane score", orient="top", titleOrient="left")),
        )
    )
    nothing = base.transform_calculate(middle=f"datum.column + {part / 2}", half=f"datum.row + {part / 2}")
    words = nothing.mark_text(color="#777777", fontSize=9).encode(x("middle"), y("half"), text=alt.Text("why:N"))
    share = stats["frequency"]["trend_of_heads"]["share_rising"] or 0.0
    frame = (
        base.transform_filter(f"datum.name == {PICKED}")
        .transform_calculate(right=f"datum.column + {part}", below=f"datum.row + {part}")
        .mark_rect(filled=False, stroke="black", strokeWidth=2.5)
        .encode(x("column"), y("row"), x2=alt.X2("right:Q"), y2=alt.Y2("below:Q"))
    )
    chart = alt.layer(panels, lines, words, frame).add_params(picked())
    chart = chart.properties(width=wide * len(stats["head"]), height=high * len(stats["layer"]))
    return titled(
        chart.properties(view=alt.ViewBackground(stroke=None)),
        wide * len(stats["head"]) + 40,
        f"Plane scores of every head: in {share:.0%}, symbolic gains on positional towards slow planes",
        f"In each panel from plane 1 (fastest, left) to {planes} (slowest, right); heights from 0 to 1. "
        "Each plane is scored alone. Shaded blue: head leans to places; orange: to things; white: to neither.",
        about,
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
            share = [_short(value / largest, 3) for value in values]
            kept = {"name": row["name"], "kind": row["kind"], "rank": len(heads)}
            heads.append(kept | {"share": share, "largest": _short(largest), "plane": planes})
    return heads


def norms_chart(dataset: xr.Dataset, stats: Stats, about: str) -> Chart:
    """Norm of the logits of each plane: mean over heads of a kind, and every head sorted by kind."""
    heads, planes = _norm_rows(dataset, stats), [int(n) for n in dataset["plane"].values]
    # Whole pixels for the rows and columns of tiles: those that end between pixels leave pale seams.
    width = max(2, 600 // len(planes)) * len(planes)
    x = alt.X(
        title="RoPE plane, fastest first",
        scale=alt.Scale(domain=[0.5, len(planes) + 0.5], nice=False),
        axis=alt.Axis(grid=False, tickMinStep=1),
    )
    parts = [_norms_by_kind(heads, planes, x).properties(width=width), _norms_of_heads(heads, x).properties(width=width)]
    return titled(
        alt.vconcat(*parts).resolve_scale(color="independent"),
        width + 120,
        _largest_said(stats["frequency"]["largest"]["norm"]["median"]),
        "Norm: root mean square of a plane's logits over keys, as a share of that of the head's largest plane.",
        about,
    )


def _largest_said(median: Mapping[str, float | None]) -> str:
    known = [f"{median[kind]:g} in {kind} heads" for kind in KINDS if median[kind] is not None]
    return "Plane with the largest logits (median): " + ", ".join(known) if known else "Logit norms of planes"


def _norms_by_kind(heads: Rows, planes: list[int], x: alt.X) -> Chart:
    rows = []
    for kind in KINDS:
        columns = zip(*(head["share"] for head in heads if head["kind"] == kind), strict=True)
        for plane, column in zip(planes, columns, strict=False):
            known = [value for value in column if value is not None]
            if known:
                low, high = np.quantile(known, [0.25, 0.75])
                found = {"mean": _short(np.mean(known)), "low": _short(low), "high": _short(high)}
                rows.append({"kind": kind, "plane": plane, **found})
    base = alt.Chart(Inline(values=rows)).encode(
        x=x.copy().field("plane").type("quantitative").title(None),
        color=alt.Color("kind:N", scale=KIND_COLOURS, legend=_legend("kind of head")),
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
    return alt.layer(band, lines).properties(height=180, title=_small("Mean over heads of a kind; bands: middle half of them"))


def _norms_of_heads(heads: Rows, x: alt.X) -> Chart:
    step = max(1, min(14, round(560 / max(1, len(heads)))))
    downwards = alt.Scale(domain=[len(heads), 0], nice=False)
    y = alt.Y("rank:Q", axis=None, scale=downwards)
    tiles = (
        alt.Chart(Inline(values=list(heads)))
        .transform_flatten(["plane", "share"])
        .transform_calculate(left="datum.plane - 0.5", right="datum.plane + 0.5", below="datum.rank + 1")
        .mark_rect()
        .encode(
            x=x.copy().field("left").type("quantitative"),
            x2=alt.X2("right:Q"),
            y=y,
            y2=alt.Y2("below:Q"),
            color=alt.Color("share:Q", title=["share of", "largest norm"], scale=alt.Scale(scheme="viridis", domain=[0, 1])),
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
            said = f"{len(ranks)} {kind}"
            groups.append(group | {"said": said if len(ranks) * step > 6.5 * len(said) else ""})
    of_kinds = alt.Chart(Inline(values=groups)).encode(color=alt.Color("kind:N", scale=KIND_COLOURS, legend=None))
    strip = of_kinds.mark_rect().encode(x=alt.value(-12), x2=alt.value(-4), y=y, y2=alt.Y2("below:Q"))
    names = of_kinds.mark_text(angle=270, fontWeight="bold").encode(
        x=alt.value(-22), y=alt.Y("middle:Q", axis=None, scale=downwards), text=alt.Text("said:N")
    )
    heading = _small("Every head, from most positional to most symbolic")
    return alt.layer(tiles, strip, names).resolve_scale(color="independent").properties(height=len(heads) * step, title=heading)


def sensitivity_chart(dataset: xr.Dataset, stats: Stats, about: str) -> Chart:
    """Scores of every head against those taken with other temperatures, tokens, permutations, or on right answers only."""
    found = stats["sensitivity"]
    usual = {score: by_input(dataset, score) for score in SCORES}
    ways = [
        (f"\N{GREEK SMALL LETTER TAU} = {row['tau']:g}".replace("e-0", "e-"), dataset.isel(tau=n), "by_tau", row)
        for n, row in enumerate(found["tau"])
        if not np.isclose(row["tau"], 1e-4)
    ]
    ways.append(("single tokens for blocks", dataset, "by_token", found["tokens"]))
    ways.append(("random permutations for swaps", dataset, "permuted", found["permutations"]))
    panels = [
        (title, {score: paired_means(usual[score], by_input(part, f"{score}_{suffix}")) for score in SCORES}, row)
        for title, part, suffix, row in ways
    ]
    if (row := stats["right_only"]["all_and_right"]) is not None:
        right = np.asarray(dataset["right"].values, dtype=bool)
        tables = {score: (mean_of_known(usual[score]), mean_of_known(usual[score][right])) for score in SCORES}
        panels.append((f"the {stats['right']} prompts answered right", tables, row))
    ranks = [row[score]["spearman"] for _, _, row in panels for score in SCORES if row[score] is not None]
    known = [rank for rank in ranks if rank is not None]
    title = "Scores taken in other ways"
    if known:
        title += f": rank correlation with the default from {_signed(min(known))} to {_signed(max(known))}"
    return titled(
        alt.concat(*(_against_identity(stats, *panel) for panel in panels), columns=3, spacing=24),
        900,
        title,
        "Across: scores as taken by default (swaps of blocks, \N{GREEK SMALL LETTER TAU} = 1e-4, all prompts). "
        "Up: taken otherwise. On the line: no difference. Moved: mean absolute difference over heads.",
        about,
    )


def _against_identity(stats: Stats, title: str, tables: Mapping[str, tuple[Table, Table]], agreed: Stats) -> Chart:
    rows, said = [], []
    for score, (usual, other) in tables.items():
        rows += [
            {"name": f"L{layer} H{head}", "score": score, "usual": _short(usual[n, m]), "other": _short(other[n, m])}
            for n, layer in enumerate(stats["layer"])
            for m, head in enumerate(stats["head"])
        ]
        if agreed[score] is not None and agreed[score]["spearman"] is not None:
            rank, moved = agreed[score]["spearman"], agreed[score]["mean_absolute_difference"]
            said.append(f"{score}: rank correlation {_signed(rank, 3)}, moved {moved:.3f}")
    x = alt.X("usual:Q", title="by default", scale=INSIDE, axis=TICKS)
    y = alt.Y("other:Q", title="otherwise", scale=INSIDE, axis=TICKS)
    shapes = alt.Scale(domain=list(SCORES), range=["circle", "triangle-up"])
    points = (
        alt.Chart(Inline(values=rows))
        .mark_point(filled=True, size=18, opacity=0.5)
        .encode(
            x=x,
            y=y,
            color=alt.Color("score:N", scale=SCORE_COLOURS, legend=_legend("score")),
            shape=alt.Shape("score:N", scale=shapes, legend=_legend("score")),
            tooltip=[alt.Tooltip("name:N"), alt.Tooltip("score:N"), alt.Tooltip("usual:Q"), alt.Tooltip("other:Q")],
        )
    )
    ends = Inline(values=[{"usual": end, "other": end} for end in (0, 1)])
    line = alt.Chart(ends).mark_line(color="black", strokeWidth=1, strokeDash=[4, 3]).encode(x=x, y=y)
    return alt.layer(points, line).properties(width=220, height=220, title=_small(title, said))


def classical_chart(dataset: xr.Dataset, stats: Stats, about: str) -> Chart:
    """Heads in the positional-symbolic plane, coloured by scores known from elsewhere."""
    rows = head_rows(stats, **{name: mean_of_known(by_input(dataset, name)) for name in CLASSICAL})
    charts, links = [], []
    for name, title in CLASSICAL.items():
        said = []
        for score, found in stats["classical"][name].items():
            if found is not None:
                r, p_value = found["spearman"]["r"], found["spearman"]["p_layers"]
                said.append(f"with {score}: rank correlation {_signed(r)}, p = {p_value:.2g}")
                links.append((abs(r), f"{title} and {score} score, rank correlation {_signed(r)}"))
        # Heads with high values are drawn last, lest the many low ones cover them.
        known = sorted((row for row in rows if row[name] is not None), key=lambda row: float(row[name]))
        kept = ("name", "kind", *SCORES, *(f"{score}_said" for score in SCORES), name)
        values = [{field: row[field] for field in kept} for row in known]
        points = (
            alt.Chart(Inline(values=values))
            .mark_circle(size=45, opacity=1, stroke="white", strokeWidth=0.4)
            .encode(
                across("positional").title("positional score"),
                up("symbolic").title("symbolic score"),
                color=alt.Color(f"{name}:Q", title=None)
                .scale(scheme=alt.SchemeParams(name="purples", extent=[0.2, 1]), domainMin=0)
                .legend(orient="bottom", gradientLength=240, gradientThickness=10, tickCount=5),
                tooltip=[*HEAD_TOOLTIP, alt.Tooltip(f"{name}:Q", title=title)],
            )
        )
        charts.append(points.properties(width=250, height=250, title=_small(title, said or ["on no input"])))
    return titled(
        alt.hconcat(*charts, spacing=28).resolve_scale(color="independent"),
        900,
        f"Strongest link to classical head scores: {max(links)[1]}" if links else "Classical head scores",
        "Induction: weight on the token after an earlier occurrence of the last one. Means over prompts. "
        "p: whole layers shuffled.",
        about,
    )


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
            base = alt.Chart(Inline(values=[row for row in of_head if row["swap"] == swap])).encode(x=x)
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
            panels.append(panel.properties(width=width, height=90, title=_small(swap) if head == heads[0] else ""))
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
        base = alt.Chart(Inline(values=path))
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
        ends = [row | {"said": str(row["kept"])} for row in (path[0], path[-1])]
        named = alt.Chart(Inline(values=ends))
        rings = named.mark_point(size=110, color="black", strokeWidth=1.5, opacity=1).encode(
            across("positional"), up("symbolic")
        )
        plane = alt.layer(*corners(named=False), line, points, rings, *_names(ends, "said"))
        charts.append(plane.properties(width=240, height=240, title=_small(f"{head}, {path[0]['kind']}")))
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
        of_head = [dict(row) | {"norm": float(np.hypot(row["x"], row["y"]))} for row in rows if row["head"] == head]
        keys, queries = ([row for row in of_head if row["what"] == what] for what in ("key", "query"))
        reach, longest = (max((row["norm"] for row in part), default=0.0) or 1.0 for part in (keys, queries))
        rays = [row | {"x": row["x"] / longest * reach, "y": row["y"] / longest * reach, "zero": 0} for row in queries]
        scale = alt.Scale(domain=[-1.12 * reach, 1.12 * reach], nice=False)
        x, y = (encode(f"{name}:Q", title=None, scale=scale).axis(tickCount=5) for encode, name in ((alt.X, "x"), (alt.Y, "y")))
        points = (
            alt.Chart(Inline(values=keys))
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
        drawn = alt.Chart(Inline(values=rays))
        shafts = drawn.mark_rule(strokeWidth=2).encode(
            x=alt.X("zero:Q", title=None, scale=scale),
            y=alt.Y("zero:Q", title=None, scale=scale),
            x2=alt.X2("x:Q"),
            y2=alt.Y2("y:Q"),
        )
        tips = drawn.mark_point(shape="diamond", filled=True, size=110, color="black", opacity=1)
        tips = tips.encode(x=x, y=y, tooltip=[alt.Tooltip("what:N"), alt.Tooltip("position:Q"), alt.Tooltip("norm:Q")])
        said = [f"plane {of_head[0]['plane']}; longest query {longest / reach:.2g} times the longest key"]
        heading = _small(f"{head}, {of_head[0]['kind']}", said)
        charts.append(alt.layer(points, shafts, tips).properties(width=250, height=250, title=heading))
    return titled(
        alt.concat(*charts, columns=3),
        300 * min(3, len(charts)),
        "Queries and keys in the plane a head uses most",
        "Circles: keys; black: queries, scaled so that the longest query is as long as the longest key.",
        about,
    )


def head_chart(dataset: xr.Dataset, stats: Stats, about: str) -> Chart:
    """Of the chosen head: scores of every plane alone, over the mean of all heads, and the norms of its planes."""
    rows, norms, found = _plane_rows(dataset, stats), _norm_rows(dataset, stats), stats["frequency"]
    by_lead = sorted(head_rows(stats), key=lambda row: float(row["difference"]))
    scale = alt.Scale(domain=[0.5, len(found["plane"]) + 0.5], nice=False)
    x = alt.X("plane:Q", title="RoPE plane, fastest first", scale=scale, axis=alt.Axis(grid=False, tickMinStep=1))
    y = alt.Y("value:Q", title="plane score", scale=alt.Scale(domain=[0, 1]))
    names = alt.Scale(domain=list(SCORES), range=["circle", "triangle-up"])
    colour = alt.Color("score:N", scale=SCORE_COLOURS, legend=_legend("plane score", orient="top"))
    frequency = {
        plane: _frequency_said(value)
        for plane, value in zip(found["plane"], found["frequency"], strict=True)
        if value is not None
    }
    said = f"{json.dumps(frequency)}[datum.plane]"
    mine = (
        alt.Chart(Inline(values=rows))
        .transform_filter(f"datum.name == {PICKED}")
        .transform_flatten(["plane", *SCORES])
        .transform_fold(list(SCORES), ["score", "value"])
        .transform_filter("isValid(datum.value)")
        .transform_calculate(frequency=said)
        .encode(x=x, y=y, color=colour)
    )
    shape = alt.Shape("score:N", scale=names, legend=_legend("plane score", orient="top"))
    tooltip = [
        alt.Tooltip("name:N"),
        alt.Tooltip("plane:Q"),
        alt.Tooltip("frequency:N", title="rad per token"),
        alt.Tooltip("score:N"),
        alt.Tooltip("value:Q"),
    ]
    means = [
        {"plane": plane, "score": score, "value": _short(value)}
        for score in SCORES
        for plane, value in zip(found["plane"], found[score]["mean"], strict=True)
    ]
    others = alt.Chart(Inline(values=means)).mark_line(strokeDash=[2, 3], opacity=0.6).encode(x=x, y=y, color=colour)
    points = mine.mark_point(filled=True, size=34, opacity=1).encode(shape=shape, tooltip=tooltip)
    scores = alt.layer(others, mine.mark_line(strokeWidth=2), points).properties(width=460, height=240)
    of_head = alt.Chart(Inline(values=norms)).transform_filter(f"datum.name == {PICKED}")
    bars = (
        of_head.transform_flatten(["plane", "share"])
        .mark_bar(size=round(0.75 * 460 / len(found["plane"]), 1), color=COLOURS["neutral"])
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
    chart = alt.vconcat(scores, bars, spacing=14).add_params(picked(by_lead[-1]["name"] if by_lead else ""))
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
    return chart.properties(title=title)


def head_geometry_chart(rows: Rows, about: str) -> Chart:
    """Queries and keys of the chosen head in the plane it uses most, if they were kept; rows as of `geometry_chart`."""
    names = list(dict.fromkeys(row["head"] for row in rows))
    values = []
    for name in names:
        of_head = [row for row in rows if row["head"] == name]
        for what in ("key", "query"):
            part = [row for row in of_head if row["what"] == what]
            # As long as the longest: often queries are many times as long as keys.
            reach = max((float(np.hypot(row["x"], row["y"])) for row in part), default=0.0) or 1.0
            values += [
                {"name": name, "what": what, "plane": row["plane"], "position": row["position"], "zero": 0}
                | {axis: _short(row[axis] / reach) for axis in ("x", "y")}
                for row in part
            ]
    scale = alt.Scale(domain=[-1.1, 1.1], nice=False)
    axis = alt.Axis(values=[-1, 0, 1])
    x, y = alt.X("x:Q", title="share of the longest", scale=scale, axis=axis), alt.Y("y:Q", title=None, scale=scale, axis=axis)
    base = alt.Chart(Inline(values=values)).transform_filter(f"datum.name == {PICKED}")
    keys = (
        base.transform_filter("datum.what == 'key'")
        .mark_circle(size=36, opacity=0.85)
        .encode(
            x=x,
            y=y,
            color=alt.Color("position:Q", title="position of key")
            .scale(scheme=DARK_TO_LIGHT, domain=[0, max((row["position"] for row in rows), default=1)])
            .legend(orient="bottom", gradientLength=180, gradientThickness=10, tickCount=5),
            tooltip=[
                alt.Tooltip("name:N"),
                alt.Tooltip("plane:Q"),
                alt.Tooltip("position:Q"),
                alt.Tooltip("x:Q"),
                alt.Tooltip("y:Q"),
            ],
        )
    )
    queries = base.transform_filter("datum.what == 'query'")
    rays = queries.mark_rule(strokeWidth=2, color="black").encode(
        x=alt.X("zero:Q", scale=scale), y=alt.Y("zero:Q", scale=scale), x2=alt.X2("x:Q"), y2=alt.Y2("y:Q")
    )
    tips = queries.mark_point(shape="diamond", filled=True, size=110, color="black", opacity=1)
    tips = tips.encode(x=x, y=y, tooltip=[alt.Tooltip("name:N"), alt.Tooltip("what:N"), alt.Tooltip("plane:Q")])
    known = f"indexof({json.dumps(names)}, {PICKED}) >= 0"
    note = (
        alt.Chart(Inline(values=[{"x": 0, "y": 0, "said": f"kept for {', '.join(names)}"}]))
        .transform_filter(f"!({known})")
        .mark_text(color=COLOURS["neutral"], fontSize=13)
        .encode(x=x, y=y, text=alt.Text("said:N"))
    )
    plane = {name: row["plane"] for name in names for row in values if row["name"] == name}
    title = alt.TitleParams(
        alt.expr(f"{known} ? {PICKED} + ' in its plane ' + {json.dumps(plane)}[{PICKED}] : {PICKED} + ': not kept'"),
        subtitle=["Keys as a share of the longest key, queries of the longest query.", about],
        anchor="start",
        fontSize=15,
        subtitleColor="#555555",
        offset=12,
    )
    chart = alt.layer(keys, rays, tips, note).properties(width=290, height=290, title=title)
    return chart.add_params(picked(names[-1] if names else ""))


CLOSER = {"traces": trace_chart, "path": path_chart, "geometry": geometry_chart}
"""Figures of heads looked at closely: their rows to their chart."""
