"""Figures of the theory: printed, corrected and exact gaps over length (paper B, figure 5A), and what more planes buy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from ...charts import COLOURS, Chart, Figure, chart_of, literal
from ...runs import Run

LINES = {
    "theorem as printed": COLOURS["neutral"],
    "corrected bound": COLOURS["binding"],
    "exact, from smallest to largest over inputs": COLOURS["positional"],
    "exact smallest at angle 0": COLOURS["symbolic"],
}
PRINTED, CORRECTED, EXACT, STILL = LINES
VIOLATION = "#CC79A7"
PLANE_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]


def figures(run: Run) -> dict[str, Figure]:
    """The figures of a run, by name."""
    curves = run.read("curves.json")
    found = {}
    if curves is not None:
        found["gaps"] = Figure(
            gap_figure({**run.results, "curves": curves}),
            "The gap is the lead of the right key; where the blue band is above the dashed line, the printed bound is broken.",
        )
    planes = planes_figure(run.results["planes"])
    found["planes"] = Figure(
        planes,
        "Solid lines are the largest gaps found for each number of planes; no set of planes can lie above the broken lines.",
    )
    return found


def gap_figure(results: Mapping[str, Any]) -> Chart:
    """Gaps of Index (left) and Retrieval (right), up to length 100 and up to the longest."""
    bounds = results["bounds"]
    longest = bounds["longest"]
    rows = [
        alt.hconcat(
            _panel(results, "index", upto, f"Index, angle {bounds['index_angle']}, n ≤ {upto:,}"),
            _panel(results, "retrieval", upto, f"Retrieval, angle {bounds['retrieval_angle']}, n ≤ {upto:,}"),
            spacing=30,
        )
        for upto in (100, longest)
    ]
    heading = alt.TitleParams(
        "How far the right key's logit stands above the others",
        subtitle=[
            f"Index with integers up to {bounds['integers']}; Retrieval over {bounds['alphabet']} letters, "
            f"always right up to n = {bounds['retrieval_right_up_to']}; black: median and 5 to 95 % of the task's own inputs",
            f"pink: the {bounds['index_printed_violated']} lengths at which some query of Index exceeds the printed bound",
        ],
        anchor="start",
        offset=14,
    )
    return alt.vconcat(*rows, spacing=24).properties(title=heading).configure_legend(labelLimit=400)


def _panel(results: Mapping[str, Any], function: str, upto: int, title: str) -> Chart:
    curves, close = results["curves"], upto <= 100
    values = [
        {"n": n} | {key.removeprefix(f"{function}_"): line[at] for key, line in curves.items() if key.startswith(function)}
        for at, n in enumerate(curves["length"])
        if n <= upto
    ]
    if function == "retrieval":  # beyond this length some input comes out wrong, and there is no gap to speak of
        values = [row if row["n"] <= results["bounds"]["retrieval_right_up_to"] else _only_still(row) for row in values]
    lowest = {("index", True): 1e-4, ("retrieval", True): 0.05}.get((function, close), 1e-10 if function == "index" else 0.005)
    x = alt.X("n:Q", title="length n", axis=alt.Axis(gridOpacity=0.5)).scale(
        type="linear" if close else "log", domain=[0 if close else 2, upto], nice=False
    )

    def up(field: str) -> alt.Y:
        scale = alt.Scale(type="log", domain=[lowest, 1 if function == "index" else 3], clamp=True, nice=False)
        ticks = alt.Axis(format=".0e" if function == "index" else "~g", tickCount=6, gridOpacity=0.5)
        return alt.Y(f"{field}:Q", title="gap", scale=scale, axis=ticks)

    base = chart_of(values)

    def line(field: str, name: str, **look: Any) -> Chart:
        shown = base.transform_filter(f"datum.{field} > {lowest}").transform_calculate(line=literal(name))
        colour = alt.Color("line:N", title=None, legend=alt.Legend(orient="bottom", columns=2, symbolStrokeWidth=3))
        return shown.mark_line(interpolate="step" if function == "index" else "linear", **look).encode(
            x, up(field), color=colour.scale(domain=list(LINES), range=list(LINES.values()))
        )

    band = base.mark_area(color=LINES[EXACT], opacity=0.18, interpolate="step" if function == "index" else "linear")
    band = band.transform_filter("isValid(datum.largest)")
    parts: list[Chart] = [band.encode(x, up("smallest"), y2=alt.Y2("largest:Q"))]
    parts += [line("largest", EXACT, strokeWidth=2), line("smallest", EXACT, strokeWidth=2)]
    if function == "index":
        parts.append(line("corrected", CORRECTED, strokeWidth=2))
    else:
        parts.append(line("smallest_still", STILL, strokeWidth=2))
    parts.append(line("printed", PRINTED, strokeDash=[5, 3], strokeWidth=2))
    if function == "index":
        broken = base.transform_filter("datum.largest > datum.printed * 1.000000001")
        parts.append(broken.mark_point(filled=True, size=26, color=VIOLATION, opacity=1).encode(x, up("largest")))
    if close:
        parts += _real(results["real_inputs"][function], x, up)
    return alt.layer(*parts).properties(width=420, height=240, title=title)


def _only_still(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value if key in ("n", "smallest_still") else None for key, value in row.items()}


def _real(measured: Mapping[str, Mapping[str, float]], x: alt.X, up: Any) -> list[Chart]:
    """Median and 5 to 95 % of margins on real inputs."""
    base = chart_of([{"n": int(n)} | dict(row) for n, row in measured.items()])
    tooltip = [
        alt.Tooltip("n:Q"),
        alt.Tooltip("least:Q"),
        alt.Tooltip("low:Q"),
        alt.Tooltip("median:Q"),
        alt.Tooltip("high:Q"),
        alt.Tooltip("most:Q"),
    ]
    return [
        base.mark_rule(strokeWidth=1.5).encode(x, up("low"), y2=alt.Y2("high:Q")),
        base.mark_point(filled=True, color="black", size=32, opacity=1).encode(x, up("median"), tooltip=tooltip),
    ]


def planes_figure(results: Mapping[str, Any]) -> Chart:
    """The largest worst gap found for each number of planes over the range of distances, with the bounds."""
    lines = {"gap": "best set found", "packing": "sphere packing bound", "pigeonhole": "pigeonhole bound"}
    values = [
        {"planes": str(row["planes"]), "offsets": row["offsets"], "line": name, "gap": row[key]}
        for row in results["rows"]
        for key, name in lines.items()
        if key in row and row[key] <= row["mean"]  # a bound above the trivial one says nothing
    ]
    base = chart_of(values)
    encoding = {
        "x": alt.X("offsets:Q", title="distances N to tell apart").scale(type="log", nice=False),
        "y": alt.Y("gap:Q", title="smallest gap over distances 1 to N").scale(type="log").axis(format=".0e", tickCount=8),
        "color": alt.Color("planes:N", title="RoPE planes").scale(range=PLANE_COLOURS),
        "tooltip": ["planes:N", "line:N", "offsets:Q", alt.Tooltip("gap:Q", format=".4g")],
    }
    dash = alt.StrokeDash("line:N", title=None, legend=alt.Legend(symbolSize=300)).scale(
        domain=list(lines.values()), range=[[1, 0], [6, 3], [2, 3]]
    )
    return alt.layer(
        base.mark_line(strokeWidth=2).encode(strokeDash=dash, **encoding),
        base.transform_filter("datum.line == 'best set found'").mark_point(filled=True, size=50, opacity=1).encode(**encoding),
    ).properties(
        width=860,
        height=320,
        title=alt.TitleParams(
            "More planes buy length",
            subtitle="with F planes of equal weight the smallest gap falls like N to the power -2/F, at best",
            anchor="start",
        ),
    )
