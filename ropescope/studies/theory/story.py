"""What is proved and what had to be repaired, on the front of a page."""

from __future__ import annotations

import altair as alt

from ...charts import COLOURS, Figure, chart_of
from ...runs import Run
from ..claims import NotRunError, Runs
from ..story import Finding, Story, finding, story

NAMES = {"index_largest": "largest gap there is", "index_printed": "bound as printed", "index_corrected": "bound, corrected"}
LOOK = {
    "largest gap there is": COLOURS["positional"],
    "bound as printed": COLOURS["neutral"],
    "bound, corrected": COLOURS["binding"],
}


def title(_: Run) -> str:
    """What the page calls the run."""
    return "Built heads, their limits, and the bounds of theorem 3.2"


@finding(6)
def repaired(runs: Runs) -> Finding:
    """Theorem 3.2, repaired."""
    run = runs.one("theory")
    bounds = run.results["bounds"]
    broken, left = int(bounds["index_printed_violated"]), int(bounds["index_corrected_violated"])
    if not broken or left:
        raise NotRunError("the runs do not show it")
    curves = run.read("curves.json")
    if curves is None:
        raise NotRunError("the curves of the bounds are not in the folder")
    rows = [
        {"n": n, "line": name, "gap": curves[key][at]}
        for key, name in NAMES.items()
        for at, n in enumerate(curves["length"])
        if 2 <= n <= 80 and curves[key][at] > 0
    ]
    lines = list(LOOK)
    dash = alt.StrokeDash("line:N", title=None).scale(domain=lines, range=[[1, 0], [3, 3], [7, 3]])
    chart = (
        chart_of(rows)
        .mark_line(strokeWidth=2, interpolate="step-after")
        .encode(
            x=alt.X("n:Q", title="length of the input, n", scale=alt.Scale(domain=[2, 80], nice=False)),
            y=alt.Y("gap:Q", title="gap")
            .scale(type="log", domain=[1e-4, 1], nice=False, clamp=True)
            .axis(values=[1e-4, 1e-3, 1e-2, 1e-1, 1], format="~g"),
            color=alt.Color("line:N", title=None).scale(domain=lines, range=list(LOOK.values())).legend(orient="top"),
            strokeDash=dash,
            tooltip=["line:N", "n:Q", alt.Tooltip("gap:Q", format=".3g")],
        )
        .properties(width=360, height=180, title="Theorem 3.2 for Index")
    )
    return Finding(
        "Theorem 3.2, which bounds the gap of a positional head by the length of the input, is wrong as printed; a corrected "
        "bound holds at every length.",
        f"{broken} → {left}",
        f"lengths up to {bounds['longest']:,} at which the bound is broken: as printed, and corrected",
        Figure(
            chart,
            "Where the blue line is above the dotted one, the printed bound is broken; the dashed green one is never crossed.",
        ),
        run,
        "gaps",
    )


@story("What is proved?")
def proofs(runs: Runs) -> Story:
    """What built heads and exact gaps show."""
    run = runs.one("theory")
    tried, bounds, limits = run.results["every_input"], run.results["bounds"], run.results["limits"]
    text = (
        "Both papers build heads by hand that solve a task, and prove that other heads cannot. We ran the built heads on every "
        f"small input: {tried['wrong']} of {tried['valid']:,} answers are wrong. The impossibility results were tried on "
        f"{limits['heads_of_each_kind']} random heads of each kind, and none gets around them."
    )
    example = bounds["index_example"]
    repair = (
        "One theorem needed repair. Theorem 3.2 bounds by how much the right key can lead; as printed, the bound is broken at "
        f"{bounds['index_printed_violated']} lengths (at n = {example['length']} the gap is {example['gap']:.3f}, the bound "
        f"{example['printed']:.3f}). With the distance to the farther end of the input in place of the length, it is broken at "
        f"{bounds['index_corrected_violated']} lengths up to {bounds['longest']:,}."
    )
    return Story(
        (text, repair),
        run,
        "gaps",
        "Blue is the exact gap. Where it rises above the dashed line, the printed bound is broken (pink).",
    )
