"""The figure of length generalisation (paper B, 5B): accuracy over length, measured and predicted, and what heads do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ...charts import COLOURS, Chart, Figure, chart_of
from ...runs import Run
from .claims import PAPER
from .tables import description

WIDTH = 860
LINES = {
    "measured": ("measured", "#000000", [1, 0]),
    "keys and places": ("predicted: keys and places", COLOURS["positional"], [7, 3]),
    "keys alone": ("predicted: keys alone", COLOURS["symbolic"], [2, 3]),
    "sharpened": ("measured, logits x log n / log 17", "#CC79A7", [8, 2, 2, 2]),
}
PAPER_NAME = "paper B, approximate"
TICKS = (17, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
FEW_TICKS = (17, 100, 1000, 10_000)


def figures(run: Run) -> dict[str, Figure]:
    """One figure for each task, named after it."""
    reading = "Black is measured; where blue and orange run along it, short inputs alone predict how far the model reaches."
    return {
        task: Figure(length_figure(task, found, description(task, run.config)), reading) for task, found in run.results.items()
    }


def length_figure(task: str, results: Mapping[str, Any], about: str) -> Chart:
    """Overall accuracy on top, a panel per hop count below, and what heads do at the bottom."""
    hops = [name for name in results["curves"]["measured"] if name != "overall"]
    gap = 40
    small = (WIDTH - gap * (len(hops) - 1)) // len(hops)
    overall = _accuracy(results, "overall", PAPER.get(task, {})).properties(width=WIDTH, height=280)
    per_hop = [_accuracy(results, name, {}).properties(width=small, height=120, title=name) for name in hops]
    half = (WIDTH - gap) // 2
    shown = {"front": "What path nodes give to the front", "margin": "Best key ahead against best wrong key"}
    heads = [_heads(results, key).properties(width=half, height=200, title=title) for key, title in shown.items()]
    # One legend of heads for both panels: the same scale.
    below = alt.hconcat(*heads, spacing=gap // 3).resolve_scale(color="shared")
    several = results["curves"]["measured"]["overall"].get("sd", (None,))[0] is not None
    lines = "lines: means over seeds, bands: one standard deviation; " if several else ""
    heading = alt.TitleParams(
        "Accuracy beyond the length of training",
        subtitle=[about, f"{lines}predictions come from inputs of {results['lengths'][0]} tokens alone"],
        anchor="start",
        offset=14,
    )
    panels = (overall, alt.hconcat(*per_hop, spacing=gap // 3), below)
    return (
        alt.vconcat(*panels, spacing=28)
        .resolve_scale(color="independent", strokeDash="independent", shape="independent")
        .properties(title=heading)
        .configure_legend(labelLimit=400)
        .configure_title(fontSize=13, subtitleFontSize=12)
    )


def _length(lengths: Sequence[int], ticks: Sequence[int] = TICKS) -> alt.X:
    first, last = lengths[0], max(lengths[-1], lengths[0] + 1)
    axis = alt.Axis(values=[n for n in ticks if first <= n <= last], format=",d", gridOpacity=0.5)
    return alt.X("length:Q", title="tokens", axis=axis).scale(type="log", domain=[first, last], nice=False)


def _accuracy(results: Mapping[str, Any], name: str, paper: Mapping[int, float]) -> Chart:
    """Curves of one hop class, or of all with a legend."""
    overall, lengths = name == "overall", results["lengths"]
    values = [
        {"length": n, "line": line, "mean": mean, "sd": sd, "low": mean - (sd or 0), "high": mean + (sd or 0)}
        for kind, (line, _, _) in LINES.items()
        for curve in (results["curves"][kind][name],)
        for n, mean, sd in zip(lengths, curve["mean"], curve.get("sd") or [None] * len(lengths), strict=True)
    ][::-1]  # the measured line comes last, so it lies on top
    x = _length(lengths, TICKS if overall else FEW_TICKS)

    def up(field: str) -> alt.Y:
        ticks = alt.Axis(values=[0, 0.2, 0.4, 0.6, 0.8, 1] if overall else [0, 0.5, 1], format=".1f", gridOpacity=0.5)
        title = "accuracy" if overall or name == "1-hop" else None
        return alt.Y(f"{field}:Q", title=title, scale=alt.Scale(domain=[0, 1.03], nice=False), axis=ticks)

    names = [line for line, _, _ in LINES.values()]
    look: dict[str, Any] = {"orient": "bottom", "symbolType": "stroke", "symbolStrokeWidth": 2, "symbolOpacity": 1}
    legend = alt.Legend(symbolSize=700, **look) if overall else None
    colour = alt.Color("line:N", title=None, legend=legend).scale(domain=names, range=[shade for _, shade, _ in LINES.values()])
    dash = alt.StrokeDash("line:N", title=None, legend=legend).scale(domain=names, range=[dash for *_, dash in LINES.values()])
    base = chart_of(values)
    tooltip = [
        alt.Tooltip("line:N"),
        alt.Tooltip("length:Q"),
        alt.Tooltip("mean:Q", format=".4f"),
        alt.Tooltip("sd:Q", format=".4f"),
    ]
    points = base.mark_point(filled=True, size=36 if overall else 18, opacity=1)
    parts: list[Chart] = [
        base.mark_area(opacity=0.15, clip=True).encode(x, up("low"), y2=alt.Y2("high:Q"), color=colour),
        base.mark_line(strokeWidth=2, clip=True).encode(x, up("mean"), color=colour, strokeDash=dash),
        points.encode(x, up("mean"), color=colour, tooltip=tooltip),
    ]
    shown = [{"length": n, "mean": value, "line": PAPER_NAME} for n, value in paper.items() if lengths[0] <= n <= lengths[-1]]
    if shown:
        # The padding puts its one entry on the line of the others, whose symbols are taller.
        shape = alt.Shape("line:N", title=None, legend=alt.Legend(orient="bottom", padding=8))
        shape = shape.scale(domain=[PAPER_NAME], range=["diamond"])
        theirs = chart_of(shown).mark_point(size=130, color=COLOURS["binding"], strokeWidth=2)
        parts.append(
            theirs.encode(
                x, up("mean"), shape=shape, tooltip=[alt.Tooltip("line:N"), alt.Tooltip("length:Q"), alt.Tooltip("mean:Q")]
            )
        )
    return alt.layer(*parts)


def _heads(results: Mapping[str, Any], measure: str) -> Chart:
    """One line per head over length."""
    names = results["heads_are"]
    values = [
        {"length": n, "head": head, "value": value}
        for n, row in zip(results["lengths"], results["heads"]["measured"][measure], strict=True)
        for head, value in zip(names, row, strict=True)
    ]
    up = alt.Y("value:Q", title="difference of logits", axis=alt.Axis(gridOpacity=0.5))
    if measure == "front":
        up = up.title("share of attention").scale(domain=[0, 1.03], nice=False)
    return (
        chart_of(values)
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=18))
        .encode(
            _length(results["lengths"]),
            up,
            color=alt.Color("head:N", title="head", sort=names, legend=alt.Legend(symbolLimit=40)).scale(
                domain=names, scheme="viridis"
            ),
            tooltip=[alt.Tooltip("head:N"), alt.Tooltip("length:Q"), alt.Tooltip("value:Q", format=".3f")],
        )
    )
