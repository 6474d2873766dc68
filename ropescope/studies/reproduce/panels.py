"""The panels of both papers' figures, drawn from the runs at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt

from ...charts import Chart, chart_of
from ...runs import Run, read_profile
from ...tasks import TASKS
from .. import study_of
from ..claims import NotRunError, Runs
from ..dynamics.trained import Trained, trained
from ..histories import learning
from ..histories.axes import STEPS
from ..length import figures as length
from ..mechanisms import figures as mechanisms
from ..mechanisms.claims import TABLE_1
from ..mechanisms.tables import details
from ..profile import figures_details, figures_planes
from ..profile.figures_heads import heads_chart
from ..profile.figures_layers import depth_chart, heat_map_chart
from ..profile.rows import planes_measured, read_details
from ..theory import figures as theory
from .layout import APART, Draw, Layout, Panel, bare, side_by_side

# Paper A, section 5


def _canonical(runs: Runs, figure: str) -> tuple[Run, Chart]:
    run = runs.one("canonical")
    return run, study_of(run).figures(run)[figure].chart


def _angles(side: int) -> Draw:
    def draw(runs: Runs) -> tuple[Chart, Sequence[Run]]:
        run, chart = _canonical(runs, "angles")
        return chart.hconcat[side], [run]

    return draw


def _places(runs: Runs) -> tuple[Chart, Sequence[Run]]:
    run, chart = _canonical(runs, "places")
    return alt.hconcat(*(column.vconcat[0] for column in chart.hconcat), spacing=36).resolve_scale(**APART), [run]


def _trajectories(runs: Runs) -> tuple[Chart, Sequence[Run]]:
    run, chart = _canonical(runs, "trajectories")
    return bare(chart), [run]


# Paper A, section 4


def _profile(draw: Callable[[Mapping[str, Any], str], Chart]) -> Draw:
    """A panel from the statistics of the profile of which most is kept."""

    def panel(runs: Runs) -> tuple[Chart, Sequence[Run]]:
        run = runs.profiles()[0]
        return bare(draw(run.results, run.name)), [run]

    return panel


def _planes(draw: Callable[[Any, Mapping[str, Any], str], Chart]) -> Draw:
    """A panel that needs every plane of every head."""

    def panel(runs: Runs) -> tuple[Chart, Sequence[Run]]:
        run = runs.profiles()[0]
        if not (run.folder / "profile.nc").exists():
            raise NotRunError("no profile with its dataset (profile.nc) among the runs given")
        if not planes_measured(run.results):
            raise NotRunError("no profile with scores of single planes among the runs given")
        return bare(draw(read_profile(run.folder / "profile.nc"), run.results, run.name)), [run]

    return panel


def _details(kind: str, draw: Callable[[Any, str], Chart]) -> Draw:
    """A panel on three heads in detail."""

    def panel(runs: Runs) -> tuple[Chart, Sequence[Run]]:
        run = runs.profiles()[0]
        found = read_details(run)
        if not found or kind not in found:
            raise NotRunError("no profile with details of single heads among the runs given")
        return bare(draw(found[kind], run.name)), [run]

    return panel


# Paper B


def _trained(runs: Runs) -> dict[str, Trained]:
    """One training run for each task: of the seed whose mechanisms are recorded, else the first."""
    chosen = {}
    for task in TASKS:
        found = trained(runs, task)
        looked_at = {run.config[task]["seed"] for run in runs.all if run.command == "mechanisms" and task in run.config}
        chosen[task] = next((one for one in found if one.seed in looked_at), found[0])
    return chosen


def _over_steps(draw: Callable[[Trained], Chart]) -> Draw:
    """Number and letter side by side from the histories of their training."""

    def panel(runs: Runs) -> tuple[Chart, Sequence[Run]]:
        found = _trained(runs)
        return side_by_side({task: draw(one) for task, one in found.items()}), [one.run for one in found.values()]

    return panel


def _some_layers(one: Trained) -> Chart:
    """Scores of four layers: the first, and those that became pure first and last."""
    layers = learning.telling_layers(one.milestones)
    return learning.scores_chart(one.history, [*layers[:3], layers[-1]] if len(layers) > 4 else layers)


def _pure_heads(one: Trained) -> Chart:
    return learning.purity_charts(one.history, one.milestones, STEPS)[0]


def _pure_steps(one: Trained) -> Chart:
    return learning.purity_charts(one.history, one.milestones)[1]


def _used_planes(task: str, run: Run) -> Chart:
    return mechanisms.planes_chart(task, run.results[task]).properties(width=480)


def _layers(task: str) -> Draw:
    def panel(runs: Runs) -> tuple[Chart, Sequence[Run]]:
        one = _trained(runs)[task]
        return learning.layers_chart(one.history), [one.run]

    return panel


def _of_tasks(command: str, draw: Callable[[str, Run], Chart], one_legend: bool = False) -> Draw:
    """Number and letter side by side from the results of a command."""

    def panel(runs: Runs) -> tuple[Chart, Sequence[Run]]:
        found = {task: runs.of_task(command, task) for task in TASKS}
        return side_by_side({task: draw(task, run) for task, run in found.items()}, one_legend), list(found.values())

    return panel


def _example(task: str) -> Draw:
    def panel(runs: Runs) -> tuple[Chart, Sequence[Run]]:
        run = runs.of_task("mechanisms", task)
        found = details(run).get(task, {}).get("example")
        if found is None:
            raise NotRunError("the run of `ropescope mechanisms` has stored no example")
        return bare(mechanisms.example_chart(task, found)), [run]

    return panel


def _gaps(runs: Runs) -> tuple[Chart, Sequence[Run]]:
    run = runs.one("theory")
    curves = run.read("curves.json")
    if curves is None:
        raise NotRunError("the run of `ropescope theory` has no curves.json")
    return theory.gap_figure({**run.results, "curves": curves}).vconcat[0], [run]


def _length(task: str, run: Run) -> Chart:
    whole = length.length_figure(task, run.results[task], run.name)
    return whole.vconcat[0].properties(width=460)


def _chat(runs: Runs) -> tuple[Chart, Sequence[Run]]:
    """Of several chat models the one that does best on the letter task."""
    run = max(runs.of("llm"), key=lambda run: sum(cell["mean"] for cell in run.results["accuracy"].get("letter", {}).values()))
    return bare(study_of(run).figures(run)["accuracy"].chart), [run]


def _table_1(runs: Runs) -> tuple[Chart, Sequence[Run]]:
    columns = {"paper B": None, "ours, by variance": "mean_plane_by_spread", "ours, by largest logit": "mean_plane_by_largest"}
    charts, used = {}, []
    for task in TASKS:
        run = runs.of_task("mechanisms", task)
        planes = run.results[task]["planes"]
        if len(planes["spread"]) != len(TABLE_1[task]):
            raise NotRunError("the models are smaller than paper B's (12 layers)")
        values = [
            {"layer": f"L{layer}", "column": column, "id": f"{paper:g}" if key is None else f"{planes[key][layer]:.1f}"}
            for column, key in columns.items()
            for layer, paper in enumerate(TABLE_1[task])
        ]
        charts[task] = _table(values, list(columns))
        used.append(run)
    return side_by_side(charts), used


def _table(values: Sequence[Mapping[str, str]], columns: list[str]) -> Chart:
    """Numbers in rows and columns."""
    layers = list(dict.fromkeys(row["layer"] for row in values))
    head = alt.Axis(orient="top", labelAngle=0, domain=False, ticks=False, labelFontWeight="bold", labelPadding=8)
    side = alt.Axis(domain=False, ticks=False, labelFontWeight="bold")
    return (
        chart_of(list(values))
        .mark_text()
        .encode(
            x=alt.X("column:N", sort=columns, title=None, axis=head),
            y=alt.Y("layer:N", sort=layers, title=None, axis=side),
            text="id:N",
        )
        .properties(width=420, height=alt.Step(20), view=alt.ViewBackground(stroke=None))
    )


GAMMA = "pure: one score at least 1 - gamma, the other at most gamma; solid gamma 0.1, dotted 0.05"
LOOKS = "squares: the path; text: what the read-out says there; lines: the largest weight of each node; right: the ideal"
LAYOUTS = (
    Layout(
        "A-section-4-heads",
        "Paper A, section 4: heads of a language model",
        (
            Panel("A", "Every head in the positional-symbolic plane", "means over prompts", _profile(heads_chart)),
            Panel(
                "B",
                "Scores layer by head",
                "right: blue is mainly positional, orange mainly symbolic",
                _profile(heat_map_chart),
            ),
            Panel(
                "C",
                "Scores over depth",
                "medians over the heads of a layer, with the middle half of them; dashed: medians of both halves of layers",
                _profile(depth_chart),
            ),
        ),
    ),
    Layout(
        "A-section-4-frequencies",
        "Paper A, section 4: behaviour follows frequency",
        (
            Panel(
                "A",
                "Scores of each plane alone, every head",
                "fast planes left, slow ones right; blue heads are mainly positional, orange ones mainly symbolic",
                _planes(figures_planes.planes_of_heads_chart),
            ),
            Panel("B", "Mean over heads", "bands: middle half of the layers", _profile(figures_planes.planes_chart)),
            Panel("C", "Logit norm by frequency", "as a share of the head's largest", _planes(figures_planes.norms_chart)),
        ),
    ),
    Layout(
        "A-section-4-swaps",
        "Paper A, section 4: three heads in detail",
        (
            Panel(
                "A",
                "Attention before and after swaps",
                "bars: weight at each place; black ticks: before the swap",
                _details("traces", figures_details.trace_chart),
            ),
            Panel(
                "B",
                "Where heads land as planes are added",
                "planes with the largest logit norm come first",
                _details("path", figures_details.path_chart),
            ),
        ),
    ),
    Layout(
        "A-figure-2",
        "Paper A, figure 2: which angle learns which task",
        (
            Panel("A", "Tension between places and things", "means over seeds, from lowest to highest", _angles(0)),
            Panel("B", "Mixing: partial induction", "means over seeds, from lowest to highest", _angles(1)),
        ),
        across=True,
    ),
    Layout(
        "A-figure-3",
        "Paper A, figure 3: shapes and trajectories",
        (
            Panel("A", "Accuracy by place with the wrong plane", "every angle that neither fails nor solves", _places),
            Panel("B", "Queries and keys over training, Index", "left and middle: one seed, dots at the end", _trajectories),
            Panel(
                "C",
                "Queries and keys of heads of a language model",
                "each head in its plane of largest logits; circles: keys, black: the last query, scaled",
                _details("geometry", figures_details.geometry_chart),
            ),
        ),
    ),
    Layout(
        "B-figure-2",
        "Paper B, figure 2: learning the number and letter tasks",
        (
            Panel(
                "A",
                "Accuracy per hop count",
                "dashed: mean of |positional - symbolic| over heads",
                _over_steps(lambda one: learning.accuracy_chart(one.history, STEPS)),
            ),
            Panel("B", "Scores of some layers", "over training steps; dashed: entropy of attention", _over_steps(_some_layers)),
            Panel("C", "Pure heads", GAMMA, _over_steps(_pure_heads)),
        ),
    ),
    Layout(
        "B-figure-3",
        "Paper B, figure 3: one input, layer by layer",
        (Panel("A", "Number task", LOOKS, _example("number")), Panel("B", "Letter task", LOOKS, _example("letter"))),
    ),
    Layout(
        "B-figure-5",
        "Paper B, figure 5: discrepancy and length",
        (
            Panel(
                "A",
                "Lead of the right key over length",
                "black: median and 5 to 95 % of the task's own inputs; pink: lengths at which the printed bound is broken",
                _gaps,
            ),
            Panel(
                "B",
                "Accuracy beyond the length of training",
                "means over seeds of test data; predictions come from inputs of training length",
                _of_tasks("generalise", _length, one_legend=True),
            ),
            Panel(
                "C, D",
                "Chat models on one hop",
                "black: the model asked here, with a standard deviation over runs; broken lines: the paper's models",
                _chat,
            ),
        ),
    ),
    Layout(
        "B-figure-6",
        "Paper B, figure 6: scores of every layer over training",
        (
            Panel("A", "Number task", "over training steps; dashed: entropy of attention", _layers("number")),
            Panel("B", "Letter task", "over training steps; dashed: entropy of attention", _layers("letter")),
        ),
    ),
    Layout(
        "B-figure-7",
        "Paper B, figure 7: when heads become pure",
        (
            Panel("A", "Number of pure heads", GAMMA, _over_steps(_pure_heads)),
            Panel("B", "Step from which heads stayed pure", "those that are pure at the end", _over_steps(_pure_steps)),
        ),
    ),
    Layout(
        "B-figure-8",
        "Paper B, figure 8: which planes heads use",
        (
            Panel(
                "",
                "Share of each plane in the spread of logits",
                "last query, mean over inputs; orange: mean plane by variance, blue: the paper's",
                _of_tasks("mechanisms", _used_planes),
            ),
        ),
    ),
    Layout(
        "B-table-1",
        "Paper B, table 1: mean plane of each layer",
        (
            Panel(
                "",
                "Plane ids count from 1, the fastest",
                "where the paper gives a range for several layers (37 to 39, 37 to 42), its middle",
                _table_1,
            ),
        ),
    ),
)
"""Figures of which we know what they show; of other numbers we do not."""
