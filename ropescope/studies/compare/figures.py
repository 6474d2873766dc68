"""Charts of a comparison: heads of one profile against the other, maps side by side, kinds by depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from ...charts import COLOURS, PICKED, Chart, Figure, chart_of, picked
from ...runs import Run
from .run import KINDS
from .tables import read_heads

RANGE = [COLOURS["positional"], "#999999", COLOURS["symbolic"], "#DDDDDD"]
TOOLTIP = [
    alt.Tooltip("name:N", title="head"),
    alt.Tooltip("lead_a:Q", format=".3f"),
    alt.Tooltip("lead_b:Q", format=".3f"),
    alt.Tooltip("change:Q", format=".3f"),
    alt.Tooltip("low:Q", format=".3f"),
    alt.Tooltip("high:Q", format=".3f"),
    alt.Tooltip("p_value:Q", format=".4f"),
]


def figures(run: Run) -> dict[str, Figure]:
    """Charts by name; those of single heads only if both profiles are of the same heads."""
    names: Mapping[str, str] = run.results["names"]
    found: dict[str, Figure] = {}
    rows = [row for row in read_heads(run) if row["change"] is not None]
    if rows:
        found["heads"] = Figure(
            _heads(rows, run.results, names),
            "One point per head. On the diagonal nothing changed; filled points changed beyond chance.",
            width="half",
        )
    found["depth"] = Figure(
        _depth(run.results, names), "Share of heads of each kind in each third of the layers.", width="half"
    )
    if rows:
        reading = "Layers from left to right. Blue is mainly positional, orange mainly symbolic."
        found["maps"] = Figure(_maps(rows, names), reading)
    return found


def _heads(rows: list[dict[str, Any]], results: Mapping[str, Any], names: Mapping[str, str]) -> Chart:
    shown = [row | {"sure": "p < 0.05" if (row["p_value"] or 1) < 0.05 else "within chance"} for row in rows]
    ends = alt.Scale(domain=[-1.05, 1.05], nice=False)
    base = chart_of(shown)
    kinds = alt.Scale(domain=list(KINDS[:3]), range=RANGE[:3])
    points = base.mark_point(size=45, filled=False).encode(
        x=alt.X("lead_a:Q", title="symbolic minus positional in a", scale=ends),
        y=alt.Y("lead_b:Q", title="symbolic minus positional in b", scale=ends),
        stroke=alt.Stroke("kind_b:N", title="kind in b", scale=kinds),
        fill=alt.Fill("kind_b:N", title="kind in b", scale=kinds),
        fillOpacity=alt.condition("datum.sure == 'p < 0.05'", alt.value(1), alt.value(0)),
        tooltip=TOOLTIP,
    )
    line = chart_of([{"x": -1, "y": -1}, {"x": 1, "y": 1}]).mark_line(color="#999999", strokeDash=[3, 3])
    ring = base.transform_filter(f"datum.name == {PICKED}").mark_point(size=220, strokeWidth=3, color="black")
    chosen = ring.encode(x="lead_a:Q", y="lead_b:Q").add_params(picked())
    title = f"{results['kept']} of {results['heads']} heads keep their kind"
    return alt.layer(line.encode(x="x:Q", y="y:Q"), chosen, points).properties(
        width=420, height=420, title=_title(title, names=names, more="filled: changed beyond chance")
    )


def _maps(rows: list[dict[str, Any]], names: Mapping[str, str]) -> Chart:
    """Layers across, heads down, as in a profile: both, and their difference."""
    charts: list[Chart] = []
    heads = len({row["head"] for row in rows})
    high = max(5, min(18, 220 // heads))
    for field, title in (
        ("lead_a", f"a: {names['a']}"),
        ("lead_b", f"b: {names['b']}"),
        ("change", "b minus a (colours end at -1 and 1)"),
    ):
        length = max(60, min(140, high * heads))
        colour = alt.Color(
            f"{field}:Q",
            title=None,
            scale=alt.Scale(scheme="blueorange", domain=[-1, 1], clamp=True),
            legend=alt.Legend(orient="right", gradientLength=length, gradientThickness=12, values=[-1, 0, 1], format=".0f"),
        )
        axis = alt.Axis(labelAngle=0, labelOverlap="greedy", ticks=False, domain=False)
        tiles = chart_of(rows).mark_rect()
        tiles = tiles.encode(
            x=alt.X("layer:O", title="layer, first to last" if field == "change" else None, axis=axis),
            y=alt.Y("head:O", title="head", axis=axis),
            color=colour,
            tooltip=TOOLTIP,
        )
        charts.append(tiles.properties(width=900, height=high * heads, title=_title(title, 12)))
    whole = alt.vconcat(*charts, spacing=14).resolve_scale(color="independent")
    return whole.properties(title=_title("Symbolic minus positional score of every head"))


def _depth(results: Mapping[str, Any], names: Mapping[str, str]) -> Chart:
    rows = [
        {"profile": name, "layers": third, "kind": kind, "share": share, "order": KINDS.index(kind)}
        for name, depth in zip("ab", results["depth"], strict=True)
        for third, shares in depth.items()
        for kind, share in shares.items()
    ]
    kinds = [kind for kind in KINDS if kind != "unscored" or any(row["share"] for row in rows if row["kind"] == kind)]
    bars = (
        chart_of(rows)
        .mark_bar()
        .encode(
            x=alt.X("sum(share):Q", title="share of heads", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("profile:N", title=None, axis=alt.Axis(labelLimit=260)),
            row=alt.Row(
                "layers:N", title=None, sort=list(results["depth"][0]), header=alt.Header(labelAngle=0, labelAlign="left")
            ),
            color=alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=RANGE[: len(kinds)])),
            order=alt.Order("order:Q"),
            tooltip=[alt.Tooltip("profile:N"), alt.Tooltip("kind:N"), alt.Tooltip("share:Q", format=".0%")],
        )
    )
    return bars.properties(width=360, height=60, title=_title("Kinds of heads by depth", names=names))


def _title(text: str, size: int = 15, names: Mapping[str, str] | None = None, more: str | None = None) -> alt.TitleParams:
    """A title, with the names of both profiles below it, which are too long for axes, and a line more."""
    lines = [f"{which}: {name}" for which, name in (names or {}).items()] + ([more] if more else [])
    below: dict[str, Any] = {"subtitle": lines} if lines else {}
    return alt.TitleParams(text, anchor="start", fontSize=size, **below)
