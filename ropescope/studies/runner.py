"""Runs studies: checks settings, locks the run folder, writes data, figures and summary, and returns the result."""

from __future__ import annotations

import os
import shutil
import tempfile
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from .. import console
from ..charts import write_chart
from ..runs import HERE, Engine, Run, find_runs, locked, new_summary, read_run, write_summary, write_whole
from .result import Result
from .study import Outcome, Settings, Study, Work, check_seed


def run_study(
    study: Study,
    settings: Settings,
    out: Path | None,
    engine: Engine = HERE,
    progress: Callable[..., Any] = console.progress,
    patience: float = 0.0,
) -> Result:
    """The result of a study with checked settings. The folder is locked until everything is written.

    Without `out`, files go to a temporary folder. If another process has locked the folder, wait up to `patience` seconds.
    """
    if study.run is None:
        raise ValueError(f"{study.name} is not a study that can be run")
    compute = study.run
    return run_in_folder(study, lambda work: compute(settings, work), out, engine, progress, patience)


def run_in_folder(
    study: Study,
    compute: Callable[[Work], Outcome],
    out: Path | None,
    engine: Engine = HERE,
    progress: Callable[..., Any] = console.silent,
    patience: float = 0.0,
) -> Result:
    """The result of `compute`, written to its run folder with figures and summary as a run of the study."""
    with ExitStack() as on_failure:
        temporary = None if out is not None else Path(tempfile.mkdtemp(prefix="ropescope-"))
        if temporary is not None:
            on_failure.callback(shutil.rmtree, temporary, ignore_errors=True)
        folder = out or Path(temporary or "", study.name)
        work = Work(folder, engine, progress, console.tell, progress is console.silent, patience)
        with _left_as_found(folder), nullcontext() if study.own else locked(folder, patience):
            outcome = compute(work)
            sources = list(outcome.sources)
            run = read_run(sources.pop(0)) if study.own else _write(study, folder, outcome, pictures=out is not None)
        result = Result(study, run, find_runs(sources) if sources else [])
        on_failure.pop_all()
    if temporary is not None:  # it lasts as long as the result
        weakref.finalize(result, shutil.rmtree, temporary, ignore_errors=True)
    return result


@contextmanager
def _left_as_found(folder: Path) -> Iterator[None]:
    """After a failure, remove empty folders that were created for the run."""
    # Unlike Path.exists, lexists raises no error for names that are too long.
    made = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        yield
    except BaseException:
        for path in made:
            with suppress(OSError):  # not empty
                path.rmdir()
        raise


def _write(study: Study, folder: Path, outcome: Outcome, pictures: bool) -> Run:
    """Write data, then figures, then the summary with their hashes: a folder without a summary is not finished."""
    for name, content in outcome.data.items():
        write_whole(folder / name, content)
    files = [*outcome.data, *outcome.written]
    run = Run(folder, new_summary(folder, study.name, outcome.config, outcome.results, files))
    if pictures:
        for name, figure in study.figures(run).items():
            files += write_chart(figure.chart, folder, name)
    write_summary(folder, study.name, outcome.config, outcome.results, files)
    return read_run(folder)


def worker_lost(_: Any) -> None:
    """Tell the user that a unit of work is started again."""
    console.tell("ropescope: a worker was lost: its unit of work starts again")


# Settings


def make_settings(study: Study, given: Mapping[str, Any], preset: str | None = None) -> Settings:
    """Checked settings of a study: its defaults, then the preset, then the values given."""
    if study.settings is None:
        raise ValueError(f"{study.name} is not a study that can be run")
    names = {entry.name: entry for entry in fields(study.settings)}
    if preset is not None and "preset" in names:  # presets of its own
        given, preset = {**given, "preset": preset}, None
    if preset is not None and preset not in study.presets:
        known = f"one of {', '.join(study.presets)}" if study.presets else "left out, as this study has none"
        raise ValueError(f"preset must be {known}, not {preset!r}")
    types_of = get_type_hints(study.settings)
    if unknown := sorted(set(given) - set(names)):
        raise ValueError(f"{study.name} has no setting {unknown[0]!r}: it has {', '.join(names)}")
    chosen = dict(study.presets.get(preset or next(iter(study.presets), ""), {}))
    chosen |= {name: parsed(name, types_of[name], value) for name, value in given.items()}
    check_seed(chosen.get("seed"))
    for name, entry in names.items():
        if entry.default is MISSING and entry.default_factory is MISSING and name not in chosen:
            raise ValueError(f"{study.name} needs {name}: {entry.metadata['help'][0].lower()}{entry.metadata['help'][1:]}")
    return study.settings(**chosen)


def parsed(name: str, kind: Any, value: Any) -> Any:
    """A setting converted to its type, from a Python value or from text of the command line; ValueError if it is not valid."""
    options = [each for each in _choices(kind) if each is not type(None)]
    if value is None and len(options) < len(_choices(kind)):
        return None
    if len(options) > 1:  # the first type that takes the value
        for each in options[:-1]:
            try:
                return parsed(name, each, value)
            except ValueError:
                continue
    kind = options[-1]
    if get_origin(kind) is tuple:
        items = value.split(",") if isinstance(value, str) else value
        if isinstance(items, str | bytes) or not hasattr(items, "__iter__"):
            items = [items]
        return tuple(parsed(f"each of {name}", get_args(kind)[0], item) for item in items)
    return _single(name, kind, value)


def _choices(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}


def _single(name: str, kind: Any, value: Any) -> Any:
    """One value converted to a plain type, strictly: 2.5 is not an integer, and "yes" is not a boolean."""
    wrong = ValueError(f"{name} must be {WORDS.get(kind, kind)}, not {value!r}")
    if kind is bool or isinstance(value, bool):
        if kind is not bool or not isinstance(value, bool):
            raise wrong
        return value
    if kind in (str, Path):
        if not isinstance(value, str | Path):
            raise wrong
        return kind(value)
    if kind in (int, float):
        try:
            if not isinstance(value, str | int | float):  # numpy's numbers
                value = value.item()
            if kind is int and not isinstance(value, str) and int(value) != value:
                raise wrong
            return kind(value)
        except (ValueError, TypeError, AttributeError, OverflowError):
            raise wrong from None
    return value
