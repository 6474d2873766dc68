"""Colours, titles and legends that the charts of a profile share."""

from __future__ import annotations

import textwrap
from typing import Any

import altair as alt

from ...charts import COLOURS, Chart, Rows, across, chart_of, up
from .statistics import SCORES

KINDS = ["positional", "mixed", "symbolic"]
KIND_COLOURS = alt.Scale(domain=KINDS, range=[COLOURS["positional"], "#999999", COLOURS["symbolic"]])
SCORE_COLOURS = alt.Scale(domain=list(SCORES), range=[COLOURS[score] for score in SCORES])
DARK_TO_LIGHT = alt.SchemeParams(name="viridis", extent=[0, 0.93])
"""Even steps to the eye, also to colour-blind ones; without the yellow end, which is lost on white."""
HEAD_TOOLTIP = [
    alt.Tooltip("name:N", title="head"),
    alt.Tooltip("kind:N"),
    alt.Tooltip("positional_text:N", title="positional"),
    alt.Tooltip("symbolic_text:N", title="symbolic"),
]


def titled(chart: Chart, width: float, title: str, *lines: str) -> Chart:
    """The chart under a title that states what is seen, with lines on how to read it and where the data come from."""
    subtitle = [part for line in lines for part in textwrap.wrap(line, int(max(width, 560) / 5.9))]
    heading = alt.TitleParams(title, subtitle=subtitle, anchor="start", fontSize=15, subtitleColor="#555555", offset=12)
    return chart.properties(title=heading)


def small_title(title: str, lines: list[str] | None = None) -> alt.TitleParams:
    """The title of one panel among several."""
    more: dict[str, Any] = {"subtitle": lines} if lines else {}
    return alt.TitleParams(title, anchor="start", frame="group", fontSize=12, subtitleFontSize=10, **more)


def legend(title: str, **more: Any) -> alt.Legend:
    """A legend whose symbols are not as pale as the bands of the chart."""
    return alt.Legend(title=title, symbolOpacity=1, **more)


def head_names(rows: Rows, field: str = "name") -> list[Chart]:
    """Names beside heads in the positional-symbolic plane, with a white rim so that they can be read over others.

    They stand to the left of heads on the right, and below the others: so none crosses an axis or the name of a corner.
    """
    charts = []
    sides: dict[str, dict[str, Any]] = {
        ">": {"align": "right", "dx": -9, "dy": -5},
        "<=": {"align": "left", "dx": -4, "dy": 15},
    }
    for half, side in sides.items():
        base = chart_of(list(rows)).transform_filter(f"datum.positional {half} 0.5")
        look: dict[str, Any] = {"fontWeight": "bold", **side}
        rim = base.mark_text(stroke="white", strokeWidth=4, strokeJoin="round", **look)
        charts += [
            mark.encode(across("positional"), up("symbolic"), text=alt.Text(f"{field}:N"))
            for mark in (rim, base.mark_text(**look))
        ]
    return charts
