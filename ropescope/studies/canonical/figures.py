"""Figures of the canonical tasks: accuracy against angle, over training and over places; directions of queries and keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import altair as alt

from ...charts import COLOURS, Chart, Figure, chart_of, literal
from ...runs import Run
from ..claims import small_p

TITLES = {
    "index": "Index",
    "retrieval": "Retrieval",
    "partial induction": "one plane",
    "partial induction, with a still plane": "a plane of angle 0 and this one",
    "partial induction, few symbols": "one plane, {few} symbols",
}
COLOUR_OF = dict(
    zip(TITLES, (*(COLOURS[kind] for kind in ("positional", "symbolic", "neutral", "binding")), "#CC79A7"), strict=True)
)
ACCURACY = alt.Scale(domain=[0, 1.02], nice=False)
RANK: Literal["viridis"] = "viridis"


READING = {
    "angles": "Accuracy after training at each angle, slow ones left; where lines cross, both tasks go equally well.",
    "learning": "A line for each angle, dark for slow ones; lines that stay low never learn the task.",
    "places": "A line for each angle that neither fails nor solves a task, by the place of the answer; below, built heads.",
    "trajectories": "Lines are queries and keys during training, from the start to the dots at the end; right: all seeds.",
}
"""How to read each figure."""


def figures(run: Run) -> dict[str, Figure]:
    """The figures of a run, by name; the one of learning needs the curves."""
    results, curves, about = run.results, run.read("curves.json"), {**run.config, **run.config["training"]}
    trained = results["trained"]
    charts = {"angles": angle_figure(trained, about)}
    if curves is not None:
        charts["learning"] = learning_figure(trained, curves, about)
    charts["places"] = place_figure(results, about)
    charts["trajectories"] = trajectory_figure(trained["trajectories"], about)
    return {name: Figure(chart, READING[name]) for name, chart in charts.items()}


def _heading(title: str, *subtitle: str) -> alt.TitleParams:
    return alt.TitleParams(title, subtitle=list(subtitle), anchor="start", offset=12)


def _legend() -> alt.Legend:
    """Below a panel, with lines as bold as those they name, whatever bands are as pale."""
    return alt.Legend(orient="bottom", symbolType="stroke", symbolOpacity=1, symbolStrokeWidth=3, labelLimit=300, columns=6)


def _step_axis() -> alt.X:
    """Training steps: logarithmic but for the first few, so that the start has a place."""
    axis = alt.Axis(gridOpacity=0.5, values=[0, 10, 30, 100, 300, 1000, 3000])
    return alt.X("step:Q", title="training step", axis=axis).scale(type="symlog", constant=10, nice=False)


def _settings(about: Mapping[str, Any]) -> str:
    return (
        f"one layer, one head; {about['items']} items, {about['steps']:,} steps of {about['batch']} sequences, "
        f"{about['seeds']} seeds from {about['seed']}"
    )


def _angle_axis(angles: list[float]) -> tuple[alt.X, dict[float, float]]:
    """A logarithmic axis on which 0 has a place of its own, left of the slowest angle; and where every angle goes."""
    zero = angles[1] / 3
    ticks = [zero, *(t for t in (1e-4, 1e-3, 1e-2, 1e-1, 1.0) if angles[1] * 0.99 <= t <= angles[-1])]
    axis = alt.Axis(values=ticks, labelExpr=f"datum.value < {zero * 1.01} ? '0' : format(datum.value, '~g')", gridOpacity=0.5)
    scale = alt.Scale(type="log", domain=[zero * 0.8, angles[-1] * 1.2], nice=False)
    return alt.X("x:Q", title="angle per position", axis=axis, scale=scale), {a: a or zero for a in angles}


def angle_figure(trained: Mapping[str, Any], about: Mapping[str, Any]) -> Chart:
    """Final accuracy against angle: Index and Retrieval (left), partial induction with one plane and with two (right)."""
    angles = trained["angles"]
    x, where = _angle_axis(angles)
    names = {sweep: title.format(**about) for sweep, title in TITLES.items()}

    def panel(sweeps: list[str], title: str) -> Chart:
        values = [
            {"x": where[angle], "angle": angle, "line": names[sweep]}
            | {key: trained["sweeps"][sweep][key][at] for key in ("mean", "least", "most")}
            for sweep in sweeps
            for at, angle in enumerate(angles)
        ]
        base = chart_of(values)
        colour = alt.Color("line:N", title=None, legend=_legend()).scale(
            domain=[names[sweep] for sweep in sweeps], range=[COLOUR_OF[sweep] for sweep in sweeps]
        )
        y = alt.Y("mean:Q", title="accuracy after training", scale=ACCURACY, axis=alt.Axis(gridOpacity=0.5))
        tooltip = [
            alt.Tooltip("line:N"),
            alt.Tooltip("angle:Q", format=".3g"),
            *(alt.Tooltip(f"{k}:Q", format=".3f") for k in ("mean", "least", "most")),
        ]
        band = base.mark_area(opacity=0.2).encode(x, alt.Y("least:Q", scale=ACCURACY), y2=alt.Y2("most:Q"), color=colour)
        line = base.mark_line(strokeWidth=2).encode(x, y, color=colour)
        points = base.mark_point(filled=True, size=36, opacity=1).encode(x, y, color=colour, tooltip=tooltip)
        return alt.layer(band, line, points, *rules(sweeps)).properties(width=430, height=300, title=title)

    def rules(sweeps: list[str]) -> list[Chart]:
        if sweeps[0] == "index":
            at = trained["crossing"].get("of_means")
            if at is None:
                return []
            base = chart_of([{"x": at, "name": f"equal at {at:.3g}", "y": 0.06}])
            text = base.mark_text(align="left", dx=5, color="#333333").encode(
                x, alt.Y("y:Q", scale=ACCURACY), text=alt.Text("name:N")
            )
            return [base.mark_rule(strokeDash=[4, 3], color="#333333").encode(x), text]
        blind = trained["order_blind"]["partial induction"]
        values = [{"y": blind, "low": 0.06, "x": angles[-1], "name": f"dashed: best without seeing the order, {blind:.2f}"}]
        base = chart_of(values)
        rule = base.mark_rule(strokeDash=[4, 3], color="#333333").encode(alt.Y("y:Q", scale=ACCURACY))
        text = base.mark_text(align="right", color="#333333").encode(x, alt.Y("low:Q", scale=ACCURACY), text=alt.Text("name:N"))
        return [rule, text]

    both = alt.hconcat(
        panel(
            ["index", "retrieval"], f"Index ({about['letters']} letters) and Retrieval ({about['symbols']} symbols), one plane"
        ),
        panel(list(TITLES)[2:], f"Partial induction ({about['repeated']} symbols)"),
        spacing=30,
    ).resolve_scale(color="independent")
    title = _heading(
        "Fast planes find places, slow planes find things; finding the latest thing takes two planes, or few symbols",
        f"{_settings(about)}; lines are means, bands go from the lowest seed to the highest",
    )
    return both.properties(title=title)


def learning_figure(trained: Mapping[str, Any], curves: Mapping[str, Any], about: Mapping[str, Any]) -> Chart:
    """Accuracy over training for every angle, mean over seeds."""
    angles, steps = trained["angles"], curves["steps"]
    slowest = angles[1]
    titles = (
        "Index, one plane",
        "Retrieval, one plane",
        "Partial induction, one plane",
        "Partial induction, with a still plane",
    )
    panels = []
    for sweep, title in zip(list(TITLES)[:4], titles, strict=True):
        seeds = curves["accuracy"][sweep]
        values = [
            {"step": step, "angle": angle, "shade": angle or slowest / 3, "accuracy": sum(s[n][at] for s in seeds) / len(seeds)}
            for n, step in enumerate(steps)
            for at, angle in enumerate(angles)
        ]
        ticks = [slowest / 3, *(t for t in (1e-3, 1e-2, 1e-1, 1.0) if slowest * 0.99 <= t <= angles[-1])]
        legend = alt.Legend(
            title="angle",
            gradientLength=200,
            values=ticks,
            labelExpr=f"datum.value < {slowest / 2} ? '0' : format(datum.value, '~g')",
        )
        panels.append(
            chart_of(values)
            .mark_line(strokeWidth=1.8)
            .encode(
                _step_axis(),
                alt.Y("accuracy:Q", scale=ACCURACY, axis=alt.Axis(gridOpacity=0.5)),
                color=alt.Color("shade:Q", legend=legend).scale(type="log", scheme=RANK, domain=[slowest / 3, angles[-1]]),
                detail=alt.Detail("angle:Q"),
                tooltip=[alt.Tooltip("step:Q"), alt.Tooltip("angle:Q", format=".3g"), alt.Tooltip("accuracy:Q", format=".3f")],
            )
            .properties(width=420, height=210, title=title)
        )
    rows = [alt.hconcat(*panels[:2], spacing=24), alt.hconcat(*panels[2:], spacing=24)]
    heading = _heading("Which angles learn which task", f"{_settings(about)}; every line is the mean over seeds at one angle")
    return alt.vconcat(*rows, spacing=20).properties(title=heading)


def place_figure(results: Mapping[str, Any], about: Mapping[str, Any]) -> Chart:
    """Accuracy by the answer's place at every angle that neither fails nor solves (top); weights of built heads (bottom)."""
    trained, weights = results["trained"], results["built"]["shapes"]
    columns = []
    for sweep, words, built in (
        ("index", "a U where the plane is too slow", {"H_POS": "all inputs"}),
        (
            "retrieval",
            "an inverted U where it is too fast",
            {"H_SYM": "opposite symbols", "H_SYM, random inputs": "random inputs"},
        ),
    ):
        rows = [(name, weights[key]) for key, name in built.items()]
        column = alt.vconcat(_accuracies(sweep, words, trained), _weights(next(iter(built)), rows), spacing=20)
        columns.append(column.resolve_scale(color="independent"))
    title = _heading(
        "Where in the input the wrong plane still works",
        f"{_settings(about)}; p over seeds, of the square coefficient of a parabola",
        "below: the same in built heads (theorem 7), lines by formula where there is one, points measured",
    )
    return alt.hconcat(*columns, spacing=36).resolve_scale(color="independent").properties(title=title)


def _place_axis(title: str) -> alt.X:
    return alt.X("place:Q", title=title, axis=alt.Axis(gridOpacity=0.4, tickMinStep=1, format="d")).scale(nice=False, padding=8)


def _accuracies(sweep: str, words: str, trained: Mapping[str, Any]) -> Chart:
    """Accuracy over places, a line for every angle at which a task is neither solved nor quite out of reach."""
    shape, mean, angles = trained["shapes"][sweep], trained["sweeps"][sweep]["mean"], trained["angles"]
    shown = [at for at, value in enumerate(mean) if min(mean) + 0.02 < value < 0.99 or angles[at] == shape["angle"]]
    values = [
        {"place": place, "angle": f"{angles[at]:.3g}", "accuracy": value, "chosen": angles[at] == shape["angle"]}
        for at in shown
        for place, value in enumerate(shape["by_place"][at])
    ]
    names = [f"{angles[at]:.3g}" for at in shown]
    base = chart_of(values).encode(
        _place_axis("place of the answer"),
        alt.Y("accuracy:Q", scale=ACCURACY, axis=alt.Axis(gridOpacity=0.5)),
        color=alt.Color("angle:O", legend=_legend(), sort=names).scale(scheme=RANK, domain=names),
        tooltip=[alt.Tooltip("place:Q"), alt.Tooltip("angle:O"), alt.Tooltip("accuracy:Q", format=".3f")],
    )
    note = f"bold: angle {shape['angle']:.3g}, ends {shape['ends']:.2f}, middle {shape['middle']:.2f}, "
    note += f"bend {shape['bend']:+.2f} ({small_p(shape['bend_p'])})"
    title = alt.TitleParams(f"{TITLES[sweep]}, trained: {words}", subtitle=note, anchor="start")
    bold = base.transform_filter("datum.chosen").mark_line(strokeWidth=4, point=alt.OverlayMarkDef(size=50))
    return alt.layer(base.mark_line(strokeWidth=1.4), bold).properties(width=400, height=240, title=title)


def _weights(head: str, rows: list[tuple[str, Mapping[str, Any]]]) -> Chart:
    """Weight of the right key over its place, as a share of the largest: lines by formula, points as measured."""
    values = [
        {"place": place, "measured": seen / max(row["measured"]), "line": line / max(row["measured"])}
        | {"of": f"{name}, β = {row['beta']:g}, largest {max(row['measured']):.2f}"}
        for name, row in rows
        for place, (seen, line) in enumerate(zip(row["measured"], row.get("exact") or row["measured"], strict=True))
    ]
    colours = [COLOURS["positional"]] if head == "H_POS" else [COLOURS["symbolic"], COLOURS["binding"]]
    base = chart_of(values).encode(
        _place_axis("place of the right key"), color=alt.Color("of:N", title=None, legend=_legend()).scale(range=colours)
    )

    def up(field: str) -> alt.Y:
        axis = alt.Axis(gridOpacity=0.5)
        return alt.Y(f"{field}:Q", title="its weight / largest", scale=alt.Scale(zero=False), axis=axis)

    title = alt.TitleParams(f"{head}, angle {rows[0][1]['angle']:.3g}: weight of the right key", anchor="start")
    line = base.mark_line(strokeWidth=2).encode(up("line"))
    points = base.mark_point(filled=True, size=40, opacity=1).encode(up("measured"))
    return alt.layer(line, points).properties(width=400, height=190, title=title)


def trajectory_figure(paths: Mapping[str, Any], about: Mapping[str, Any]) -> Chart:
    """Queries and keys of an Index model in its plane over training (one seed), and how directions come out (all seeds)."""
    panels = []
    for kind, title in (("keys", "Keys of the letters"), ("queries", "Queries of the places")):
        values = [
            {"x": vector[0], "y": vector[1], "of": number, "step": step}
            for step, vectors in zip(paths["steps"], paths[kind], strict=True)
            for number, vector in enumerate(vectors)
        ]
        reach = 1.08 * max(max(abs(row["x"]), abs(row["y"])) for row in values)
        scale = alt.Scale(domain=[-reach, reach], nice=False)
        axis = alt.Axis(tickCount=5, gridOpacity=0.4)
        if kind == "keys":
            colour: Any = alt.value(COLOURS["symbolic"])
        else:
            legend = alt.Legend(title="place asked for", type="gradient", orient="bottom", gradientLength=120, tickCount=5)
            colour = alt.Color("of:Q", legend=legend).scale(scheme=RANK)
        base = chart_of(values).encode(
            alt.X("x:Q", title=None, scale=scale, axis=axis), alt.Y("y:Q", title=None, scale=scale, axis=axis), color=colour
        )
        ends = base.transform_filter(f"datum.step == {literal(paths['steps'][-1])}").mark_point(filled=True, size=60, opacity=1)
        ends = ends.encode(tooltip=[alt.Tooltip("of:Q"), alt.Tooltip("x:Q"), alt.Tooltip("y:Q")])
        trace = base.mark_line(strokeWidth=1.2, opacity=0.7).encode(order=alt.Order("step:Q"), detail=alt.Detail("of:N"))
        panels.append(alt.layer(trace, ends).properties(width=270, height=270, title=title))
    values = [
        {"step": step, "line": name, **{part: paths[key][part][n] for part in ("mean", "least", "most")}}
        for key, name in (("keys_alike", "keys have one direction"), ("queries_aim", "queries encode their places"))
        for n, step in enumerate(paths["steps"])
    ]
    base = chart_of(values).encode(
        _step_axis(),
        color=alt.Color("line:N", title=None, legend=_legend()).scale(range=[COLOURS["symbolic"], COLOURS["positional"]]),
    )
    y = alt.Y("mean:Q", title="length of the mean direction", scale=ACCURACY, axis=alt.Axis(gridOpacity=0.5))
    band = base.mark_area(opacity=0.2).encode(alt.Y("least:Q", scale=ACCURACY), y2=alt.Y2("most:Q"))
    panels.append(alt.layer(band, base.mark_line(strokeWidth=2).encode(y)).properties(width=300, height=270, title="All seeds"))
    heading = _heading(
        "Index: keys turn to one direction, queries spread to encode places",
        f"angle {paths['angle']:.3g}; {_settings(about)}",
        f"left and middle: seed {about['seed']}, from the start to dots at the end; right: mean, lowest and highest seed",
    )
    return alt.hconcat(*panels, spacing=24).resolve_scale(color="independent").properties(title=heading)
