"""Figures of a profile: heads, planes, depth, other ways to score, and a few heads in detail (paper A)."""

from __future__ import annotations

from typing import Literal

from ...charts import Figure
from ...runs import Run, read_profile
from .figures_details import DETAILS
from .figures_heads import classical_chart, heads_chart, sensitivity_chart
from .figures_layers import depth_chart, heat_map_chart, kinds_chart
from .figures_planes import head_chart, norms_chart, planes_chart, planes_of_heads_chart
from .rows import head_rows, once, planes_measured, read_details

READING = {
    "kinds": "One tile per head over its layer: blue attends mainly to places, orange to things, grey to neither.",
    "heads": "Right: weights stay at their places when keys move; up: they follow the keys. Click a head to see it everywhere.",
    "head": "Each RoPE plane of the chosen head scored alone, fastest left; below, how large its logits are in each plane.",
    "depth": "Each dot is a head; lines are medians over a layer, bands the middle half of its heads.",
    "heat-maps": "One tile per head, layers from left to right; below, blue is mainly positional, orange mainly symbolic.",
    "planes": "Scores of single planes, mean over heads, from fast planes to slow ones; where lines cross, both are equal.",
    "planes-of-heads": "A small panel for each head: plane scores from the fastest plane (left) to the slowest (right).",
    "norms": "Bright tiles are the planes with the largest logits of a head; heads go from positional to symbolic.",
    "sensitivity": "Scores taken in another way (up) against the usual ones (across): on the dashed line nothing changes.",
    "classical": "The plane of heads again; darker heads have more of a score that is known from elsewhere.",
    "traces": "Bars are weights after a swap, black ticks before it: a positional head keeps to the ticks.",
    "path": "A head given its planes one by one, the largest first: rings mark the first and the last step.",
    "geometry": "Keys (circles) by position and queries (black), each head in the plane that it uses most.",
}
"""How to read each figure, in the order in which they stand on a page."""
Beside = dict[str, tuple[str | None, Literal["half", "two-thirds", "third"]]]
BESIDE: Beside = {
    "heads": (None, "half"),
    "head": ("One head, plane by plane", "half"),
}
"""Titles and widths of figures that stand side by side."""
WITHOUT_PLANES: Beside = {"heads": (None, "half"), "depth": (None, "half")}
"""The same where single planes were not scored."""


def figures(run: Run) -> dict[str, Figure]:
    """All figures that can be drawn from what is in the run folder of a profile; nothing of what was not measured."""
    stats = run.results
    about = f"{stats['model']}, {stats['precision']}; {stats['prompts']}"
    charts = {name: draw(stats, about) for name, draw in OF_HEADS.items()} if head_rows(stats) else {}
    with_planes = planes_measured(stats)
    if with_planes:
        charts["planes"] = planes_chart(stats, about)
    path = run.folder / "profile.nc"
    if path.exists():
        scores = read_profile(path)
        if "query" in scores.dims:
            from ..head_scores import over_queries  # noqa: PLC0415

            scores = over_queries(scores)
        for name, draw in {"classical": classical_chart, "sensitivity": sensitivity_chart}.items():
            if (chart := draw(scores, stats, about)) is not None:
                charts[name] = chart
        if with_planes:
            charts |= {name: draw(scores, stats, about) for name, draw in OF_PLANES.items()}
    if details := once(read_details(run)):
        charts |= {name: draw(details[name], about) for name, draw in DETAILS.items()}
    beside = BESIDE if "head" in charts else WITHOUT_PLANES
    return {name: Figure(charts[name], reading, *beside.get(name, ())) for name, reading in READING.items() if name in charts}


OF_HEADS = {"kinds": kinds_chart, "heads": heads_chart, "heat-maps": heat_map_chart, "depth": depth_chart}
OF_PLANES = {"planes-of-heads": planes_of_heads_chart, "norms": norms_chart, "head": head_chart}
