"""Everything the shell does, in Python and in the same words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import console
from .report import page as pages
from .runs import Engine, find_runs, read_run
from .studies import study_named, study_of
from .studies.claims import Claim, judge
from .studies.result import Result, Tables
from .studies.runner import make_settings, run_study, worker_lost
from .studies.study import Settings, Study


def run(
    study: str,
    *,
    preset: str | None = None,
    out: str | Path | None = None,
    engine: str = "here",
    address: str | None = None,
    progress: bool = True,
    **settings: Any,
) -> Result:
    """The result of a study, which the shell runs by the same name: `ropescope STUDY`.

    study     its name: see `ropescope.studies.studies()`
    preset    a named set of settings, where the study has some
    out       the run folder; without it files go to a temporary folder, which lasts as long as the result
    engine    here or ray, where the study can run on a cluster
    address   of the Ray cluster
    progress  show progress bars on a terminal
    settings  the study's own; each has a default unless its help says otherwise

    Raises ValueError in one sentence if a setting is not allowed or the folder holds something else.

    >>> import ropescope as rs
    >>> result = rs.run("theory", inputs=100, longest=200, draws=20)
    >>> result.summary["command"]
    'theory'
    """
    chosen = study_named(study)
    where = Engine(engine, address, worker_lost)
    return run_with_page(chosen, make_settings(chosen, settings, preset), None if out is None else Path(out), where, progress)


def run_with_page(study: Study, settings: Settings, out: Path | None, engine: Engine, progress: bool = True) -> Result:
    """Run a study; where it has a page, write that too."""
    result = run_study(study, settings, out, engine, console.progress if progress else console.silent)
    if study.page is not None and out is not None and (folders := study.page(result.run)):
        pages.write_page(folders, out / "index.html")
    return result


def preview(study: str, *, preset: str | None = None, out: str | Path | None = None, **settings: Any) -> Tables:
    """What a study would do with these settings, without doing it, where the study can tell."""
    chosen = study_named(study)
    if chosen.preview is None:
        raise ValueError(f"{study} has no preview")
    asked = make_settings(chosen, settings, preset)
    return Tables(chosen.preview[2](asked, Path(out) if out is not None else default_folder(chosen, asked)))


def default_folder(study: Study, settings: Settings) -> Path:
    """The run folder of a command without `--out`."""
    return study.out(settings) if study.out is not None else Path("out") / study.name


def open_run(folder: str | Path) -> Result:
    """The result in a run folder that a command, `ropescope.run` or a watcher has written."""
    found = read_run(Path(folder))
    return Result(study_of(found), found)


def page(folders: Sequence[str | Path], out: str | Path = "out/report.html", title: str = "ropescope report") -> Path:
    """The path of one HTML page with all runs in the folders or below them; it needs no network."""
    return pages.write_page([Path(folder) for folder in folders], Path(out), title)


def scoreboard(folders: Sequence[str | Path]) -> list[Claim]:
    """Every claim of both papers with the verdict by the runs in these folders, or "not run"."""
    return judge(find_runs([Path(folder) for folder in folders]))
