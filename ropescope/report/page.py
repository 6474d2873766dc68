"""One page for any number of runs: a single HTML file that needs no network.

Charts are drawn in the browser when they come into view. Their rows are kept once each, column by column and compressed, so
that the page grows with the number of heads and with nothing else. Templates escape all text, ids are made here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from altair.utils.schemapi import debug_mode

from ..charts import Figure, title_of
from ..html import ASSETS, Ids, asset, document, engine, packed, packed_engine, render
from ..html.modules import joined
from ..runs import Run, find_runs, new_folder, write_whole
from ..studies import folder_of, studies, study_of
from ..studies.claims import Claim, judge
from . import playground

OURS = ("main", "theme", "engine", "scoreboard", "scoreboard--title", "scoreboard--verdict", "scoreboard--paper")
"""Ids in the templates."""
MARK = b'<meta name="generator" content="ropescope">'
"""What pages begin with."""
OLD_MARK = b'<a class="skip" href="#main">Skip to the results</a>'
"""What pages of earlier versions hold."""
VERDICTS = {
    "reproduced": "\N{CHECK MARK}",
    "partly": "\N{CIRCLE WITH LEFT HALF BLACK}",
    "not": "\N{BALLOT X}",
    "not run": "\N{EN DASH}",
}
"""What a row of the scoreboard may say, with a sign that needs no colour."""
CALLED = {"watch": "ropescope.HeadWatcher", "sweep": "ropescope dynamics"}
"""What wrote runs that no command of the same name wrote."""
FILMED = ("film", "accuracy")
"""Charts that follow the film of a training run."""


def write_page(folders: Sequence[Path], out: Path, title: str = "ropescope report") -> Path:
    """Write the page of all runs in the folders; a ValueError in one sentence if one of them cannot be shown."""
    if out.is_dir():
        raise ValueError(f"out: {out} is a folder: give the name of a file, as in {out / 'page.html'}")
    if os.path.lexists(out) and not _is_page(out):
        raise ValueError(f"out: {out} exists and is no page of ropescope: remove it or give another name")
    new_folder(out.parent)
    runs = sorted(find_runs(folders), key=_place)
    ids = Ids(*OURS)
    names = [ids.new(run.name) for run in runs]
    links: dict[tuple[str, str], list[str]] = {}  # run and chart -> ids; several if runs have the same name
    sections = []
    for number, (run, name) in enumerate(zip(runs, names, strict=True)):
        section, charts = _section(run, runs, ids, name, is_open=number == 0 or len(runs) <= 2)
        sections.append(section)
        for chart, target in {"": name, **charts}.items():
            links.setdefault((run.name, chart), []).append(target)
    scores = _scoreboard(runs)
    played = any("playground.json" in run.summary["sha256"] for run in runs)
    script = joined(ASSETS / "page") + (playground.script() if played else "")
    page = document(
        "page.html",
        script,
        engine(),
        title=title,
        style=asset("page.css") + (playground.style() if played else ""),
        contents=_contents(runs, names, bool(scores)) if len(runs) > 1 or scores else "",
        scoreboard=scoreboard_html(scores, links) if scores else "",
        sections=sections,
        engine=packed_engine(),
    )
    write_whole(out, page)
    return out


def _is_page(path: Path) -> bool:
    """Whether a file is a page that may be replaced: one that we wrote, or an empty file."""
    if not path.is_file():  # a device, a pipe, a link to nowhere
        return False
    with path.open("rb") as file:
        start = file.read(1 << 16)
    return not start or MARK in start or OLD_MARK in start


def _place(run: Run) -> int:
    """Where runs of a study stand on the page; unknown ones last."""
    order = list(studies())
    return order.index(run.command) if run.command in order else len(order)


def _contents(runs: Sequence[Run], names: Sequence[str], scoreboard: bool) -> str:
    groups: dict[str, list[tuple[str, str]]] = {}
    for run, name in zip(runs, names, strict=True):
        groups.setdefault(study_of(run).heading, []).append((name, run.name))
    return render("contents.html", scoreboard=scoreboard, groups=list(groups.items()))


def _section(run: Run, runs: Sequence[Run], ids: Ids, name: str, is_open: bool) -> tuple[str, dict[str, str]]:
    """A run: one line that says what came out, then its heads, figures and claims, all of which can be folded away.

    Also the ids of its charts, by their names.
    """
    try:
        return _shown(run, runs, ids, name, is_open)
    except Exception as error:  # what is in a file can go wrong anywhere
        if isinstance(error, OSError | MemoryError) or (isinstance(error, ValueError) and str(run.folder) in str(error)):
            raise
        raise ValueError(
            f"{run.folder} cannot be shown, as its summary lacks what a run of {run.command} holds ({error!r}): run it again"
        ) from error


def _shown(run: Run, runs: Sequence[Run], ids: Ids, name: str, is_open: bool) -> tuple[str, dict[str, str]]:
    study = study_of(run)
    headline, choice, data = study.headline(run), study.heads(run), run.read("playground.json")
    claims = [row for row in judge(study.evidence(run, runs), folder_of(study)) if row.verdict != "not run"]
    # Charts are checked when their figures are written and by tests; here it takes half of the time.
    with debug_mode(False):
        figures = study.figures(run)
        payload = _payload(figures)
    payload |= {"choice": asdict(choice) if choice else None}
    charts = {key: ids.new(f"{name}-{key}") for key in figures}
    section = render(
        "section.html",
        ids={"run": name, "playground": ids.new(f"{name}-playground")}
        | {part: ids.new(f"{name}--{part}") for part in ("title", "layer", "head", "at")},
        model=model_of(run),
        is_open=is_open,
        name=run.name,
        heading=study.heading,
        headline=headline,
        picks=choice is not None,
        steps=len(_steps(payload)) if "film" in figures else 0,
        figures=[
            {"id": charts[key], "title": title_of(figure), "reading": figure.reading, "width": figure.width}
            | {"number": number, "in_film": key in FILMED}
            for number, (key, figure) in enumerate(figures.items())
        ],
        claims=claims,
        signs=VERDICTS,
        playground=playground.fragment(data, name) if data else "",
        facts=_facts(run),
        payload=packed(json.dumps(payload, ensure_ascii=False, allow_nan=False)),
    )
    return section, charts


def _payload(figures: Mapping[str, Figure]) -> dict[str, Any]:
    """Charts in their order, without their rows, and all rows once, by column."""
    charts: list[Any] = []
    tables: dict[str, Any] = {}
    for figure in figures.values():
        spec = figure.chart.to_dict(validate=False)
        tables |= {key: _columns(rows) for key, rows in spec.pop("datasets", {}).items()}
        charts.append(spec)
    return {"charts": charts, "tables": tables}


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {"length": len(rows), "columns": {name: [row.get(name) for row in rows] for name in names}}


def _steps(payload: Mapping[str, Any]) -> list[int]:
    """The watched steps of a training run, as its film has them."""
    return next(found["columns"]["step"][0] for found in payload["tables"].values() if "x_next" in found["columns"])


def model_of(run: Run) -> str:
    """What tells models apart, so that a head chosen in one run is chosen in others of the same model: hashes of weights."""
    config = run.config
    about = config.get("about", config.get("model"))
    if isinstance(about, dict) and isinstance(about.get("weights"), dict):
        return "-".join(sorted(map(str, about["weights"].values())))
    return str(config.get("weights", run.summary["sha256"].get("model/model.safetensors", "")))


def _facts(run: Run) -> dict[str, str]:
    """Where all figures of a run come from; shown under each of them when it is asked for."""
    summary = run.summary
    seed = run.config.get("seed")
    return {
        "Run": run.name,
        "Command": CALLED.get(run.command, f"ropescope {run.command}"),
        "Seed": "in the settings below" if seed is None else str(seed),
        "Written": str(summary.get("written", "not ended yet")),
        "Versions": ", ".join(f"{part} {number}" for part, number in summary.get("versions", {}).items()),
        "Settings": json.dumps(run.config, ensure_ascii=False),
        "SHA-256": "\n".join(
            f"{digest}  {file}" for file, digest in summary["sha256"].items() if not file.endswith((".html", ".png"))
        ),
    }


def scoreboard_html(rows: Sequence[Claim], links: Mapping[tuple[str, str], Sequence[str]]) -> str:
    """Every statement of the papers with its value, ours, and whether it was reproduced, linked to the chart that shows it.

    links  ids on the page, by the name of a run and of its chart
    """

    def target(row: Claim) -> str:
        found = links.get((row.run, row.chart)) or links.get((row.run, "")) or []
        return found[0] if len(found) == 1 else ""  # where runs have the same name, nobody knows which it is

    counted = {verdict: sum(row.verdict == verdict for row in rows) for verdict in VERDICTS}
    return render(
        "scoreboard.html",
        rows=[(row, target(row)) for row in rows],
        counted=", ".join(f"{VERDICTS[verdict]} {number} {verdict}" for verdict, number in counted.items() if number),
        filters={key: list(dict.fromkeys(str(getattr(row, key)) for row in rows)) for key in ("verdict", "paper")},
        signs=VERDICTS,
    )


def _scoreboard(runs: Sequence[Run]) -> list[Claim]:
    """Nothing for runs of one command only, which say little of both papers."""
    return judge(runs) if len({run.command for run in runs}) > 1 else []
