"""Which frequencies carry what, on the front of a page."""

from __future__ import annotations

import altair as alt

from ...charts import COLOURS, Figure, chart_of
from ...runs import Run
from ..claims import NotRunError, Runs
from ..story import Finding, Story, finding, story

SOLVED = 0.99
TASKS = {"index": "Index: read a place", "retrieval": "Retrieval: read a thing"}


def title(_: Run) -> str:
    """What the page calls the run."""
    return "Index, Retrieval and partial induction, learned at every angle"


def _solved(run: Run, task: str) -> list[float]:
    trained = run.results["trained"]
    return [angle for angle, mean in zip(trained["angles"], trained["sweeps"][task]["mean"], strict=True) if mean >= SOLVED]


def _edges(runs: Runs) -> tuple[Run, float, float]:
    """The slowest angle that solves Index and the fastest that solves Retrieval, which is slower."""
    run = runs.one("canonical")
    index, retrieval = _solved(run, "index"), _solved(run, "retrieval")
    if not index or not retrieval or min(index) <= max(retrieval):
        raise NotRunError("the runs do not show it")
    return run, min(index), max(retrieval)


@finding(3)
def frequencies(runs: Runs) -> Finding:
    """Which frequencies carry which task."""
    run, fast, slow = _edges(runs)
    trained = run.results["trained"]
    zero = trained["angles"][1] / 3  # where angle 0 goes on a logarithmic axis
    rows = [
        {"angle": angle or zero, "real": angle, "task": name, "accuracy": value}
        for task, name in TASKS.items()
        for angle, value in zip(trained["angles"], trained["sweeps"][task]["mean"], strict=True)
    ]
    names = list(TASKS.values())
    ticks = f"datum.value < {zero * 1.01} ? '0' : format(datum.value, '~g')"
    base = chart_of(rows).encode(
        x=alt.X("angle:Q", title="angle per token, radians (log scale)")
        .scale(type="log", nice=False)
        .axis(values=[zero, 0.001, 0.01, 0.1, 1], labelExpr=ticks),
        y=alt.Y("accuracy:Q", scale=alt.Scale(domain=[0, 1])).axis(tickCount=3),
        color=alt.Color("task:N", title=None)
        .scale(domain=names, range=[COLOURS["positional"], COLOURS["symbolic"]])
        .legend(orient="top"),
        tooltip=["task:N", alt.Tooltip("real:Q", title="angle", format=".3g"), alt.Tooltip("accuracy:Q", format=".2f")],
    )
    shape = alt.Shape("task:N", title=None).scale(domain=names)
    chart = alt.layer(base.mark_line(strokeWidth=2), base.mark_point(filled=True, size=40, opacity=1).encode(shape=shape))
    return Finding(
        "Fast frequencies carry places, slow ones carry things, and no single frequency carries both.",
        f"{fast:.3g} and {slow:.3g}",
        "radians per token: Index needs the first or faster, Retrieval the second or slower",
        Figure(
            chart.properties(width=360, height=180, title="One head, one plane, one angle"),
            "Each point is a one-head model trained at one angle; the curves cross once, where neither task is solved.",
        ),
        run,
        "angles",
    )


@story("Through which frequencies?")
def angles(runs: Runs) -> Story:
    """Which angle learns which task."""
    run, fast, slow = _edges(runs)
    seeds = run.config["seeds"]
    text = (
        "RoPE turns each pair of coordinates at its own speed. So one can ask what a single speed is good for: train a model "
        f"with one head and one angle, for {len(run.results['trained']['angles'])} angles and {seeds} seeds. Index, a task "
        f"about places, is solved from {fast:.3g} radians per token up; Retrieval, a task about things, from {slow:.3g} down. "
        "In between neither is."
    )
    still = _solved(run, "partial induction, with a still plane")
    more = "Partial induction needs both, and is "
    more += (
        f"solved with two planes, one that stands still and one at {min(still):.3g} to {max(still):.3g}."
        if still
        else "not solved."
    )
    return Story(
        (text, more),
        run,
        "angles",
        "Left: Index needs fast angles, Retrieval slow ones. Right: partial induction needs two planes, or few symbols.",
    )
