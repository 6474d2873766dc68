"""Altair charts of measured heads, and helpers that studies share. Nothing here computes a measure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import altair as alt

from .html import ASSETS, asset, document, engine, for_script, packed_engine
from .html.inline import InlinePage
from .html.modules import joined
from .runs import write_whole

# Okabe and Ito's colours: colour-blind readers can tell them apart.
COLOURS = {"positional": "#0072B2", "symbolic": "#D55E00", "binding": "#009E73", "neutral": "#666666"}
GROUP_COLOURS = ["#CC79A7", "#666666", "#0072B2", "#D55E00"]

INSIDE = alt.Scale(domain=[-0.03, 1.03], nice=False)
TICKS = alt.Axis(values=[n / 5 for n in range(6)])

Rows = Sequence[Mapping[str, Any]]
Chart = Any
"""Altair's charts; its own types change with what they are combined from."""


class Inline(alt.InlineData):
    """Rows of a chart, shared by all copies of the chart.

    Altair copies and validates every row whenever it combines charts. For a page of a hundred charts that took minutes.
    """

    _class_is_valid_at_instantiation = False

    def __init__(self, values: Rows, **named: Any) -> None:
        super().__init__(values=[row if type(row) is dict else dict(row) for row in values], **named)

    def __deepcopy__(self, _: Any) -> Inline:
        """Rows are never changed, so a copy need not have its own."""
        return self


class _Unit(alt.Chart):
    """A chart whose copies share what is never changed in place.

    Altair copies every part of every chart whenever it combines charts. That was half of the time that a page took.
    """

    def __deepcopy__(self, _: Any) -> _Unit:
        """A chart of its own parameters and sizes; rows, marks, encodings and transforms are shared."""
        shared = ("data", "mark", "encoding", "transform")
        return type(self)(**{name: part if name in shared else deepcopy(part) for name, part in self._kwds.items()})


def chart_of(rows: Rows) -> alt.Chart:
    """A chart of rows, to which marks and encodings are added."""
    return _Unit(Inline(rows))


PICKED = "picked"
"""Name of the parameter that holds the selected head. Charts with this parameter follow the selection on a page."""


@dataclass(frozen=True)
class Figure:
    """A chart of a run, with one sentence on how to read it.

    chart    an Altair chart
    reading  how to read the chart
    title    shown above the chart instead of its own title; for titles that change with the selected head
    width    share of the page's width, if the window is wide enough
    """

    chart: Chart
    reading: str
    title: str | None = None
    width: Literal["full", "half", "two-thirds", "third"] = "full"

    def __post_init__(self) -> None:
        """Make the chart safe to show: its rows may hold any text."""
        escaped(self.chart)


class _Json(json.JSONEncoder):
    """JSON that cannot end the script element it stands in."""

    def encode(self, o: Any) -> str:
        return str(for_script(o))


LEGENDS = {"direction": "horizontal", "anchor": "start", "margin": 28}
"""Several legends of a chart beside each other."""
HOUSE: dict[str, dict[str, Any]] = {
    "title": {
        "anchor": "start",
        "frame": "group",
        "fontSize": 12.5,
        "subtitleFontSize": 11.5,
        "subtitleColor": "#555555",
        "subtitlePadding": 4,
    },
    "axis": {"labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": 500, "labelLimit": 320},
    "legend": {"labelFontSize": 11.5, "titleFontSize": 11.5, "titleFontWeight": 500, "symbolOpacity": 1, "labelLimit": 400}
    | {"orient": "top", "titleOrient": "left", "offset": 6, "columnPadding": 14, "layout": {"top": LEGENDS, "bottom": LEGENDS}},
    "header": {"labelFontSize": 12, "titleFontSize": 12},
}
"""How all charts look: sizes of text, titles that start at the left, legends that take no width. A chart's own settings win."""
HEADING = 15
"""Font size of the title of a whole chart."""

CONTROL = re.compile(r"\\u(?:00[01][0-9a-f]|fff[ef]|202[89])")
"""Characters in JSON that XML does not have: vl-convert aborts the process if they are in a label of a picture. Two more end
lines in Vega's expressions, so that a chart with them is not drawn."""


def _dress(spec: dict[str, Any]) -> None:
    """Make a chart look like all others, but for what it sets itself."""
    own = spec["config"]
    spec["config"] = {**own, **{part: {**look, **own.get(part, {})} for part, look in HOUSE.items()}}
    if not all(spec.get("datasets", {}).values()):  # Vega cannot place the title of an empty legend beside it
        spec["config"]["legend"].pop("titleOrient", None)
    if isinstance(spec.get("title"), dict):
        spec["title"] = {"fontSize": HEADING, "frame": "bounds", "offset": 12, **spec["title"]}


class _Escaped:
    """What Altair's charts write as HTML, for notebooks and files, with all text escaped.

    Altair writes JSON into a script element as it is, so that `</script>` in a row would end the element.
    """

    def to_dict(self, *given: Any, **named: Any) -> dict[str, Any]:
        found: dict[str, Any] = super().to_dict(*given, **named)  # type: ignore[misc]
        if "config" in found:  # only whole charts have one
            _dress(found)
        text = json.dumps(found)
        return json.loads(CONTROL.sub(r"\\ufffd", text)) if CONTROL.search(text) else found

    def to_html(self, *given: Any, **named: Any) -> str:
        return super().to_html(*given, **{**named, "json_kwds": {"cls": _Json}})  # type: ignore[misc, no-any-return]

    def _repr_mimebundle_(self, *given: Any, **named: Any) -> Any:
        """For notebooks: the chart in an iframe that needs no network. A renderer that the user has chosen comes first."""
        if alt.renderers.active == "default":
            title = _plain_title(self)
            return {"text/plain": f"<chart: {title}>", "text/html": InlinePage(chart_page(self, title), title)._repr_html_()}
        shown = super()._repr_mimebundle_(*given, **named)  # type: ignore[misc]
        if isinstance(shown, dict) and "text/html" in shown:
            return alt.renderers.get()(self.to_dict(context={"pre_transform": False}), json_kwds={"cls": _Json})  # type: ignore[misc]
        return shown

    def save(self, fp: Any, format: Any = None, *given: Any, **named: Any) -> None:
        is_html = format == "html" or (format is None and str(fp).endswith(".html"))
        more = {"json_kwds": {"cls": _Json}} if is_html else {}
        super().save(fp, format, *given, **{**named, **more})  # type: ignore[misc]


@cache
def _escaped_class(kind: Any) -> type:
    return type(kind.__name__, (_Escaped, kind), {"__doc__": kind.__doc__, "__module__": kind.__module__})


def escaped(chart: Chart) -> Chart:
    """The chart itself, which from now on escapes text in the HTML that it writes."""
    if not isinstance(chart, _Escaped):
        object.__setattr__(chart, "__class__", _escaped_class(type(chart)))  # type: ignore[arg-type]
    return chart


def literal(value: Any) -> str:
    """A value as part of a Vega expression: text from files is data there, never code."""
    return json.dumps(value)


def title_of(figure: Figure) -> str:
    """The title of a figure as text."""
    return figure.title or _plain_title(figure.chart)


def _plain_title(chart: Chart) -> str:
    """The title of a chart as text; a word where it has none, or one that is computed as the chart is drawn."""
    title = getattr(chart, "title", None)
    text = title if isinstance(title, str) else getattr(title, "text", None)
    if isinstance(text, list):
        return " ".join(map(str, text))
    return text if isinstance(text, str) else "chart"


def picked(name: str = "") -> alt.Parameter:
    """The parameter that holds the selected head, such as "L8 H1"; `name` is selected at first."""
    return alt.param(name=PICKED, value=name)


def across(field: str) -> alt.X:
    """The horizontal axis of positional scores."""
    return alt.X(f"{field}:Q", scale=INSIDE, axis=TICKS, title="positional score: weights stay in place")


def up(field: str) -> alt.Y:
    """The vertical axis of symbolic scores."""
    return alt.Y(f"{field}:Q", scale=INSIDE, axis=TICKS, title="symbolic score: weights follow the keys")


def corners(gamma: float = 0.1, named: bool = True) -> list[Chart]:
    """Shaded and named corners of the plane of scores: pure heads, and uniform attention."""

    def corner(name: str, kind: str, x: float, y: float) -> list[Chart]:
        """A shaded square with its corner at (x, y), and its name where few heads are: as both scores sum to 1 or more."""
        box = {"x": x, "x2": abs(x - gamma), "y": y, "y2": abs(y - gamma), "name": name, "low": 0.8 * gamma}
        base = chart_of([box])
        shade = base.mark_rect(color=COLOURS[kind], opacity=0.15).encode(
            across("x"), up("y"), x2=alt.X2("x2:Q"), y2=alt.Y2("y2:Q")
        )
        if not named:
            return [shade]
        look: dict[str, Any] = {"fontStyle": "italic", "align": "right" if x > 0.5 else "left"}
        look |= {"baseline": "top", "dy": 4} if y > 0.5 else {"baseline": "middle", "dx": -6}
        # A rim, so that the name can be read over heads.
        marks = [base.mark_text(stroke="white", strokeWidth=3, **look), base.mark_text(color=COLOURS[kind], **look)]
        place = (across("x"), up("y2")) if y > 0.5 else (across("x2"), up("low"))
        return [shade, *(mark.encode(*place, text=alt.Text("name:N")) for mark in marks)]

    return [
        *corner("pure positional", "positional", 1, 0),
        *corner("pure symbolic", "symbolic", 0, 1),
        *corner("uniform attention", "neutral", 1, 1),
    ]


def plane_chart(rows: Rows, name_group: str | None = None, gamma: float = 0.1) -> Chart:
    """A scatter plot of heads by positional and symbolic score, with confidence intervals and the corners of pure heads.

    rows        one dict per head: head, group, positional, symbolic, their *_low and *_high, and entropy
    name_group  heads of this group are labelled with their names
    gamma       tolerance of `purity`: size of the shaded corners

    Missing entries raise no errors here; Altair leaves out what a row does not have.

    >>> import ropescope as rs
    >>> row = {"head": "L0 H0", "group": "mine", "positional": 0.9, "symbolic": 0.2, "entropy": 0.4}
    >>> row |= {"positional_low": 0.8, "positional_high": 1.0, "symbolic_low": 0.1, "symbolic_high": 0.3}
    >>> chart = rs.plane_chart([row], name_group="mine")  # chart.save("plane.png") writes it
    >>> chart.to_dict()["title"]
    'Do heads attend to places or to things?'
    """
    heads = chart_of(list(rows))
    groups = list(dict.fromkeys(row["group"] for row in rows))
    colour = alt.Color("group:N", title="heads").scale(domain=groups, range=GROUP_COLOURS[: len(groups)])
    points = heads.mark_point(filled=True, size=80, opacity=0.9).encode(
        across("positional"),
        up("symbolic"),
        color=colour,
        shape=alt.Shape("group:N", title="heads").scale(domain=groups),
        tooltip=[
            alt.Tooltip("head:N"),
            alt.Tooltip("group:N"),
            *(alt.Tooltip(f"{name}:Q", format=".4f") for name in ("positional", "symbolic", "entropy")),
        ],
    )
    intervals = [
        heads.mark_rule(strokeWidth=1.5).encode(
            across("positional_low"), up("symbolic"), x2=alt.X2("positional_high:Q"), color=colour
        ),
        heads.mark_rule(strokeWidth=1.5).encode(
            across("positional"), up("symbolic_low"), y2=alt.Y2("symbolic_high:Q"), color=colour
        ),
    ]
    named = chart_of([row for row in rows if row["group"] == name_group])
    sides: dict[str, dict[str, Any]] = {"<": {"align": "left", "dx": 4, "dy": 15}, ">=": {"align": "right", "dx": -9}}
    names = [
        named.transform_filter(f"datum.positional {half} 0.5")
        .mark_text(fontWeight="bold", **side)
        .encode(across("positional"), up("symbolic"), text=alt.Text("head:N"))
        for half, side in sides.items()
    ]
    chart = alt.layer(*corners(gamma), *intervals, points, *names)
    return escaped(chart.properties(width=420, height=420, title="Do heads attend to places or to things?"))


def share_chart(rows: Rows) -> Chart:
    """A bar chart of variance shares: how much of each head's `M` depends on place, on content, and on both together.

    rows  one dict per head: head, group, position_share, symbol_share, binding_share

    Raises KeyError if a row has no such entry.

    >>> import ropescope as rs
    >>> row = {"head": "L0 H0", "group": "mine", "position_share": 0.7, "symbol_share": 0.2, "binding_share": 0.1}
    >>> rs.share_chart([row]).to_dict()["title"]
    'What do their logits depend on?'
    """
    parts = {
        "position_share": ("place", COLOURS["positional"]),
        "symbol_share": ("content", COLOURS["symbolic"]),
        "binding_share": ("which content where", COLOURS["binding"]),
    }
    values = [
        {"head": row["head"], "group": row["group"], "part": name, "rank": rank, "share": row[key]}
        for row in rows
        for rank, (key, (name, _)) in enumerate(parts.items())
    ]
    return escaped(
        chart_of(values)
        .mark_bar()
        .encode(
            x=alt.X("share:Q", title="share of the variance of M", stack="zero", scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("head:N", title=None, sort=[row["head"] for row in rows]),
            color=alt.Color("part:N", title="depends on").scale(
                domain=[name for name, _ in parts.values()], range=[colour for _, colour in parts.values()]
            ),
            order=alt.Order("rank:O"),
            tooltip=[
                alt.Tooltip("head:N"),
                alt.Tooltip("group:N"),
                alt.Tooltip("part:N"),
                alt.Tooltip("share:Q", format=".4f"),
            ],
        )
        .properties(width=300, height=alt.Step(14), title="What do their logits depend on?")
    )


def chart_page(chart: Chart, title: str) -> str:
    """A page of one chart, which needs no network and runs no script but its own."""
    return document(
        "chart.html",
        joined(ASSETS / "page", "chart.js"),
        engine(),
        title=title,
        style=asset("chart.css"),
        data=for_script(chart.to_dict()),
        engine=packed_engine(),
    )


def picture(chart: Chart) -> bytes:
    """A chart as PNG."""
    drawn = BytesIO()
    chart.save(drawn, format="png", scale_factor=2)
    return drawn.getvalue()


def write_chart(chart: Chart, folder: Path, name: str) -> list[str]:
    """The names of the two files that are written: the chart as HTML that needs no network, and as PNG."""
    write_whole(folder / f"{name}.html", chart_page(chart, name))
    write_whole(folder / f"{name}.png", picture(chart))
    return [f"{name}.html", f"{name}.png"]
