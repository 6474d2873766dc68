"""One page for any number of runs: a single HTML file that needs no network.

A page of several runs begins with a live picture and the findings; then come the questions, each with its story, its main chart
and its runs, then the scoreboard, and a list of all runs. Charts are drawn in the browser when they come into view. Their rows
are kept once each, column by column and compressed, so that the page grows with the number of heads and with nothing else.
Templates escape all text, ids are made here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from altair.utils.schemapi import debug_mode
from markupsafe import Markup

from ..html import ASSETS, GLOSSARY, Ids, document, engine, for_script, packed, packed_engine, page_style, render
from ..html.modules import joined
from ..runs import Run, find_runs, new_folder, write_whole
from ..studies import studies, study_of
from ..studies.claims import Claim, judge
from ..studies.story import QUESTIONS, Question, Story, findings, stories
from . import playground
from .duet import duet
from .scoreboard import not_reproduced, scoreboard_html
from .sections import CALLED, Link, Shown, figure, payload_of, prepared, section, view

SHORT = ("Heads", "Training", "Frequencies", "Length", "Proofs", "Chat models", "Checks")
"""The questions in a word or two, for links."""
ANCHORS = {question: f"q-{name.lower().replace(' ', '-')}" for question, name in zip(QUESTIONS, SHORT, strict=True)}
OURS = ("main", "theme", "engine", "glossary", "findings", "scoreboard", "runs", "term", *ANCHORS.values())
"""Ids in the templates; those of their parts begin with them and two hyphens."""
PARTS = ("main--title", *(f"{name}--{part}" for name in OURS for part in ("title", "search", "verdict", "paper")))
MARK = b'<meta name="generator" content="ropescope">'
"""What pages begin with."""
OLD_MARK = b'<a class="skip" href="#main">Skip to the results</a>'
"""What pages of earlier versions hold."""
HEADING = "Does an attention head look at a place, or at a thing?"


def write_page(folders: Sequence[Path], out: Path, title: str | None = None) -> Path:
    """Write the page of all runs in the folders; a ValueError in one sentence if one of them cannot be shown.

    title  of the page; without one it is called after its run, or asks the question that all runs are about
    """
    if out.is_dir():
        raise ValueError(f"out: {out} is a folder: give the name of a file, as in {out / 'page.html'}")
    if os.path.lexists(out) and not _is_page(out):
        raise ValueError(f"out: {out} exists and is no page of ropescope: remove it or give another name")
    new_folder(out.parent)
    runs = sorted(find_runs(folders), key=_place)
    ids = Ids(*OURS, *PARTS)
    shown = [prepared(run, ids) for run in runs]
    write_whole(out, _page(shown, ids, title))
    return out


def _page(shown: Sequence[Shown], ids: Ids, title: str | None) -> str:
    runs = [one.run for one in shown]
    link, alone = _links(shown), len(shown) == 1
    sections = {one.id: section(one, runs, ids, link, is_open=len(runs) <= 2, alone=alone) for one in shown}
    scores = _scoreboard(runs)
    told = "" if alone else _findings(runs, scores, ids, link)
    asked = [] if alone else _questions(shown, sections, ids, link)
    parts = [("findings", "Findings")] if told else []
    parts += [(ANCHORS[question], SHORT[QUESTIONS.index(question)]) for question, _ in asked]
    parts += [("scoreboard", "Scoreboard")] if scores else []
    parts += [] if alone else [("runs", "Runs")]
    played = {one.id: data for one in shown if (data := one.run.read("playground.json"))}
    pair = duet(played, {one.id: one.kinds for one in shown})
    heading = title or (shown[0].title if alone else HEADING)
    return document(
        "page.html",
        joined(ASSETS / "page") + (playground.script() if played else ""),
        engine(),
        title=heading if title or alone else f"ropescope: {HEADING[0].lower()}{HEADING[1:]}",
        heading=heading,
        alone=alone,
        headline=shown[0].headline if alone else "",
        style=page_style() + (playground.style() if played else ""),
        contents=parts,
        duet=render("duet.html", data=for_script(pair), model=_name_of(pair), run=pair["run"]) if pair else "",
        findings=told,
        sections=[sections[one.id] for one in shown] if alone else [html for _, html in asked],
        scoreboard=scoreboard_html(scores, link) if scores else "",
        appendix=_appendix(shown) if not alone else "",
        glossary=for_script(GLOSSARY),
        engine=packed_engine(),
    )


def _is_page(path: Path) -> bool:
    """Whether a file is a page that may be replaced: one that we wrote, or an empty file."""
    if not path.is_file():  # a device, a pipe, a link to nowhere
        return False
    with path.open("rb") as file:
        start = file.read(1 << 16)
    return not start or MARK in start or OLD_MARK in start


def _place(run: Run) -> tuple[int, int]:
    """Where a run stands on the page: by question, then by study; unknown ones last."""
    order = list(studies())
    return QUESTIONS.index(study_of(run).question), order.index(run.command) if run.command in order else len(order)


def _links(shown: Sequence[Shown]) -> Link:
    """A function of the names of a run and of its chart that returns the id to link to; empty if there is none, or several."""
    links: dict[tuple[str, str], list[str]] = {}
    for one in shown:
        for chart, target in {"": one.id, **one.charts}.items():
            links.setdefault((one.run.name, chart), []).append(target)

    def link(run: str, chart: str = "") -> str:
        found = links.get((run, chart)) or links.get((run, "")) or []
        return found[0] if len(found) == 1 else ""  # where runs have the same name, nobody knows which it is

    return link


def _name_of(pair: dict[str, Any]) -> str:
    about = pair["about"]
    return str(about.get("model", "a model")) if isinstance(about, dict) else "a model"


def _findings(runs: Sequence[Run], scores: Sequence[Claim], ids: Ids, link: Link) -> Markup | str:
    """What the runs show, in a few sentences with their numbers; empty if they show none of it."""
    with debug_mode(False):
        found = findings(runs)
        if last := not_reproduced(scores):
            found.append(last)
        figures = {str(n): one.figure for n, one in enumerate(found)}
        payload = payload_of(figures) | {"choice": None}
    rows = []
    for n, one in enumerate(found):
        target = link(one.run.name, one.chart) if one.run else "scoreboard"
        rows.append({"id": ids.new(f"finding-{n + 1}"), "number": n, "told": one, "target": target})
    packed_payload = packed(json.dumps(payload, ensure_ascii=False, allow_nan=False))
    return render("findings.html", findings=rows, payload=packed_payload) if rows else ""


def _questions(shown: Sequence[Shown], sections: dict[str, Markup], ids: Ids, link: Link) -> list[tuple[Question, Markup]]:
    """The section of every question that some runs belong to: story, main chart, views of studies, and the runs, folded."""
    told = stories([one.run for one in shown])
    found = []
    for question in QUESTIONS:
        members = [one for one in shown if one.study.question == question]
        if not members:
            continue
        views = [_overview(name, members, ids, link) for name in dict.fromkeys(one.study.name for one in members)]
        found.append(
            (
                question,
                render(
                    "question.html",
                    id=ANCHORS[question],
                    question=question,
                    stories=[_story(one, n == 0, shown, ids) for n, one in enumerate(told.get(question, []))],
                    views=[one for one in views if one],
                    runs=[sections[one.id] for one in members],
                    is_open=len(shown) <= 2,
                ),
            )
        )
    return found


def _overview(study: str, members: Sequence[Shown], ids: Ids, link: Link) -> Markup:
    """What a study shows of all its runs together, if there are several and they can be shown so."""
    some = [one for one in members if one.study.name == study]
    try:
        return view(some[0].study.overview([one.run for one in some]), ids, link) if len(some) > 1 else Markup("")
    except (
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        ArithmeticError,
    ):  # of other sizes, or older: each has its own section
        return Markup("")


def _story(told: Story, first: bool, shown: Sequence[Shown], ids: Ids) -> dict[str, Any]:
    """Paragraphs of a story, with its chart if it is the first one of its question, else with a link to the chart."""
    of = next((one for one in shown if told.run and one.run.folder == told.run.folder), None)
    if not of or told.chart not in of.figures:
        return {"text": told.text, "figure": "", "target": ""}
    large = figure(of, told.chart, ids.new(f"{of.id}-{told.chart}-large"), told.seen) if first else ""
    return {"text": told.text, "figure": large, "target": "" if first else of.charts[told.chart]}


def _appendix(shown: Sequence[Shown]) -> Markup:
    """All runs with their folders, as a table."""
    rows = [
        {
            "id": one.id,
            "title": one.title,
            "name": one.run.name,
            "command": CALLED.get(one.run.command, f"ropescope {one.run.command}"),
            "written": str(one.run.summary.get("written", "not ended yet"))[:10],
        }
        for one in shown
    ]
    return render("appendix.html", runs=rows)


def _scoreboard(runs: Sequence[Run]) -> list[Claim]:
    """Nothing for runs of one command only, which say little of both papers."""
    return judge(runs) if len({run.command for run in runs}) > 1 else []
