"""What figures in the layout of a paper are made of: lettered panels, and charts as parts of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from ...charts import Chart
from ...runs import Run
from ..claims import Runs

Draw = Callable[[Runs], tuple[Chart, Sequence[Run]]]
"""Draws a panel; returns the runs it comes from, too."""


@dataclass(frozen=True)
class Panel:
    """A lettered part of a figure: what it shows, and how it is drawn from the runs at hand."""

    letter: str
    title: str
    reading: str
    draw: Draw


@dataclass(frozen=True)
class Layout:
    """A figure of a paper: its panels from top to bottom."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    across: bool = False
    """panels from left to right instead of downwards"""


APART: dict[str, Any] = {
    "color": "independent",
    "strokeDash": "independent",
    "shape": "independent",
    "strokeWidth": "independent",
}
"""Panels have scales of their own."""


def bare(chart: Chart, title: str | None = None) -> Chart:
    """A chart as part of another: without settings for the whole, and under a short title or none instead of its own."""
    part = chart.copy(deep=False)
    part.config = alt.Undefined
    part.title = alt.Undefined if title is None else alt.TitleParams(title, anchor="start", frame="group", fontSize=13)
    return part


def side_by_side(charts: Mapping[str, Chart], one_legend: bool = False) -> Chart:
    """Number and letter side by side, with a legend each or one for both."""
    parts = alt.hconcat(*(bare(chart, f"{task} task") for task, chart in charts.items()), spacing=30)
    return parts.resolve_scale(**(dict.fromkeys(APART, "shared") if one_legend else APART))
