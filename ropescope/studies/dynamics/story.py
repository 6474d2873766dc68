"""When heads form, on the front of a page."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from ...charts import COLOURS, Figure, chart_of
from ...runs import Run
from ..claims import NotRunError, Runs, span
from ..histories.axes import number
from ..histories.milestones import mean_purity
from ..story import Finding, Story, finding, story
from .trained import Trained, pure_heads, trained


def title(run: Run) -> str:
    """What the page calls the run."""
    count = len(run.results)
    return f"When hops were learned and heads became pure, in {count} training run{'' if count == 1 else 's'}"


def _both(runs: Runs) -> tuple[list[Trained], list[Trained]]:
    return trained(runs, "number"), trained(runs, "letter")


def _learned(one: Trained) -> list[int]:
    steps = one.milestones["learned_at"]
    if None in steps:
        raise NotRunError(f"{one.run.name} did not learn all hop counts")
    return [int(step) for step in steps]


@finding(2)
def together(runs: Runs) -> Finding:
    """Heads become pure as the task is learned."""
    found = [*trained(runs, "number")]
    ranks = [one.milestones["purity_and_accuracy"]["spearman"] for one in found]
    if min(ranks) < 0.8:
        raise NotRunError("purity and accuracy do not rise together")
    one = found[0]
    accuracy = one.history.measures["accuracy"].mean(1)
    rows = [
        {"step": int(step), "line": line, "value": number(value)}
        for line, values in (("accuracy", accuracy), ("mean purity of heads", mean_purity(one.history)))
        for step, value in zip(one.history.steps, values, strict=True)
    ]
    colours = alt.Scale(domain=["accuracy", "mean purity of heads"], range=["#000000", COLOURS["binding"]])
    chart = (
        chart_of(rows)
        .mark_line(strokeWidth=2)
        .encode(
            x=alt.X("step:Q", title="training step").axis(tickCount=5),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(domain=[0, 1])).axis(tickCount=3),
            color=alt.Color("line:N", title=None, scale=colours).legend(orient="top"),
            strokeDash=alt.StrokeDash("line:N", title=None).scale(
                domain=["accuracy", "mean purity of heads"], range=[[1, 0], [5, 3]]
            ),
            tooltip=["line:N", "step:Q", "value:Q"],
        )
        .properties(width=360, height=170, title="Accuracy and purity over training")
    )
    return Finding(
        "Heads form while the task is learned: they start by looking everywhere and become pure as accuracy rises.",
        f"{span(ranks)}",
        f"rank correlation of purity and accuracy over training, {len(found)} seed{'' if len(found) == 1 else 's'}",
        Figure(chart, "Purity of the heads (dashed) climbs with accuracy (solid), on the number task."),
        one.run,
        "film",
    )


def _hops(one: Trained, name: str) -> list[dict[str, Any]]:
    history = one.history
    return [
        {"task": name, "step": int(step), "hops": str(hop + 1), "value": number(history.measures["accuracy"][at, hop])}
        for at, step in enumerate(history.steps)
        for hop in range(history.measures["accuracy"].shape[1])
        if step <= 4500
    ]


@finding(4)
def hop_by_hop(runs: Runs) -> Finding:
    """Hop by hop against all at once."""
    number_runs, letter_runs = _both(runs)
    spread = [[int(np.ptp(_learned(one))) for one in found] for found in (number_runs, letter_runs)]
    if min(spread[0]) <= max(spread[1]):
        raise NotRunError("both tasks are learned alike")
    rows = [*_hops(number_runs[0], "number task: by place"), *_hops(letter_runs[0], "letter task: by thing")]
    base = (
        chart_of(rows)
        .mark_line(strokeWidth=2)
        .encode(
            x=alt.X("step:Q", title="training step").axis(tickCount=4),
            y=alt.Y("value:Q", title="accuracy", scale=alt.Scale(domain=[0, 1])).axis(tickCount=3),
            color=alt.Color("hops:N", title="hops", scale=alt.Scale(scheme="viridis")).legend(orient="top"),
            tooltip=["task:N", "hops:N", "step:Q", "value:Q"],
        )
    )
    parts = [
        base.transform_filter(alt.datum.task == task).properties(width=190, height=150, title=task)
        for task in ("number task: by place", "letter task: by thing")
    ]
    chart = alt.hconcat(*parts, spacing=18).properties(title="Accuracy by number of hops")
    return Finding(
        "A task about places is learned hop by hop, a task about things all at once.",
        span(spread[0], ",d"),
        f"steps from the first to the last hop count learned in the number task; {span(spread[1], ',d')} in the letter task",
        Figure(chart, "Left, the curves of one to four hops rise one after the other; right, together."),
        number_runs[0].run,
        "learning",
    )


@story("When do they form?")
def forming(runs: Runs) -> Story:
    """When heads of the number and letter models form."""
    number_runs, letter_runs = _both(runs)
    first, last = ([_learned(one)[n] for one in number_runs] for n in (0, -1))
    done = [max(_learned(one)) for one in letter_runs]
    kinds = {
        (task, kind): [len(pure_heads(one, f"final_{kind}")) for one in found]
        for task, found in (("number", number_runs), ("letter", letter_runs))
        for kind in ("positional", "symbolic")
    }
    seeds = f"{len(number_runs)} seeds" if len(number_runs) > 1 else "one seed"
    text = (
        f"Two tasks, {seeds} each, measured every {number_runs[0].run.config['watch_every']} steps. At the start every head "
        "spreads its attention evenly. In the number task the first hop is learned at step "
        f"{span(first, ',d')} and the last at {span(last, ',d')}: the model adds one hop after the other. In the letter task "
        f"all hops are there at step {span(done, ',d')}, at once."
    )
    ends = (
        f"At the end the number models have {span(kinds['number', 'positional'], 'd')} purely positional heads, all in early "
        f"layers, and {span(kinds['number', 'symbolic'], 'd')} purely symbolic ones; the letter models have "
        f"{span(kinds['letter', 'positional'], 'd')} and {span(kinds['letter', 'symbolic'], 'd')}."
    )
    return Story(
        (text, ends),
        number_runs[0].run,
        "learning",
        "Accuracy rises hop by hop (top), and in the same steps heads become pure.",
    )
