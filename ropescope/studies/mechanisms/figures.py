"""Figures of what a trained model's heads do: functions, changes, planes, one example (paper B, figures 3, 4 and 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ...charts import COLOURS, Chart, Figure, chart_of, literal
from ...runs import Run
from ...tasks import TASKS
from .claims import TABLE_1
from .tables import description, details

WIDTH, POINTS = 860, 400
"""Of charts that take the whole width, and of those that stand side by side."""
Results = Mapping[str, Any]
READING = {
    "functions": "Coloured bars are path nodes at which a head takes a step along the path; dark tiles are low accuracies.",
    "planes": "Dark tiles are the planes that move a head's weights; circles are their mean.",
    "example": "From the bottom up, what each position would say after each layer; lines show where nodes attend.",
}
"""How to read each figure."""


def figures(run: Run) -> dict[str, Figure]:
    """Figures named after tasks: functions, planes, and an example where the run stored one."""
    stored = details(run)
    return {
        f"{task}-{name}": Figure(chart, READING[name])
        for task, found in run.results.items()
        for name, chart in _task_figures(task, {**found, **stored.get(task, {})}, description(run.config[task], found)).items()
    }


def _task_figures(task: str, results: Results, about: str) -> dict[str, Chart]:
    heading = alt.TitleParams(f"{task} task: what its heads do", subtitle=about)
    flow = alt.hconcat(functions_chart(task, results), holds_chart(results)).resolve_scale(color="independent")
    what = alt.vconcat(flow, changes_chart(task, results)).resolve_scale(color="independent").properties(title=heading)
    parts = [planes_chart(task, results)]
    if any(name.startswith("points") for name in results):
        parts.append(points_chart(results))
    if "place_gaps" in results:
        parts.append(place_gaps_chart(results["place_gaps"]))
    planes = alt.vconcat(*parts).resolve_scale(color="independent")
    charts = {"functions": what, "planes": planes.properties(title=alt.TitleParams(f"{task} task: planes", subtitle=about))}
    return charts | {"example": example_chart(task, results["example"])} if "example" in results else charts


def _layer(field: str = "layer:N", total: int = 12, title: str = "layer") -> alt.Y:
    return alt.Y(field, title=title, sort=[f"L{n}" for n in range(total)])


def functions_chart(task: str, results: Results) -> Chart:
    """Per layer, the shares of path nodes at which its head does what."""
    flow, hop = results["flow"], TASKS[task].hop_name
    names = [f"{hop}, delivers the answer", f"{hop}, nothing there yet", "Reflexive", "other"]
    colour = COLOURS[TASKS[task].mechanism]
    values = []
    for layer, delivered in enumerate(flow["delivered"]):
        shares = (delivered, flow["hop"][layer] - delivered, flow["reflexive"][layer], flow["other"][layer])
        values += [
            {"layer": f"L{layer}", "does": name, "share": share, "rank": rank}
            for rank, (name, share) in enumerate(zip(names, shares, strict=True))
        ]
    return (
        chart_of(values)
        .mark_bar()
        .encode(
            x=alt.X("share:Q", title="share of path nodes", scale=alt.Scale(domain=[0, 1]), stack="zero"),
            y=_layer(total=len(flow["hop"])),
            color=alt.Color("does:N", title=None, sort=names, legend=alt.Legend(columns=2)).scale(
                domain=names, range=[colour, _pale(colour), "#BBBBBB", "#CC79A7"]
            ),
            order=alt.Order("rank:O"),
            tooltip=[alt.Tooltip("layer:N"), alt.Tooltip("does:N"), alt.Tooltip("share:Q", format=".4f")],
        )
        .properties(width=400, height=alt.Step(18), title="What each head does at the nodes of a path")
    )


def _pale(colour: str) -> str:
    """Half way to white."""
    return "#" + "".join(f"{(int(colour[n : n + 2], 16) + 255) // 2:02X}" for n in (1, 3, 5))


def holds_chart(results: Results) -> Chart:
    """Share of nodes that hold the answer, by layers passed and hops to go, beside the ideal."""
    flow = results["flow"]
    parts = {"trained model": flow["holds_answer_by_distance"], "ideal": flow["ideal_by_distance"]}
    charts = []
    for name, table in parts.items():
        values = [
            {"passed": passed, "distance": distance, "share": share}
            for passed, row in enumerate(table)
            for distance, share in enumerate(row, start=1)
        ]
        base = chart_of(values).encode(
            x=alt.X("distance:O", title="hops to the answer", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("passed:O", title="layers passed" if name == "trained model" else None),
        )
        tiles = base.mark_rect().encode(
            color=alt.Color("share:Q", title="hold the answer", scale=alt.Scale(scheme="viridis", domain=[0, 1])),
            tooltip=[alt.Tooltip("passed:O"), alt.Tooltip("distance:O"), alt.Tooltip("share:Q")],
        )
        text = base.mark_text(fontSize=9).encode(
            text=alt.Text("share:Q", format=".2f"),
            color=alt.condition("datum.share > 0.6", alt.value("black"), alt.value("white")),
        )
        charts.append((tiles + text).properties(width=190, height=alt.Step(18), title=name))
    return alt.hconcat(*charts)


def changes_chart(task: str, results: Results) -> Chart:
    """Accuracy per hop count when a layer is changed, alone and in groups."""
    kinds = {"out": "attends to nothing", "reflexive": "attends to itself", "hop": f"ideal {TASKS[task].hop_name}"}
    layers = len(results["flow"]["hop"])
    every = [f"L{n}" for n in range(layers)]
    charts = [
        _accuracy_tiles([(name, results["changes"][f"{name} {kind}"]) for name in every], title, n == 0)
        for n, (kind, title) in enumerate(kinds.items())
    ]
    groups = [(name, row) for name, row in results["changes"].items() if not name.startswith("L")]
    return alt.hconcat(*charts, _accuracy_tiles(groups, "in groups", True)).properties(
        title="Accuracy when the attention of a layer is replaced"
    )


def _accuracy_tiles(rows: Sequence[tuple[str, Sequence[float]]], title: str, labels: bool) -> Chart:
    values = [
        {"change": name, "hops": hops, "accuracy": accuracy} for name, row in rows for hops, accuracy in enumerate(row, start=1)
    ]
    axis = alt.Axis(labelLimit=260, labels=labels, ticks=labels)
    base = chart_of(values).encode(
        x=alt.X("hops:O", title="hops", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("change:N", title=None, sort=[name for name, _ in rows], axis=axis),
    )
    tiles = base.mark_rect().encode(
        color=alt.Color("accuracy:Q", title="accuracy", scale=alt.Scale(scheme="viridis", domain=[0, 1])),
        tooltip=[alt.Tooltip("change:N"), alt.Tooltip("hops:O"), alt.Tooltip("accuracy:Q", format=".4f")],
    )
    text = base.mark_text(fontSize=9).encode(
        text=alt.Text("accuracy:Q", format=".2f"),
        color=alt.condition("datum.accuracy > 0.6", alt.value("black"), alt.value("white")),
    )
    return (tiles + text).properties(width=150, height=alt.Step(18), title=title)


def planes_chart(task: str, results: Results) -> Chart:
    """Share of each plane in the spread of a head's logits, with the mean plane and paper B's."""
    planes = results["planes"]
    tiles_of, means = [], []
    for layer, row in enumerate(planes["spread"]):
        total = sum(row) or 1.0
        tiles_of += [{"layer": f"L{layer}", "plane": n, "share": share / total} for n, share in enumerate(row, start=1)]
        means.append({"layer": f"L{layer}", "plane": planes["mean_plane_by_spread"][layer], "of": "mean plane"})
        if len(planes["spread"]) == len(TABLE_1[task]):
            means.append({"layer": f"L{layer}", "plane": TABLE_1[task][layer], "of": "paper B, table 1"})
    total = len(planes["spread"])
    across = alt.Scale(domain=[0.5, len(planes["spread"][0]) + 0.5], nice=False)
    title = "RoPE plane, fastest first"
    tiles = (
        chart_of(tiles_of)
        .transform_calculate(left="datum.plane - 0.5", right="datum.plane + 0.5")
        .mark_rect()
        .encode(
            x=alt.X("left:Q", title=title, scale=across),
            x2=alt.X2("right:Q"),
            y=_layer(total=total),
            color=alt.Color("share:Q", title="share of spread").scale(scheme="greys", type="sqrt"),
            tooltip=[alt.Tooltip("layer:N"), alt.Tooltip("plane:Q"), alt.Tooltip("share:Q", format=".4f")],
        )
    )
    marks = (
        chart_of(means)
        .mark_point(size=70, filled=True)
        .encode(
            x=alt.X("plane:Q", title=title, scale=across),
            y=_layer(total=total),
            color=alt.Color("of:N", title=None).scale(
                domain=["mean plane", "paper B, table 1"], range=[COLOURS["symbolic"], COLOURS["positional"]]
            ),
            shape=alt.Shape("of:N", legend=None),
            tooltip=[alt.Tooltip("layer:N"), alt.Tooltip("of:N"), alt.Tooltip("plane:Q")],
        )
    )
    return (
        alt.layer(tiles, marks)
        .resolve_scale(color="independent")
        .properties(width=WIDTH, height=alt.Step(18), title="Which planes move a head's weights (last query, mean over inputs)")
    )


def points_chart(results: Results) -> Chart:
    """Queries and keys of one head of each kind in the plane it uses most."""
    charts = []
    for kind in ("positional", "symbolic"):
        found = results.get(f"points of {kind}")
        if found is None:
            continue
        for side in ("query", "key"):
            values = [point for point in found["points"] if point["side"] == side]
            names = sorted({point["name"] for point in values}, key=lambda name: (len(name), name))
            numbers = all(name.isdigit() for name in names)
            charts.append(
                chart_of(values)
                .mark_point(size=24, opacity=0.7, filled=side == "query")
                .encode(
                    x=alt.X("x:Q", title=None),
                    y=alt.Y("y:Q", title=None),
                    color=alt.Color("name:N", title=None, sort=names, legend=alt.Legend(columns=8, symbolLimit=40)).scale(
                        domain=names, scheme="viridis" if numbers else "category10"
                    ),
                    tooltip=[alt.Tooltip("side:N"), alt.Tooltip("name:N"), alt.Tooltip("x:Q"), alt.Tooltip("y:Q")],
                )
                .properties(
                    width=POINTS,
                    height=300,
                    title=[f"{kind} head L{found['layer']}, plane {found['plane']}", _legend(side, numbers, names)],
                )
            )
    rows = [alt.hconcat(*charts[n : n + 2]).resolve_scale(color="independent") for n in range(0, len(charts), 2)]
    return alt.vconcat(*rows).resolve_scale(color="independent")


def place_gaps_chart(found: Results) -> Chart:
    """The lead of the place sought over all others, as places grow in number."""
    values = [
        {"places": n, "head": head, "gap": gap}
        for head, row in found.items()
        if head.startswith("L")
        for n, gap in zip(found["reach"], row["gap"], strict=True)
    ]
    x = alt.X("places:Q", title="places to tell apart", axis=alt.Axis(values=[17, 50, 100, 200, 500, 1000, 2000, 5000])).scale(
        type="log", domain=[found["reach"][0], found["reach"][-1]], nice=False
    )
    lines = (
        chart_of(values)
        .mark_line(point=True)
        .encode(
            x=x,
            y=alt.Y("gap:Q", title="gap of logits (median)"),
            color=alt.Color("head:N", title="head").scale(scheme="viridis"),
            tooltip=[alt.Tooltip("head:N"), alt.Tooltip("places:Q"), alt.Tooltip("gap:Q")],
        )
    )
    zero = chart_of([{"gap": 0}]).mark_rule(strokeDash=[4, 3]).encode(y="gap:Q")
    title = "Positional heads: lead of the place sought over the best other one (below 0 it looks elsewhere)"
    return alt.layer(zero, lines).properties(width=WIDTH, height=200, title=title)


def _legend(side: str, numbers: bool, names: Sequence[str]) -> str:
    if side == "query":
        return "queries of path nodes, by " + ("their integer" if numbers else "the letter they seek")
    return "keys, by " + ("kind of token" if "integer" in names or "letter" in names else "their first letter")


def example_chart(task: str, found: Results) -> Chart:
    """One input: layers upwards, what each position would say, and where the nodes of the path look."""
    tokens, layers = found["tokens"], max(cell["passed"] for cell in found["cells"])
    charts = []
    for of in ("trained model", "ideal"):
        cells = [cell for cell in found["cells"] if cell["of"] == of]
        edges = [
            {"x": edge["from"], "x2": edge["to"], "y": edge["layer"], "y2": edge["layer"] + 1, "weight": edge["weight"]}
            for edge in found["edges"]
            if edge["of"] == of
        ]
        named = alt.Axis(
            values=list(range(len(tokens))),
            labelExpr=f"{literal(tokens)}[datum.value]",
            labelAngle=0,
            labelOverlap=False,
            grid=False,
            title=None,
        )
        up = alt.Axis(title="layers passed", tickCount=layers, grid=False)
        across = alt.Scale(domain=[-0.6, len(tokens) - 0.4], nice=False)
        layered = alt.Scale(domain=[-0.6, layers + 0.4], nice=False)
        x, y = alt.X("position:Q", axis=named, scale=across), alt.Y("passed:Q", axis=up, scale=layered)
        base = chart_of(cells)
        box = (
            base.transform_filter("datum.on_path")
            .mark_square(size=420, opacity=1)
            .encode(
                x=x,
                y=y,
                color=alt.Color("answer:N", title=None)
                .scale(domain=[True, False], range=[COLOURS["binding"], "#E6E6E6"])
                .legend(labelExpr="datum.value ? 'says the answer' : 'says something else'"),
                tooltip=[alt.Tooltip("position:Q"), alt.Tooltip("passed:Q"), alt.Tooltip("token:N"), alt.Tooltip("chance:Q")],
            )
        )
        text = base.mark_text(fontSize=9).encode(
            x=x, y=y, text=alt.Text("token:N"), opacity=alt.condition("datum.on_path", alt.value(1.0), alt.value(0.35))
        )
        lines = (
            chart_of(edges)
            .mark_rule(color=COLOURS[TASKS[task].mechanism])
            .encode(
                x=alt.X("x:Q", axis=named, scale=across),
                y=alt.Y("y:Q", axis=up, scale=layered),
                x2=alt.X2("x2:Q"),
                y2=alt.Y2("y2:Q"),
                strokeWidth=alt.StrokeWidth("weight:Q", title="weight").scale(domain=[0, 1], range=[0, 4]),
                tooltip=[alt.Tooltip("weight:Q")],
            )
        )
        charts.append(alt.layer(lines, box, text).properties(width=480, height=430, title=of))
    way = " → ".join(tokens[position] for position in found["path"])
    reading = "squares: the path; text: what the read-out says there; lines: the largest weight of each node"
    return alt.hconcat(*charts).properties(title=alt.TitleParams(f"{task} task, one input: {way}", subtitle=reading))
