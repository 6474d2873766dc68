"""One page for any number of runs: a single HTML file that needs no network.

Charts are drawn in the browser when they come into view. Their rows are kept once each, column by column and compressed, so
that the page grows with the number of heads and with nothing else.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import vl_convert
from altair.utils.schemapi import debug_mode

from ..charts import Figure
from ..runs import Run, find_runs, new_folder, write_whole
from ..studies import folder_of, studies, study_of
from ..studies.claims import Claim, judge
from . import playground
from .modules import joined

ASSETS = Path(__file__).parent / "assets"
ENGINE = "window.vegaEmbed = vegaEmbed;"
"""What the page uses of the engine that draws charts."""
VERDICTS = {
    "reproduced": "\N{CHECK MARK}",
    "partly": "\N{CIRCLE WITH LEFT HALF BLACK}",
    "not": "\N{BALLOT X}",
    "not run": "\N{EN DASH}",
}
"""What a row of the scoreboard may say, with a sign that needs no colour."""


CALLED = {"watch": "ropescope.HeadWatcher", "sweep": "ropescope dynamics"}
"""What wrote runs that no command of the same name wrote."""


def write_page(folders: Sequence[Path], out: Path, title: str = "ropescope report") -> Path:
    """Write the page of all runs in the folders; a ValueError in one sentence if one of them cannot be shown."""
    if out.is_dir():
        raise ValueError(f"out: {out} is a folder: give the name of a file, as in {out / 'page.html'}")
    new_folder(out.parent)
    runs = sorted(find_runs(folders), key=_place)
    names = [anchor(run.name) for run in runs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two of the runs are called {twice[0]}: rename one, as links on the page are made of their names")
    opened = names[0] if len(runs) > 2 else ""
    sections = [_section(run, runs, is_open=not opened or anchor(run.name) == opened) for run in runs]
    scores = _scoreboard(runs)
    played = any("playground.json" in run.summary["sha256"] for run in runs)
    page = Template(_asset("page.html")).substitute(
        title=escape(title),
        style=_asset("page.css") + (playground.style() if played else ""),
        contents=_contents(runs, bool(scores)) if len(runs) > 1 or scores else "",
        scoreboard=scoreboard_html(scores) if scores else "",
        sections="\n".join(sections),
        engine=_packed(vl_convert.javascript_bundle(ENGINE)),
        script=joined(ASSETS / "page") + (playground.script() if played else ""),
    )
    write_whole(out, page)
    return out


def anchor(name: str) -> str:
    """A name as part of a link."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-")[:200] or "run"


def _place(run: Run) -> int:
    """Where runs of a study stand on the page; unknown ones last."""
    order = list(studies())
    return order.index(run.command) if run.command in order else len(order)


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _packed(text: str) -> str:
    """Compressed text for a script element: nothing in it can end the element."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _contents(runs: Sequence[Run], scoreboard: bool) -> str:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(study_of(run).heading, []).append(run)
    parts = ['<li><a href="#scoreboard">Scoreboard</a></li>'] if scoreboard else []
    for heading, members in groups.items():
        links = "".join(f'<li><a href="#{anchor(run.name)}"><bdi>{escape(run.name)}</bdi></a></li>' for run in members)
        parts.append(f"<li><span>{escape(heading)}</span><ul>{links}</ul></li>")
    return f'<nav aria-label="Contents"><details open><summary>Contents</summary><ul>{"".join(parts)}</ul></details></nav>'


def _section(run: Run, runs: Sequence[Run], is_open: bool) -> str:
    """A run: one line that says what came out, then its heads, figures and claims, all of which can be folded away."""
    try:
        return _shown(run, runs, is_open)
    except Exception as error:  # what is in a file can go wrong anywhere
        if isinstance(error, OSError | MemoryError) or (isinstance(error, ValueError) and str(run.folder) in str(error)):
            raise
        raise ValueError(
            f"{run.folder} cannot be shown, as its summary lacks what a run of {run.command} holds ({error!r}): run it again"
        ) from error


def _shown(run: Run, runs: Sequence[Run], is_open: bool) -> str:
    name, study = anchor(run.name), study_of(run)
    headline, choice = study.headline(run), study.heads(run)
    claims = [row for row in judge(study.evidence(run, runs), folder_of(study)) if row.verdict != "not run"]
    # Charts are checked when their figures are written and by tests; here it takes half of the time.
    with debug_mode(False):
        figures = study.figures(run)
        payload = _payload(figures)
    payload |= {"choice": asdict(choice) if choice else None}
    film = _film(name, len(_steps(payload))) if "film" in figures else ""
    return f"""
<section class="run" id="{name}" data-run="{name}" data-model="{escape(model_of(run))}" aria-labelledby="{name}--title">
<details{" open" if is_open else ""}>
<summary><h2 id="{name}--title"><bdi>{escape(run.name)}</bdi></h2><span class="kind">{escape(study.heading)}</span>
<p class="headline" dir="auto">{escape(headline)}</p></summary>
{_picker(name) if choice else ""}
{film}
<div class="figures">
{"".join(_figure(name, key, figure) for key, figure in figures.items())}
</div>
{_claims(claims)}
{_playground(run)}
{_about(run)}
</details>
<script type="text/plain" class="payload">{_packed(json.dumps(payload, ensure_ascii=False, allow_nan=False))}</script>
</section>"""


def _payload(figures: Mapping[str, Figure]) -> dict[str, Any]:
    """Charts without their rows, and all rows once, by column."""
    charts: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    for name, figure in figures.items():
        spec = figure.chart.to_dict(validate=False)
        tables |= {key: _columns(rows) for key, rows in spec.pop("datasets", {}).items()}
        charts[name] = spec
    return {"charts": charts, "tables": tables}


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {"length": len(rows), "columns": {name: [row.get(name) for row in rows] for name in names}}


def _steps(payload: Mapping[str, Any]) -> list[int]:
    """The watched steps of a training run, as its film has them."""
    return next(found["columns"]["step"][0] for found in payload["tables"].values() if "x_next" in found["columns"])


def _figure(run: str, name: str, figure: Figure) -> str:
    title = figure.title or _title(figure.chart)
    shown = escape(title).replace("One head", "<span data-head>One head</span>")
    label = f"{run}-{name}"
    gets = "".join(
        f'<button type="button" data-get="{kind}" aria-label="{kind.upper()} of: {escape(title)}">{kind.upper()}</button>'
        for kind in ("svg", "png", "csv")
    )
    return f"""
<figure class="{figure.width}" id="{label}" data-chart="{name}" tabindex="-1">
<figcaption><h3 dir="auto"><a href="#{label}">{shown}</a></h3><p class="reading">{escape(figure.reading)}</p></figcaption>
<div class="plot" role="img" tabindex="0" aria-label="{escape(title)}. {escape(figure.reading)}"></div>
<div class="tools"><span>Download</span>{gets}<details class="source"><summary>Source</summary></details></div>
</figure>"""


def _title(chart: Any) -> str:
    text = chart.title if isinstance(chart.title, str) else chart.title.text
    return " ".join(text) if isinstance(text, list) else str(text)


def _picker(run: str) -> str:
    return f"""
<div class="picker" role="group" aria-label="Choose a head">
<label for="{run}--layer">Layer</label><select id="{run}--layer" data-pick="layer"></select>
<label for="{run}--head">Head</label><select id="{run}--head" data-pick="head"></select>
<button type="button" data-step="-1" aria-label="Head before">\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}</button>
<button type="button" data-step="1" aria-label="Next head">\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}</button>
<output aria-live="polite"></output>
</div>"""


def _film(run: str, steps: int) -> str:
    return f"""
<div class="film" role="group" aria-label="Film of training">
<button type="button" class="play" aria-label="Play the film" aria-pressed="false">\N{BLACK RIGHT-POINTING TRIANGLE}</button>
<label for="{run}--at">Step</label>
<input type="range" id="{run}--at" min="0" max="{steps - 1}" step="1" value="{steps - 1}">
<output></output>
</div>"""


def _claims(claims: Sequence[Claim]) -> str:
    """Claims beside what this run says of them, by the same rules as on the scoreboard."""
    if not claims:
        return ""
    head = "".join(f"<th scope='col'>{title}</th>" for title in ("Claim", "Statement", "Its value", "Ours", "Verdict"))
    lines = []
    for row in claims:
        cells = "".join(f"<td dir='auto'>{escape(text)}</td>" for text in (row.statement, row.paper_value, row.ours))
        shown = f"<td class='verdict {anchor(row.verdict)}'>{VERDICTS[row.verdict]} {row.verdict}</td>"
        lines.append(f"<tr><th scope='row'>{escape(row.claim)}</th>{cells}{shown}</tr>")
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f"<details class='claims'><summary>Claims, judged by this run</summary><div class='scroll'>{table}</div></details>"


def model_of(run: Run) -> str:
    """What tells models apart, so that a head chosen in one run is chosen in others of the same model: hashes of weights."""
    config = run.config
    about = config.get("about", config.get("model"))
    if isinstance(about, dict) and isinstance(about.get("weights"), dict):
        return "-".join(sorted(map(str, about["weights"].values())))
    return str(config.get("weights", run.summary["sha256"].get("model/model.safetensors", "")))


def _about(run: Run) -> str:
    """Where all figures of a run come from; shown under each of them when it is asked for."""
    summary = run.summary
    seed = run.config.get("seed")
    facts = {
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
    lines = "".join(f"<dt>{key}</dt><dd dir='auto'>{escape(value)}</dd>" for key, value in facts.items() if value)
    return f"<template class='about'><dl>{lines}</dl></template>"


def scoreboard_html(rows: Sequence[Claim]) -> str:
    """Every statement of the papers with its value, ours, and whether it was reproduced, linked to the chart that shows it."""

    def options(key: str) -> str:
        return "".join(f"<option>{escape(value)}</option>" for value in dict.fromkeys(str(getattr(row, key)) for row in rows))

    lines = []
    for row in rows:
        verdict = row.verdict
        shown = f"{VERDICTS[verdict]} {verdict}"
        if row.run:
            target = anchor(row.run) + (f"-{anchor(row.chart)}" if row.chart else "")
            shown = f"<a href='#{target}'>{shown}</a>"
        note = f"<small dir='auto'>{escape(row.note)}</small>" if row.note else ""
        claim, paper, where, statement, theirs, ours = map(
            escape, (row.claim, row.paper, row.where, row.statement, row.paper_value, row.ours)
        )
        lines.append(
            f"<tr data-verdict='{verdict}' data-paper='{paper}'>"
            f"<th scope='row'>{claim}<small>{paper}, {where}</small></th><td dir='auto'>{statement}{note}</td>"
            f"<td dir='auto'>{theirs}</td><td dir='auto'>{ours}</td><td class='verdict {anchor(verdict)}'>{shown}</td></tr>"
        )
    counted = {verdict: sum(row.verdict == verdict for row in rows) for verdict in VERDICTS}
    said = ", ".join(f"{VERDICTS[verdict]} {number} {verdict}" for verdict, number in counted.items() if number)
    filters = "".join(
        f'<label for="scoreboard--{key}">{key.capitalize()}</label>'
        f'<select id="scoreboard--{key}" data-filter="{key}"><option value="">all</option>{options(key)}</select>'
        for key in ("verdict", "paper")
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Claim", "Statement", "Paper", "Ours", "Verdict"))
    return f"""
<section id="scoreboard" aria-labelledby="scoreboard--title">
<h2 id="scoreboard--title">Scoreboard</h2>
<p class="headline">{len(rows)} statements: {said}</p>
<div class="filter" role="group" aria-label="Show only">{filters}<output aria-live="polite"></output></div>
<div class="scroll" tabindex="0" role="region" aria-label="Scoreboard">
<table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>
</section>"""


def _scoreboard(runs: Sequence[Run]) -> list[Claim]:
    """Nothing for runs of one command only, which say little of both papers."""
    return judge(runs) if len({run.command for run in runs}) > 1 else []


def _playground(run: Run) -> str:
    """What can be tried out with the prompts and heads that a run kept."""
    data = run.read("playground.json")
    if not data:
        return ""
    name = anchor(run.name)
    inner = playground.fragment(data, name)
    return f'<div class="try" id="{name}-playground"><h3>Playground: move tokens, and watch attention</h3>{inner}</div>'
