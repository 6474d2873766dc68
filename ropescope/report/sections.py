"""The section of one run: what came out in one line, what its study says of it, its charts, and the claims it judges."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from altair.utils.schemapi import debug_mode
from markupsafe import Markup

from ..charts import Figure, title_of
from ..html import Ids, packed, render
from ..runs import Run
from ..studies import folder_of, study_of
from ..studies.claims import judge
from ..studies.story import View
from ..studies.study import Study
from . import playground
from .scoreboard import SIGNS

CALLED = {"watch": "ropescope.HeadWatcher", "sweep": "ropescope dynamics"}
"""What wrote runs that no command of the same name wrote."""
FILMED = ("film", "accuracy")
"""Charts that follow the film of a training run."""
T = TypeVar("T")
Link = Callable[..., str]
"""Function of the names of a run and of its chart that returns an id on the page; empty if it is not there."""


@dataclass(frozen=True)
class Shown:
    """A run on the page.

    id        of its section
    title     what it is called
    headline  what came out
    figures   its charts by name
    charts    ids of these charts by name
    payload   data of the charts for a script
    kinds     what its heads mainly are, by name, as far as that is known
    """

    run: Run
    study: Study
    id: str
    title: str
    headline: str
    figures: dict[str, Figure]
    charts: dict[str, str]
    payload: dict[str, Any]
    kinds: dict[str, str]


def prepared(run: Run, ids: Ids) -> Shown:
    """A run with its charts, before anything is laid out; a ValueError in one sentence if it cannot be shown."""

    def prepare() -> Shown:
        study = study_of(run)
        name = ids.new(run.name)
        # Charts are checked when their figures are written and by tests; here it takes half of the time.
        with debug_mode(False):
            figures = study.figures(run)
            payload = payload_of(figures)
        choice = study.heads(run)
        payload |= {"choice": {name: value for name, value in asdict(choice).items() if name != "kinds"} if choice else None}
        charts = {key: ids.new(f"{name}-{key}") for key in figures}
        kinds = choice.kinds if choice else {}
        return Shown(run, study, name, study.title(run), study.headline(run), figures, charts, payload, kinds)

    return _guarded(run, prepare)


def section(shown: Shown, runs: Sequence[Run], ids: Ids, link: Link, is_open: bool, alone: bool) -> Markup:
    """The section of a run as HTML.

    runs     all runs of the page, of which some may be evidence for its claims
    is_open  whether it is unfolded at first
    alone    whether the page is about this run only, so that nothing is folded
    """
    return _guarded(shown.run, lambda: _section(shown, runs, ids, link, is_open, alone))


def _section(shown: Shown, runs: Sequence[Run], ids: Ids, link: Link, is_open: bool, alone: bool) -> Markup:
    run, study, payload = shown.run, shown.study, shown.payload
    data = run.read("playground.json")
    claims = [row for row in judge(study.evidence(run, runs), folder_of(study)) if row.verdict != "not run"]
    named = {"run": shown.id, "playground": ids.new(f"{shown.id}-playground")}
    named |= {part: ids.new(f"{shown.id}--{part}") for part in ("title", "layer", "head", "at")}
    placed: set[str] = set()

    def place(key: str) -> Markup:
        if key in placed or key not in shown.figures:
            return Markup("")
        placed.add(key)
        return figure(shown, key)

    def place_playground() -> Markup:
        if data is None or "playground.json" in placed:
            return Markup("")
        placed.add("playground.json")
        return render("try.html", id=named["playground"], playground=playground.fragment(data, shown.id))

    tools = {"figure": place, "playground": place_playground}
    lead, tail = (view(found, ids, link, **tools) for found in (study.lead(run), study.tail(run)))
    played = place_playground()
    rest = [place(key) for key in shown.figures]
    return render(
        "section.html",
        ids=named,
        model=model_of(run),
        is_open=is_open,
        alone=alone,
        name=run.name,
        title=shown.title,
        headline=shown.headline,
        lead=lead,
        tail=tail,
        picks=payload["choice"] is not None,
        steps=len(_steps(payload)) if "film" in shown.figures else 0,
        figures=[one for one in rest if one],
        claims=claims,
        signs=SIGNS,
        playground=played,
        facts=_facts(run),
        payload=packed(json.dumps(payload, ensure_ascii=False, allow_nan=False)),
    )


def figure(shown: Shown, key: str, large: str = "", seen: str = "") -> Markup:
    """One chart of a run as HTML.

    large  id of the chart where it is shown once more, large and outside of the section
    seen   what to see in it, instead of its own reading
    """
    one, number = shown.figures[key], list(shown.figures).index(key)
    about = {"id": large or shown.charts[key], "title": title_of(one), "reading": seen or one.reading, "number": number}
    about |= {"width": "full" if large else one.width, "in_film": key in FILMED and not large, "of": shown.id if large else ""}
    about["level"] = 3 if large else 4
    return render("figure.html", figure=about)


def view(found: View | None, ids: Ids, link: Link, **tools: Any) -> Markup:
    """A part of the page that a study lays out itself; empty for None."""
    if found is None:
        return Markup("")
    payload = packed(json.dumps(found.payload, ensure_ascii=False, allow_nan=False))
    name = ids.new(found.template.removesuffix(".html"))
    return render(found.template, **{**found.data, **tools, "id": name, "link": link, "payload": payload})


def _guarded(run: Run, work: Callable[[], T]) -> T:
    """What `work` returns; a ValueError in one sentence if what is in the run's files does not fit."""
    try:
        return work()
    except Exception as error:  # what is in a file can go wrong anywhere
        if isinstance(error, OSError | MemoryError) or (isinstance(error, ValueError) and str(run.folder) in str(error)):
            raise
        raise ValueError(
            f"{run.folder} cannot be shown, as its summary lacks what a run of {run.command} holds ({error!r}): run it again"
        ) from error


def payload_of(figures: Mapping[str, Figure]) -> dict[str, Any]:
    """Charts in their order, without their rows, and all rows once, by column."""
    charts: list[Any] = []
    tables: dict[str, Any] = {}
    for one in figures.values():
        spec = one.chart.to_dict(validate=False)
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
