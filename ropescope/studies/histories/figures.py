"""Figures of a run folder with a history, put together from charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ...charts import Chart, Figure
from ...runs import Run, Trajectory, read_trajectory
from . import many_heads
from .film import film_accuracy_chart, film_chart, head_history_chart
from .learning import accuracy_chart, layers_chart, purity_charts, scores_chart, telling_layers
from .milestones import milestones


def history_charts(run: Trajectory, result: Mapping[str, Any], layers: Sequence[int] | None = None) -> dict[str, Chart]:
    """Charts of one history by name. `layers` are those whose scores are shown under the accuracy."""
    run = run.looks()
    if run.command != "train" or not run.one_each:
        return _charts_of_many(run, result, layers)
    heading = alt.TitleParams(f"{run.task} task, seed {run.seed}, {result['last_step']} steps", subtitle=_learned(result))
    chosen = telling_layers(result) if layers is None else layers
    panels = (accuracy_chart(run), scores_chart(run, chosen), *purity_charts(run, result))
    over_time = (
        alt.vconcat(*panels)
        .resolve_scale(color="independent", strokeDash="independent", shape="independent")
        .properties(title=heading)
    )
    return {"learning": over_time, "layers": layers_chart(run).properties(title=heading)}


def _charts_of_many(run: Trajectory, result: Mapping[str, Any], layers: Sequence[int] | None) -> dict[str, Chart]:
    """The same where layers have many heads, or accuracy is not known."""
    heading = alt.TitleParams(
        f"{run.name}: {len(result.get('heads', run.layers))} heads, {len(run.steps)} looks up to step {result['last_step']:,}",
        subtitle=_learned(result) if run.accuracy is not None else "",
    )
    panels = [
        *([accuracy_chart(run)] if run.accuracy is not None else []),
        *([many_heads.loss_chart(run)] if run.loss is not None else []),
        many_heads.kinds_chart(run),
    ]
    since = many_heads.since_chart(run, result)
    panels += [many_heads.purity_map(run, result, since is None), *([since] if since is not None else [])]
    over_time = alt.vconcat(*panels).resolve_scale(color="independent", strokeDash="independent", shape="independent")
    telling = many_heads.telling_heads(run, result, layers)
    return {
        "learning": over_time.properties(title=heading),
        "heads": many_heads.heads_chart(run, result, telling).properties(title=heading),
        "layers": many_heads.layers_chart(run).properties(title=heading),
    }


def _learned(result: Mapping[str, Any]) -> str:
    learned = ", ".join(
        f"{hops}-hop at {step}" for hops, step in enumerate(result.get("learned_at", ()), start=1) if step is not None
    )
    return f"accuracy of 0.99 on the watched inputs first reached: {learned or 'not yet'}"


def film_figures(run: Run) -> dict[str, Figure]:
    """Figures of a run folder with a history: first those of its film, then those of `history_figures`."""
    history = read_trajectory(run.folder).looks()
    if not len(history.steps):
        return {}
    found = {
        "film": Figure(
            film_chart(history),
            "Uniform attention is top right, pure heads are in the shaded corners beside it; lines are the way heads came.",
            "Heads over training",
            "half",
        )
    }
    if history.accuracy is not None:
        found["accuracy"] = Figure(
            film_accuracy_chart(history), "Accuracy per hop count; the vertical line is the step shown.", "Accuracy", "half"
        )
    found["head"] = Figure(
        head_history_chart(history),
        "Scores and entropy of the chosen head at every watched step.",
        "One head over training",
    )
    return found | history_figures(history, milestones(history))


def history_figures(run: Trajectory, result: Mapping[str, Any], layers: Sequence[int] | None = None) -> dict[str, Figure]:
    """Figures of one history by name, with how to read them."""
    charts = history_charts(run, result, layers)
    return _of_single(charts) if len(charts) == 2 else _of_many(charts)


def _of_many(charts: Mapping[str, Chart]) -> dict[str, Figure]:
    return {
        "learning": Figure(
            charts["learning"],
            "From top to bottom: how training went, how many heads are of each kind, and which kind every head is.",
            "Training and heads",
        ),
        "heads": Figure(
            charts["heads"],
            "A panel for each: blue is the positional score, orange the symbolic, dashed the entropy.",
            "Heads that tell most",
        ),
        "layers": Figure(
            charts["layers"],
            "A panel for each layer, means over its heads: blue is the positional score, orange the symbolic, dashed entropy.",
            "Means of every layer",
        ),
    }


def _of_single(charts: Mapping[str, Chart]) -> dict[str, Figure]:
    return {
        "learning": Figure(
            charts["learning"],
            "From top to bottom: accuracy, scores of telling layers, and when heads became pure.",
            "Learning and purity",
        ),
        "layers": Figure(
            charts["layers"],
            "A panel for each layer: blue is the positional score, orange the symbolic, dashed the entropy.",
            "Scores of every layer",
        ),
    }
