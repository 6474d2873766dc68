"""Draws the pictures of the documentation: `make reference`.

Those of docs/guide.md come from the tables in it. Others are figures of recorded runs: a page shows the figure FIGURE of
results/RUN by linking to pictures/RUN--FIGURE.png.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import altair as alt
import torch

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

import ropescope as rs  # noqa: E402
from ropescope.charts import COLOURS, Chart, Inline  # noqa: E402

CONTENTS, PLACES = ("red", "blue", "green"), ("first", "second", "third")
MOVES = ("before", "after")


def heads() -> dict[str, torch.Tensor]:
    """The four heads of the guide: tables of three keys and the query itself."""
    w = torch.tensor([1.0, 2.0, 6.0, 1.0])
    return {
        "positional": w.log().expand(4, 4),
        "symbolic": w.log()[:, None].expand(4, 4),
        "mixed": w.log() + w.log()[:, None],
        "binding": torch.tensor([6.0, 6.0, 6.0, 1.0]).log().diag(),
    }


def heads_chart() -> Chart:
    """For each head its table, and weights of the three places before and after the first and third content are swapped."""
    return alt.hconcat(*(_one_head(name, M) for name, M in heads().items()), spacing=34).configure_view(stroke=None)


def _one_head(name: str, M: torch.Tensor) -> Chart:
    positional, symbolic = rs.swap_scores(M)
    table = [
        {"content": content, "place": place, "weight": round(float(M[c, p].exp())), "real": c == p}
        for c, content in enumerate(CONTENTS)
        for p, place in enumerate(PLACES)
    ]
    base = alt.Chart(Inline(values=table)).encode(
        x=alt.X("place:N", sort=PLACES, title="place").axis(labelAngle=0, orient="top", domain=False, ticks=False),
        y=alt.Y("content:N", sort=CONTENTS, title="content" if name == "positional" else None).axis(domain=False, ticks=False),
    )
    colour = alt.Color("weight:Q", scale=alt.Scale(type="log", domain=[1, 36], range=["#f2f2f2", "#0072B2"]), legend=None)
    cells = base.mark_rect(stroke="white", strokeWidth=2).encode(color=colour)
    rings = base.transform_filter("datum.real").mark_rect(fill=None, stroke="black", strokeWidth=1.5)
    dark = alt.condition("datum.weight > 7", alt.value("white"), alt.value("black"))
    numbers = base.mark_text(fontSize=15).encode(text="weight:Q", color=dark)
    said = f"positional {positional:.2f}, symbolic {symbolic:.2f}"
    title = alt.TitleParams(name, subtitle=said, anchor="start", fontSize=15, subtitleFontSize=12)
    square = alt.layer(cells, rings, numbers).properties(width=180, height=150, title=title)
    return alt.vconcat(square, _bars(name, M), spacing=16)


def _bars(name: str, M: torch.Tensor) -> Chart:
    """Weights before and after the swap, coloured by which content stands there."""
    rows: list[dict[str, Any]] = []
    for when, order in zip(MOVES, ([0, 1, 2, 3], [2, 1, 0, 3]), strict=True):
        weights = M[order, range(4)].softmax(0)
        rows += [
            {"when": when, "place": place, "weight": float(weights[p]), "content": CONTENTS[order[p]]}
            for p, place in enumerate(PLACES)
        ]
    scale = alt.Scale(domain=list(CONTENTS), range=["#D55E00", "#56B4E9", "#009E73"])
    base = alt.Chart(Inline(values=rows)).encode(
        x=alt.X("place:N", sort=PLACES, title=None).axis(labelAngle=0, ticks=False),
        y=alt.Y("weight:Q", title="weight" if name == "positional" else None).scale(domain=[0, 1]).axis(values=[0, 0.5, 1]),
    )
    bars = base.mark_bar(size=26).encode(color=alt.Color("content:N", scale=scale, legend=None))
    words = base.mark_text(dy=-7, fontSize=11).encode(text="content:N")
    drawn = [
        alt.layer(bars, words)
        .transform_filter(f"datum.when == '{when}'")
        .properties(
            width=180, height=80, title=alt.TitleParams(f"{when} red and green are swapped", anchor="start", fontSize=11)
        )
        for when in MOVES
    ]
    return alt.vconcat(*drawn, spacing=10)


CORNERS = ((0.9, 1.0, 0.0, 0.1), (0.0, 0.1, 0.9, 1.0), (0.9, 1.0, 0.9, 1.0))
"""Purely positional, purely symbolic, both high: least and most of either score."""


def plane_chart() -> Chart:
    """The plane of both scores: its corners, the half that stays empty, pure heads, and the other two of the guide."""
    scale = alt.Scale(domain=[0, 1], nice=False)
    x, y = alt.X("x:Q", title="positional score", scale=scale), alt.Y("y:Q", title="symbolic score", scale=scale)

    def of(rows: list[dict[str, Any]]) -> Chart:
        return alt.Chart(Inline(values=rows)).encode(x=x, y=y)

    half = of([{"x": 0, "y": 1}, {"x": 1, "y": 0}]).mark_area(color="#dddddd")
    boxes = of([{"x": a, "x2": b, "y": c, "y2": d} for a, b, c, d in CORNERS]).encode(x2="x2", y2="y2")
    layers = [half, boxes.mark_rect(fill=COLOURS["neutral"], opacity=0.35)]
    for where, said, side in (
        ((0.3, 0.33), "empty: the two sum to 1 or more", "center"),
        ((0.885, 0.05), "purely positional", "right"),
        ((0.005, 0.865), "purely symbolic", "left"),
        ((0.885, 0.93), "uniform, or bound", "right"),
    ):
        text = of([{"x": where[0], "y": where[1], "said": said}])
        layers.append(text.mark_text(fontSize=13, align=side, color="#333333").encode(text="said:N"))
    for kind, look in (("positional", {"align": "left", "dx": 9}), ("symbolic", {"dy": -12})):
        dots = of([{"x": p, "y": s, "said": f"{r}"} for r in (2, 6, 20, 100) for p, s in [_pure(kind, r)]])
        layers.append(dots.mark_point(filled=True, size=60, opacity=1, clip=False, color=COLOURS[kind]))
        layers.append(dots.mark_text(clip=False, **look).encode(text="said:N"))
    scores = {name: rs.swap_scores(M) for name, M in heads().items() if name in ("mixed", "binding")}
    others = of([{"x": float(p), "y": float(s), "said": name} for name, (p, s) in scores.items()])
    layers.append(others.mark_point(shape="diamond", filled=True, size=110, color="black", opacity=1, clip=False))
    layers.append(others.mark_text(align="right", dx=-10, dy=9).encode(text="said:N"))
    about = [
        "Dots: pure heads whose heaviest key has so many times the weight of the lightest.",
        "Diamonds: mixed and binding head.",
    ]
    title = alt.TitleParams("Where heads can lie", subtitle=about, anchor="start")
    return alt.layer(*layers).properties(
        width=400, height=400, title=title, padding={"left": 10, "right": 50, "top": 10, "bottom": 10}
    )


def _pure(kind: str, ratio: int) -> tuple[float, float]:
    """Scores of a pure head with one key of `ratio` times the weight of the others."""
    place = torch.tensor([1.0, 1.0, ratio, 1.0]).log().expand(4, 4)
    positional, symbolic = rs.swap_scores(place if kind == "positional" else place.T)
    return float(positional), float(symbolic)


PICTURES: dict[str, Callable[[], Chart]] = {"guide-heads.png": heads_chart, "guide-plane.png": plane_chart}


LINK = re.compile(r"\(pictures/(([\w.-]+?)--([\w.-]+)\.png)\)")


def of_runs() -> dict[str, tuple[str, str]]:
    """Pictures that pages link to: file name to run and figure."""
    texts = [page.read_text(encoding="utf-8") for page in DOCS.glob("*.md")]
    return {found[1]: (found[2], found[3]) for text in texts for found in LINK.finditer(text)}


if __name__ == "__main__":
    for picture, chart in PICTURES.items():
        chart().save(DOCS / picture, scale_factor=1.3)
    for picture, (run, figure) in of_runs().items():
        path = DOCS / "pictures" / picture
        if not path.exists():  # drawing takes a while, and recorded runs do not change: remove a picture to draw it anew
            path.parent.mkdir(exist_ok=True)
            rs.open_run(DOCS.parent / "results" / run).plot(figure).save(path, scale_factor=1)
