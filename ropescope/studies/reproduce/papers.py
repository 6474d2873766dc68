"""Figures in the layout of both papers, lettered panels and all, from run folders: as SVG and PNG for a talk or a text.

Figures that are known to us by their number bear it; those of paper A's section 4 are named after what they show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import altair as alt
import vl_convert

from ...charts import Chart
from ...runs import find_runs, write_whole
from ..claims import NotRunError, Runs
from .layout import APART, Layout, Panel
from .panels import LAYOUTS


@dataclass(frozen=True)
class Figures:
    """What was drawn, and what was not for want of runs: figure and panel, with the reason."""

    charts: Mapping[str, Chart]
    left_out: Mapping[str, str]


def paper_figures(folders: Sequence[Path], out: Path) -> list[str]:
    """Write all figures that the runs in the folders allow; returns the names of the files.

    `left-out.txt` names the figures and panels for which there was no run, if any.
    """
    drawn = figures(Runs(find_runs(folders)))
    files = [file for name, chart in drawn.charts.items() for file in _write(chart, out, name)]
    if drawn.left_out:
        write_whole(out / "left-out.txt", "".join(f"{name}: {why}\n" for name, why in drawn.left_out.items()))
        files.append("left-out.txt")
    return files


def _write(chart: Chart, folder: Path, name: str) -> list[str]:
    """As SVG, and as PNG made from that: drawing is what takes time."""
    vector = StringIO()
    chart.save(vector, format="svg")
    write_whole(folder / f"{name}.svg", vector.getvalue())
    write_whole(folder / f"{name}.png", vl_convert.svg_to_png(vector.getvalue(), scale=1.5))
    return [f"{name}.svg", f"{name}.png"]


def figures(runs: Runs) -> Figures:
    """Every figure by name; panels without runs are left out, and figures without panels."""
    charts: dict[str, Chart] = {}
    left_out: dict[str, str] = {}
    for layout in LAYOUTS:
        parts, used, reasons = [], [], {}
        for panel in layout.panels:
            try:
                chart, sources = panel.draw(runs)
            except NotRunError as reason:
                reasons[f"{layout.name}, panel {panel.letter}"] = str(reason)
            else:
                parts.append(_lettered(panel, chart))
                used += [run.name for run in sources]
        if parts:
            charts[layout.name] = _figure(layout, parts, list(dict.fromkeys(used)))
            left_out |= reasons
        else:
            left_out[layout.name] = "; ".join(dict.fromkeys(reasons.values()))
    return Figures(charts, left_out)


def _lettered(panel: Panel, chart: Chart) -> Chart:
    title = f"{panel.letter}\N{EN SPACE}{panel.title}" if panel.letter else panel.title
    heading = alt.TitleParams(title, subtitle=panel.reading, anchor="start", frame="group", fontSize=16, offset=10)
    return alt.vconcat(chart).resolve_scale(**APART).properties(title=heading)


def _figure(layout: Layout, parts: list[Chart], names: list[str]) -> Chart:
    heading = alt.TitleParams(layout.title, subtitle=f"from {', '.join(names)}", anchor="start", fontSize=18, offset=16)
    joined = alt.hconcat(*parts, spacing=36) if layout.across else alt.vconcat(*parts, spacing=36)
    figure = joined.resolve_scale(**APART).properties(title=heading)
    return figure.configure_legend(labelLimit=400).configure_axis(labelLimit=320)
