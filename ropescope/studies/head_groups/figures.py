"""The figure of a run on several heads in a layer: how pure each head is, and what is shared in each layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from ...charts import COLOURS, INSIDE, TICKS, Chart, Figure, chart_of
from ...measures.purity import POSITIONAL, SYMBOLIC
from ...runs import Run
from .sharing import kinds_of, layers_of

KINDS = {POSITIONAL: "pure positional", SYMBOLIC: "pure symbolic", 0: "neither"}
RANGE = [COLOURS["positional"], COLOURS["symbolic"], COLOURS["neutral"]]
NAMES = {"gptj": "GPT-J", "llama": "Llama"}
LINES = {"number": COLOURS["positional"], "letter": COLOURS["symbolic"]}


def figures(run: Run) -> dict[str, Figure]:
    """The figure of a run."""
    reading = (
        "Left: points near the corners are pure heads. Right: layers far right do work that no single head of them does; "
        "if shared work made heads impure, points would fall to the right."
    )
    return {"purity": Figure(purity_figure(run), reading)}


def purity_figure(run: Run) -> Chart:
    """Scores of every head; purity of the heads of every layer over the share of its work that no single head does."""
    columns: list[Chart] = []
    for model in dict.fromkeys(_name(row) for row in run.results["models"]):
        own = [row for row in run.results["models"] if _name(row) == model]
        panels = [_scores([row for row in own if row["task"] == task], task if not columns else "") for task in LINES]
        panels[0] = panels[0].properties(title=alt.TitleParams(model, fontSize=11.5, anchor="start"))
        columns.append(alt.vconcat(*panels, spacing=10))
    parts = [alt.hconcat(*columns, spacing=14)]
    working = [point for row in run.results["models"] if row["heads"] > 1 for point in _layers(row)]
    if working:
        parts.append(_work(working))
    heading = alt.TitleParams("Heads that share a layer", subtitle="First every head, then layers that do work", anchor="start")
    return alt.hconcat(*parts, spacing=28).resolve_scale(color="independent", shape="independent").properties(title=heading)


def _name(row: Mapping[str, Any]) -> str:
    return f"{NAMES[row['family']]}, {row['heads']} head{'s' if row['heads'] > 1 else ''} a layer"


def _scores(rows: Sequence[Mapping[str, Any]], title: str) -> Chart:
    points = []
    for row in rows:
        for (layer, head), kind in np.ndenumerate(kinds_of(row)):
            scores = {name: row[name][layer][head] for name in ("positional", "symbolic")}
            points.append({"head": f"L{layer}H{head}", "seed": row["seed"], "kind": KINDS[int(kind)], **scores})
    tooltip = ["head:N", "seed:Q", *(alt.Tooltip(f"{name}:Q", format=".2f") for name in ("positional", "symbolic"))]
    return (
        chart_of(points)
        .mark_point(filled=True, size=24, opacity=0.7)
        .encode(
            alt.X("positional:Q", title="positional score", scale=INSIDE, axis=TICKS),
            alt.Y("symbolic:Q", title=[*([f"{title} models:"] if title else []), "symbolic score"], scale=INSIDE, axis=TICKS),
            alt.Color("kind:N", title=None, scale=alt.Scale(domain=list(KINDS.values()), range=RANGE)),
            tooltip=tooltip,
        )
        .properties(width=120, height=120)
    )


def _layers(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    about = {"model": _name(row), "task": row["task"], "seed": row["seed"]}
    return [
        {**about, "layer": each.number, "purity": each.purity, "shared": each.shared, "damage": each.damage}
        for each in layers_of(row)
        if each.shared is not None
    ]


def _work(points: Sequence[Mapping[str, Any]]) -> Chart:
    tooltip = ["model:N", "seed:Q", "layer:Q", *(alt.Tooltip(f"{name}:Q", format=".2f") for name in ("purity", "damage"))]
    return (
        chart_of(points)
        .mark_point(filled=True, size=38, opacity=0.8)
        .encode(
            alt.X("shared:Q", title="share of a layer's work that no single head does", scale=INSIDE, axis=TICKS),
            alt.Y("purity:Q", title="mean purity of its heads", scale=INSIDE, axis=TICKS),
            alt.Color("task:N", title="task").scale(domain=list(LINES), range=list(LINES.values())),
            alt.Shape("model:N", title="model"),
            tooltip=tooltip,
        )
        .properties(width=230, height=230)
    )
