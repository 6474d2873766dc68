"""The figure of length generalisation: accuracy against length, measured and predicted, and what the front takes (paper B, 5B)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from .charts import COLOURS, Chart, write_chart

WIDTH = 720
LINES = {
    "measured": ("measured", "#000000", [1, 0]),
    "keys and places": ("predicted: keys and places", COLOURS["positional"], [7, 3]),
    "keys alone": ("predicted: keys alone", COLOURS["symbolic"], [2, 3]),
}
PAPER_NAME = "paper B, approximate"
PAPER = {"letter": {850: 0.9, 3000: 0.65, 5000: 0.5}, "number": {250: 0.5, 1000: 0.2, 3000: 0.04}}
TICKS = (17, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)


def write_figures(task: str, results: Mapping[str, Any], about: str, folder: Path) -> list[str]:
    """The figure of one task, named after it; returns the names of the files."""
    return write_chart(generalise_figure(task, results, about), folder, task)


def generalise_figure(task: str, results: Mapping[str, Any], about: str) -> Chart:
    """Overall accuracy on top, a panel per hop count below, and what heads do at the bottom."""
    hops = [name for name in results["curves"]["measured"] if name != "overall"]
    gap = 24
    small = (WIDTH - gap * (len(hops) - 1)) // len(hops)
    overall = _accuracy(results, "overall", PAPER.get(task, {})).properties(width=WIDTH, height=280)
    per_hop = [
        _accuracy(results, name, {}, close=n > 0).properties(width=small, height=120, title=name) for n, name in enumerate(hops)
    ]
    half = (WIDTH - 2 * gap) // 2
    heads = [
        _heads(results, "front", "share of attention on the front", [0, 1]).properties(width=half, height=200),
        _heads(results, "margin", "margin of keys ahead (logits)", None).properties(width=half, height=200),
    ]
    # One legend of heads for both panels: the same scale.
    below = alt.hconcat(*heads, spacing=gap).resolve_scale(color="shared")
    heading = alt.TitleParams(
        "Accuracy beyond the length of training",
        subtitle=[
            about,
            "lines: means over seeds, bars: one standard deviation; predictions come from inputs of "
            f"{results['lengths'][0]} tokens alone",
        ],
        anchor="start",
        offset=14,
    )
    panels = (overall, alt.hconcat(*per_hop, spacing=gap), below)
    return (
        alt.vconcat(*panels, spacing=28)
        .resolve_scale(color="independent", strokeDash="independent", shape="independent")
        .properties(title=heading)
        .configure_legend(labelLimit=400)
        .configure_title(fontSize=13, subtitleFontSize=12)
    )


def _length(lengths: Sequence[int], close: bool = False) -> alt.X:
    first, last = lengths[0], max(lengths[-1], lengths[0] + 1)
    ticks = [n for n in TICKS if first <= n <= last]
    axis = alt.Axis(values=ticks[::3] if close else ticks, format=",d", gridOpacity=0.5)
    return alt.X("length:Q", title="tokens", axis=axis).scale(type="log", domain=[first, last], nice=False)


def _accuracy(results: Mapping[str, Any], name: str, paper: Mapping[int, float], close: bool = False) -> Chart:
    """Curves of one hop class, or of all; `close` panels stand to the right of another and need no axis title or legend."""
    overall = name == "overall"
    lengths = results["lengths"]
    values = [
        {"length": n, "line": line, "mean": mean, "sd": sd, "low": mean - (sd or 0), "high": mean + (sd or 0)}
        for kind, (line, _, _) in LINES.items()
        for n, mean, sd in zip(lengths, *(results["curves"][kind][name][key] for key in ("mean", "sd")), strict=True)
    ]
    x = _length(lengths, not overall)
    title = None if close else "accuracy"
    inside = alt.Scale(domain=[0, 1.0], nice=False)

    def up(field: str) -> alt.Y:
        ticks = alt.Axis(values=[0, 0.25, 0.5, 0.75, 1], gridOpacity=0.5, labels=not close)
        return alt.Y(f"{field}:Q", title=title, scale=inside, axis=ticks)

    names = [line for line, _, _ in LINES.values()]
    legend = alt.Legend(orient="bottom", symbolStrokeWidth=2, symbolSize=500) if overall else None
    colour = alt.Color("line:N", title=None, legend=legend).scale(domain=names, range=[look for _, look, _ in LINES.values()])
    dash = alt.StrokeDash("line:N", title=None, legend=legend).scale(domain=names, range=[dash for *_, dash in LINES.values()])
    base = alt.Chart(alt.InlineData(values=values))
    tooltip = ["line:N", "length:Q", alt.Tooltip("mean:Q", format=".4f"), alt.Tooltip("sd:Q", format=".4f")]
    parts: list[Chart] = [
        base.mark_line(strokeWidth=2, clip=True).encode(x, up("mean"), color=colour, strokeDash=dash),
        base.mark_rule(strokeWidth=1.5, clip=True).encode(x, up("low"), y2="high:Q", color=colour),
        base.mark_point(filled=True, size=36 if overall else 18, opacity=1).encode(x, up("mean"), color=colour, tooltip=tooltip),
    ]
    if shown := [
        {"length": n, "mean": value, "line": PAPER_NAME} for n, value in paper.items() if lengths[0] <= n <= lengths[-1]
    ]:
        shape = alt.Shape("line:N", title=None, legend=alt.Legend(orient="bottom")).scale(
            domain=[PAPER_NAME], range=["diamond"]
        )
        points = alt.Chart(alt.InlineData(values=shown)).mark_point(filled=False, size=130, color=COLOURS["binding"])
        points = points.encode(x, up("mean"), shape=shape, tooltip=["line:N", "length:Q", "mean:Q"])
        parts.append(points)
    return alt.layer(*parts)


def _heads(results: Mapping[str, Any], measure: str, title: str, domain: list[float] | None) -> Chart:
    """One line per head over length."""
    names = results["heads_are"]
    values = [
        {"length": n, "head": head, "value": value}
        for n, row in zip(results["lengths"], results["heads"]["measured"][measure], strict=True)
        for head, value in zip(names, row, strict=True)
    ]
    scale = alt.Scale(domain=domain) if domain else alt.Scale()
    return (
        alt.Chart(alt.InlineData(values=values))
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=18))
        .encode(
            _length(results["lengths"], True),
            alt.Y("value:Q", title=title, scale=scale, axis=alt.Axis(gridOpacity=0.5)),
            color=alt.Color("head:N", title="head", sort=names, legend=alt.Legend(symbolLimit=40)).scale(
                domain=names, scheme="viridis"
            ),
            tooltip=["head:N", "length:Q", alt.Tooltip("value:Q", format=".3f")],
        )
    )
