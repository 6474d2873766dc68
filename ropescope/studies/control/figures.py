"""Figures of changed planes and heads: what a model can still do, beside random changes of the same size, and its scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from ...charts import COLOURS, Chart, Figure, chart_of
from ...runs import Run
from .tables import describe

GROUPS = {
    "dropped": ("planes dropped", COLOURS["positional"]),
    "stopped": ("planes stopped", COLOURS["binding"]),
    "kept": ("all other planes dropped", "#CC79A7"),
    "heads out": ("heads out", COLOURS["symbolic"]),
    "": ("as asked for", "#E69F00"),
}
"""What a change's name holds, to what kind of change it is."""
SHOWN = ("fast third dropped", "slow third dropped", "fast third stopped", "slow third stopped")
"""Changes whose scores are drawn, where there are so many."""


def figures(run: Run) -> dict[str, Figure]:
    """The figures of a run, by name."""
    changes, about = run.results["changes"], describe(run.config)
    return {
        "effects": Figure(
            effects_figure(changes, about),
            "A row for each change; where colour leaves the grey of random ones, it mattered which planes or heads they were.",
        ),
        "scores": Figure(
            scores_figure(changes, about), "Mean scores of a layer's heads before the change (dashed) and after it (solid)."
        ),
    }


def _group(name: str) -> str:
    return next(group for part, (group, _) in GROUPS.items() if part in name)


def effects_figure(changes: Mapping[str, Any], about: str) -> Chart:
    """A row for each change, a panel for each measure."""
    measures = [name for name in changes["nothing"]["measures"] if not name.endswith(": right")]
    panels = [_panel(changes, measure, first=measure == measures[0]) for measure in measures]
    subtitle = [about, "black line: nothing changed; grey: random planes or heads, as many, instead"]
    return (
        alt.hconcat(*panels, spacing=14)
        .resolve_scale(color="shared", y="shared")
        .properties(title=alt.TitleParams("Planes and heads changed", subtitle=subtitle, anchor="start", offset=12))
        .configure_axis(labelLimit=320, gridOpacity=0.4)
        .configure_legend(labelLimit=300)
    )


def _panel(changes: Mapping[str, Any], measure: str, first: bool) -> Chart:
    names = [name for name in changes if name != "nothing"]
    share = measure != "perplexity" and not measure.endswith("log probability")
    ends = ("least", "mean", "most")
    controls = {name: changes[name].get("random", {}).get(measure) for name in names}
    values = [
        {"change": name, "group": _group(name), "value": changes[name]["measures"][measure]}
        | {key: None if controls[name] is None else controls[name][key] for key in ends}
        for name in names
    ]
    scale = alt.Scale(type="log", padding=8) if measure == "perplexity" else alt.Scale(zero=False, padding=8)
    if share:
        scale = alt.Scale(domain=[0, 1.0], nice=False)
    axis = alt.Axis(values=[0, 0.5, 1], format=".1f") if share else alt.Axis(tickCount=4, labelOverlap=True)

    def across(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, axis=axis, title=None)

    labels = alt.Axis() if first else None
    y = alt.Y("change:N", sort=names, title=None, axis=labels)
    kinds = list(dict.fromkeys(_group(name) for name in names))
    shades = dict(GROUPS.values())
    colour = alt.Color("group:N", title=None, legend=alt.Legend(orient="bottom"))
    colour = colour.scale(domain=kinds, range=[shades[kind] for kind in kinds])
    rows = chart_of(values)
    known = rows.transform_filter("isValid(datum.mean)")
    tooltip = [alt.Tooltip("change:N"), *(alt.Tooltip(f"{key}:Q", format=".4f") for key in ("value", "least", "mean", "most"))]
    mark = rows.mark_bar(height={"band": 0.55}, opacity=0.85) if share else rows.mark_point(filled=True, size=60, opacity=1)
    before = chart_of([{"value": changes["nothing"]["measures"][measure]}])
    parts = [
        mark.encode(across("value"), y, color=colour, tooltip=tooltip),
        known.mark_rule(strokeWidth=3, color="#999999", opacity=0.9).encode(across("least"), y, x2=alt.X2("most:Q")),
        known.mark_tick(thickness=2, size=12, color="#555555").encode(across("mean"), y),
        before.mark_rule(color="#000000", strokeDash=[4, 3]).encode(across("value")),
    ]
    return alt.layer(*parts).properties(width=190, height=alt.Step(16), title=alt.TitleParams(measure, fontSize=11))


def scores_figure(changes: Mapping[str, Any], about: str) -> Chart:
    """Mean scores of each layer's heads before and after a few of the changes."""
    names = [name for name in SHOWN if name in changes] or [name for name in changes if name != "nothing"][:6]
    return (
        alt.hconcat(*(_scores(changes, name, name == names[0]) for name in names), spacing=14)
        .resolve_scale(color="shared", strokeDash="shared", y="shared")
        .properties(title=alt.TitleParams("What the change does to heads", subtitle=about, anchor="start", offset=12))
        .configure_axis(gridOpacity=0.4)
    )


def _scores(changes: Mapping[str, Any], name: str, first: bool) -> Chart:
    def rows(of: str, when: str) -> list[dict[str, Any]]:
        return [
            {"layer": layer, "score": score, "when": when, "value": value}
            for score in ("positional", "symbolic")
            for layer, value in enumerate(changes[of][score])
            if value is not None
        ]

    values = rows("nothing", "before") + rows(name, "after")
    colour = alt.Color("score:N", title="mean score", legend=alt.Legend(orient="bottom"))
    colour = colour.scale(domain=["positional", "symbolic"], range=[COLOURS["positional"], COLOURS["symbolic"]])
    dash = alt.StrokeDash("when:N", title="change", legend=alt.Legend(orient="bottom", symbolType="stroke"))
    dash = dash.scale(domain=["before", "after"], range=[[3, 3], [1, 0]])
    return (
        chart_of(values)
        .mark_line(strokeWidth=2)
        .encode(
            alt.X("layer:Q", title="layer", axis=alt.Axis(tickMinStep=1)),
            alt.Y("value:Q", title="mean over heads" if first else None, scale=alt.Scale(domain=[0, 1.0], nice=False)),
            color=colour,
            strokeDash=dash,
            tooltip=[
                alt.Tooltip("score:N"),
                alt.Tooltip("when:N"),
                alt.Tooltip("layer:Q"),
                alt.Tooltip("value:Q", format=".3f"),
            ],
        )
        .properties(width=230, height=200, title=alt.TitleParams(name, fontSize=11))
    )
