"""Charts of a study of windows: which key heads need everything, what windowing costs, how rankings compare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from ...charts import COLOURS, Chart, Figure, Inline, literal
from ...runs import Run
from .rankings import RANKINGS
from .tables import RANDOM

CROSS = "\N{MULTIPLICATION SIGN}"


def figures(run: Run) -> dict[str, Figure]:
    """Charts by name."""
    found = run.results
    result = {
        "need": Figure(
            _map(run), "Layers from left to right. Dark key heads need the whole context; crossed ones are windowed."
        ),
        "curve": Figure(
            _curve(found, str(run.config["ranking"])),
            "From left to right more key heads are windowed. Where a line falls below the dashed one, answers are lost.",
        ),
    }
    if found.get("correlations") is not None:
        result["rankings"] = Figure(
            _rankings(found["correlations"]), "Further right is better. Orange rankings are ours, grey ones are used by others."
        )
    return result


def _map(run: Run) -> Chart:
    found = run.results
    windowed = {tuple(place) for place in found["windowed"]}
    rows = [
        {"layer": layer, "head": head, "need": value, "state": "windowed" if (layer, head) in windowed else "whole context"}
        for layer, row in zip(found["layers"], found["need"], strict=True)
        for head, value in enumerate(row)
    ]
    axis = alt.Axis(labelAngle=0, labelOverlap="greedy", ticks=False, domain=False)
    base = alt.Chart(Inline(values=rows)).encode(
        x=alt.X("layer:O", title="layer, first to last", axis=axis), y=alt.Y("head:O", title="key head", axis=axis)
    )
    tooltip = [
        alt.Tooltip("layer:O"),
        alt.Tooltip("head:O", title="key head"),
        alt.Tooltip("need:Q", format=".2f"),
        alt.Tooltip("state:N"),
    ]
    tiles = base.mark_rect().encode(
        color=alt.Color("need:Q", title="rank of need", scale=alt.Scale(scheme="oranges", domain=[0, 1])), tooltip=tooltip
    )
    crosses = base.transform_filter("datum.state == 'windowed'").mark_text(text=CROSS, color="#444444", fontSize=10)
    seen = f"{run.config['sinks']} first and {run.config['window']} last positions ({CROSS})"
    subtitle = f"{len(found['windowed'])} of {found['candidates']} key heads see {seen}"
    return alt.layer(tiles, crosses).properties(
        width=900,
        height=max(60, min(300, 20 * int(found["key_heads"]))),
        title=alt.TitleParams("Which key heads need the whole context", subtitle=subtitle, anchor="start"),
    )


def _curve(found: Mapping[str, Any], chosen: str) -> Chart:
    curves, before = found["curves"], found["before"]
    kinds = [name for name in before if name.endswith("log probability")]
    panels = []
    for kind in kinds:
        rows = [
            {"share": share, "value": value, "ranking": RANDOM if name.startswith(RANDOM) else name, "line": name}
            for name, points in curves.items()
            for share, value in [(0.0, before[kind]), *((row["share"], row[kind]) for row in points)]
        ]
        names = list(dict.fromkeys(row["ranking"] for row in rows))
        x = alt.X("share:Q", title="share of key heads windowed", axis=alt.Axis(format="%"))
        y = alt.Y("value:Q", title="log probability of answers", scale=alt.Scale(zero=False))
        lines = (
            alt.Chart(Inline(values=rows))
            .mark_line(point=True)
            .encode(
                x=x,
                y=y,
                detail="line:N",
                color=alt.Color("ranking:N", scale=alt.Scale(domain=names, range=[_colour(name, chosen) for name in names])),
                opacity=alt.condition(f"datum.ranking == {literal(RANDOM)}", alt.value(0.35), alt.value(1)),
                strokeWidth=alt.condition(f"datum.ranking == {literal(chosen)}", alt.value(3), alt.value(1.3)),
                tooltip=[alt.Tooltip("ranking:N"), alt.Tooltip("share:Q", format=".0%"), alt.Tooltip("value:Q", format=".3f")],
            )
        )
        level = alt.Chart(Inline(values=[{"value": before[kind]}])).mark_rule(strokeDash=[4, 3]).encode(y="value:Q")
        panels.append(alt.layer(lines, level).properties(width=380, height=260, title=kind.partition(":")[0]))
    title = alt.TitleParams("What is lost as more key heads are windowed", anchor="start")
    return alt.hconcat(*panels, spacing=20).resolve_scale(color="shared").properties(title=title)


PALETTE = [
    "#0072B2",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#E69F00",
    "#F0E442",
    "#000000",
    "#8C564B",
    "#17BECF",
    "#BCBD22",
    "#9467BD",
    "#8B0000",
]


def _colour(name: str, chosen: str) -> str:
    if name == chosen:
        return COLOURS["symbolic"]
    known = [each for each in (*RANKINGS, "gates") if each != chosen]
    return PALETTE[known.index(name) % len(PALETTE)] if name in known else "#999999"


def _rankings(correlations: Mapping[str, Any]) -> Chart:
    rows = [
        {"ranking": name, "rho": each["rho"], "low": each["low"], "high": each["high"]}
        | {"whose": "ours" if name in RANKINGS and RANKINGS[name].ours else "used by others"}
        for name, each in correlations.items()
    ]
    names = [row["ranking"] for row in sorted(rows, key=lambda row: -row["rho"])]
    y = alt.Y("ranking:N", sort=names, title=None)
    colour = alt.Color("whose:N", title=None).scale(
        domain=["ours", "used by others"], range=[COLOURS["symbolic"], COLOURS["neutral"]]
    )
    base = alt.Chart(Inline(values=rows))
    tooltip = [alt.Tooltip("ranking:N"), *(alt.Tooltip(f"{key}:Q", format=".2f") for key in ("rho", "low", "high"))]
    bars = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("low:Q", title="rank correlation"), x2=alt.X2("high:Q"), y=y, color=colour
    )
    points = base.mark_point(filled=True, size=70, opacity=1).encode(x="rho:Q", y=y, color=colour, tooltip=tooltip)
    zero = alt.Chart(Inline(values=[{"x": 0}])).mark_rule(strokeDash=[3, 3], color="#999999").encode(x="x:Q")
    title = alt.TitleParams("Rankings against the damage of windowing each key head alone", anchor="start")
    return alt.layer(zero, bars, points).properties(width=500, height=alt.Step(18), title=title)
