"""How far models reach beyond their training length, on the front of a page."""

from __future__ import annotations

import altair as alt

from ...charts import COLOURS, Figure, chart_of
from ...runs import Run
from ..claims import NotRunError, Runs
from ..story import Finding, Story, finding, story
from .tables import FRONTS

CURED = "letter, logits times log n"
LINES = {"number": COLOURS["positional"], "letter": COLOURS["symbolic"], CURED: "#CC79A7"}


def title(run: Run) -> str:
    """What the page calls the run."""
    config = run.config
    models = " and ".join(f"{task} task, {config['models'][task]}" for task in run.results)
    front = "" if config["fillers"] == "same" else f"; front: {FRONTS[config['fillers']]}"
    return f"{models[:1].upper()}{models[1:]}, up to {max(config['lengths']):,} tokens{front}"


def _longest(runs: Runs, task: str) -> Run:
    """The run of a task that measured most lengths."""
    found = [run for run in runs.of("generalise") if task in run.results and run.config["fillers"] == "same"]
    if not found:
        raise NotRunError(f"the {task} model was not measured at other lengths")
    return max(found, key=lambda run: len(run.results[task]["lengths"]))


def _half(run: Run, task: str) -> float:
    return float(run.results[task]["crossings"]["0.5"]["overall"]["measured"])


def _last(run: Run, task: str, curve: str) -> float:
    return float(run.results[task]["curves"][curve]["overall"]["mean"][-1])


@finding(5)
def reach(runs: Runs) -> Finding:
    """How far each holds, and the cure."""
    number, letter = _longest(runs, "number"), _longest(runs, "letter")
    halves = _half(number, "number"), _half(letter, "letter")
    if halves[0] >= halves[1] or _last(letter, "letter", "sharpened") < _last(letter, "letter", "measured") + 0.2:
        raise NotRunError("the runs do not show it")
    curves = (
        ("number", number, "number", "measured"),
        ("letter", letter, "letter", "measured"),
        (CURED, letter, "letter", "sharpened"),
    )
    rows = [
        {"line": line, "tokens": n, "accuracy": value}
        for line, run, task, curve in curves
        for n, value in zip(run.results[task]["lengths"], run.results[task]["curves"][curve]["overall"]["mean"], strict=True)
    ]
    names = list(LINES)
    base = chart_of(rows).encode(
        x=alt.X("tokens:Q", title="tokens (log scale)")
        .scale(type="log", nice=False)
        .axis(values=[17, 50, 200, 1000, 5000], format=",d"),
        y=alt.Y("accuracy:Q", scale=alt.Scale(domain=[0, 1])).axis(tickCount=3),
        color=alt.Color("line:N", title=None)
        .scale(domain=names, range=list(LINES.values()))
        .legend(orient="top", labelLimit=200),
        tooltip=["line:N", alt.Tooltip("tokens:Q", format=",d"), alt.Tooltip("accuracy:Q", format=".2f")],
    )
    dashes = alt.StrokeDash("line:N", title=None).scale(domain=names, range=[[1, 0], [1, 0], [6, 3]])
    shapes = alt.Shape("line:N", title=None).scale(domain=names)
    chart = alt.layer(
        base.mark_line(strokeWidth=2).encode(strokeDash=dashes),
        base.mark_point(filled=True, size=40, opacity=1).encode(shape=shapes),
    )
    tokens = letter.results["letter"]["lengths"][-1]
    return Finding(
        f"Trained on {letter.results['letter']['lengths'][0]} tokens, symbolic heads reach farther than positional ones; with "
        f"logits times log n the letter task is at {_last(letter, 'letter', 'sharpened'):.0%} even at {tokens:,} tokens.",
        f"{halves[0]:,.0f} and {halves[1]:,.0f}",
        "tokens until half of the answers are wrong: number and letter task",
        Figure(
            chart.properties(width=360, height=180, title="Accuracy over length"),
            "The number task falls first; the dashed line is the letter task with sharper logits.",
        ),
        letter,
        "letter",
    )


@story("How far does it hold?")
def lengths(runs: Runs) -> Story:
    """How far models reach, why, and what helps."""
    number, letter = _longest(runs, "number"), _longest(runs, "letter")
    start, end = letter.results["letter"]["lengths"][0], letter.results["letter"]["lengths"][-1]
    text = (
        f"Both models were trained on {start} tokens. On longer inputs the number task is down to half at "
        f"{_half(number, 'number'):,.0f} tokens, the letter task at {_half(letter, 'letter'):,.0f}: a head that counts places "
        "meets places it never saw in training, a head that looks for a letter only meets more letters to look away from."
    )
    cure = (
        f"That last weakness has a cure. Multiply the logits by log n / log {start}, so that attention stays as sharp as in "
        f"training: at {end:,} tokens the letter task goes from {_last(letter, 'letter', 'measured'):.0%} to "
        f"{_last(letter, 'letter', 'sharpened'):.0%} without any training, the number task from "
        f"{_last(number, 'number', 'measured'):.0%} to {_last(number, 'number', 'sharpened'):.0%}."
    )
    return Story(
        (text, cure),
        letter,
        "letter",
        "Black is measured; the dashed pink line is the same model with logits multiplied by log n.",
    )
