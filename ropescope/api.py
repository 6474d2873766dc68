"""Everything the shell does, in Python: the same names and the same settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import console
from .html.inline import InlinePage
from .report import page as pages
from .report import playground as playgrounds
from .runs import Engine, find_runs, read_run
from .studies import study_named, study_of
from .studies.claims import Claim, judge
from .studies.result import Result, Tables
from .studies.runner import make_settings, run_study, worker_lost
from .studies.study import Settings, Study

if TYPE_CHECKING:
    import xarray as xr


def run(
    study: str,
    *,
    preset: str | None = None,
    out: str | Path | None = None,
    engine: str = "here",
    address: str | None = None,
    progress: bool = True,
    open: bool = False,
    **settings: Any,
) -> Result:
    """The result of a study. The shell command of the same name does the same: `ropescope STUDY`.

    study     name of the study; `ropescope --help` lists them
    preset    a named set of settings, for studies that have presets
    out       run folder; without it, files go to a temporary folder that is removed together with the result
    engine    "here", or "ray" for studies that can run on a Ray cluster
    address   address of the Ray cluster; without it a cluster is started on this machine
    progress  show progress bars on a terminal
    open      open the study's own page, `index.html` in `out`, in the browser; for studies that have one, such as "profile"
    settings  settings of the study, named as the options of the command; `ropescope STUDY --help` lists them

    Raises ValueError if there is no such study, a setting is not allowed, the folder holds a different run, or there is no page
    to open.

    >>> import ropescope as rs
    >>> result = rs.run("theory", inputs=100, longest=200, draws=20)
    >>> result.summary["command"], list(result.figures())
    ('theory', ['gaps', 'planes'])
    >>> rs.run("theory", colour="red")
    Traceback (most recent call last):
    ValueError: theory has no setting 'colour': it has ...
    """
    chosen = study_named(study)
    where = Engine(engine, address, worker_lost)
    if open and (out is None or chosen.page is None):
        raise ValueError("open needs out, the folder of the page" if chosen.page else f"open: {study} has no page of its own")
    result = run_with_page(chosen, make_settings(chosen, settings, preset), None if out is None else Path(out), where, progress)
    if open:
        open_page(result.folder / "index.html")
    return result


def run_with_page(study: Study, settings: Settings, out: Path | None, engine: Engine, progress: bool = True) -> Result:
    """The result of a study with checked settings. If the study has a page of its own, it is written as well."""
    result = run_study(study, settings, out, engine, console.progress if progress else console.silent)
    if study.page is not None and out is not None and (folders := study.page(result.run)):
        pages.write_page(folders, out / "index.html")
    return result


def preview(study: str, *, preset: str | None = None, out: str | Path | None = None, **settings: Any) -> Tables:
    """A table of what a study would do with these settings. Nothing is run.

    Arguments are those of `run`. Only some studies have a preview, such as `reproduce`, which lists its steps.

    Raises ValueError if the study has no preview or a setting is not allowed.

    >>> import ropescope as rs
    >>> steps = rs.preview("reproduce", preset="quick", only="theory", out="out/quick")
    >>> print(steps)
    step ...
    theory ...
    """
    chosen = study_named(study)
    if chosen.preview is None:
        raise ValueError(f"{study} has no preview")
    asked = make_settings(chosen, settings, preset)
    return Tables(chosen.preview[2](asked, Path(out) if out is not None else default_folder(chosen, asked)))


def default_folder(study: Study, settings: Settings) -> Path:
    """The run folder of a command that is given none."""
    return study.out(settings) if study.out is not None else Path("out") / study.name


def open_run(folder: str | Path) -> Result:
    """The result in a run folder that a command, `run` or a `HeadWatcher` has written.

    folder  path of the run folder

    Raises ValueError if the folder holds no finished run, or if a file has changed since the run was written.

    >>> import ropescope as rs
    >>> result = rs.open_run("results/theory")
    >>> result.summary["command"], result.plot("gaps").to_dict()["title"]
    ('theory', ...)
    """
    found = read_run(Path(folder))
    return Result(study_of(found), found)


def open_page(path: Path) -> bool:
    """Open a page in the browser of the desktop; returns whether there was one."""
    import webbrowser  # noqa: PLC0415

    return webbrowser.open(path.resolve().as_uri())


def playground(run: Result | str | Path) -> InlinePage:
    """The playground of a run, which notebooks display: move tokens or sentences and watch the attention of every head.

    run  a result, or the path of a run folder; profiles and runs of `mechanisms` hold what it needs

    It needs no network. `.save("playground.html")` writes it as a page.

    Raises ValueError if the run folder holds no playground.

    >>> import ropescope as rs
    >>> rs.playground("results/profile-stories15M").save("out/playground.html").stat().st_size > 100_000
    True
    """
    found = run if isinstance(run, Result) else open_run(run)
    data = found.run.read("playground.json")
    if not data:
        raise ValueError(f"{found.folder} holds no playground: profile a model on prompts of at most 192 tokens")
    name = found.study.title(found.run)
    return InlinePage(playgrounds.page({name: data}, f"Playground: {name}"), f"Playground: {name}", 900)


def page(
    folders: Sequence[str | Path],
    out: str | Path = "out/report.html",
    title: str | None = None,
    *,
    open: bool = False,
) -> Path:
    """The path of an HTML page that shows all runs in the given folders and below them. It needs no network.

    folders  run folders, or folders that contain run folders
    out      file to write; an existing file is replaced
    title    title of the page; without one it is called after its run, or asks what all runs are about
    open     open it in the browser

    Raises ValueError if a folder does not exist, holds no run, or holds a damaged one.

    >>> import ropescope as rs
    >>> rs.page(["results/theory", "results/bench"], "out/theory.html").stat().st_size > 100_000
    True
    """
    path = pages.write_page([Path(folder) for folder in folders], Path(out), title)
    if open:
        open_page(path)
    return path


def save_run(scores: xr.Dataset, out: str | Path, *, open: bool = False) -> Path:
    """The path of a page of these scores. The run folder `out` gets data, figures and summary, as by `ropescope profile`.

    scores  from `profile`, of any model that was opened in Python
    out     run folder, for `open_run`, `page` and `ropescope report`
    open    open the page in the browser

    Raises ValueError if the folder holds a different run.

    >>> import ropescope as rs
    >>> scores = rs.profile(rs.bundled("number"), rs.NumberTask().sample(4, seed=0).tokens, planes=False)
    >>> rs.save_run(scores, "out/number-scores").name
    'index.html'
    """
    folder = Path(out)
    from .studies.profile.answers import write_scores  # noqa: PLC0415  # needs torch, which pages do not

    write_scores(scores, folder)
    path = pages.write_page([folder], folder / "index.html")
    if open:
        open_page(path)
    return path


def scoreboard(folders: Sequence[str | Path]) -> list[Claim]:
    """One row for each claim of both papers: the paper's value, ours, and the verdict ("not run" without evidence).

    folders  run folders, or folders that contain run folders; every verdict is computed from their numbers

    Raises ValueError if a folder does not exist or holds a damaged run.

    >>> import ropescope as rs
    >>> rows = {row.claim: row for row in rs.scoreboard(["results/theory"])}
    >>> rows["B-F-t-index"].verdict, rows["A-4-trend"].verdict
    ('reproduced', 'not run')
    """
    return judge(find_runs([Path(folder) for folder in folders]))
