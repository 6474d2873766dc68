"""The interface that every study implements, and that the command line, the page and notebooks read.

    settings (frozen dataclass)  →  run(settings, work)  →  Outcome  →  run folder  →  Result

`run` computes. Everything else reads a finished `Run` (the folder), so a recorded run, a run from the shell and a run from
Python are shown by the same functions.

A study is declared in the `__init__.py` of its folder, with its settings and nothing heavy: `later` imports the rest on use, so
that `ropescope --help` need not wait for torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import xarray as xr

    from ..charts import Figure
    from ..runs import Engine, Run

T = TypeVar("T")
Unit = TypeVar("Unit")
Settings = Any
"""An instance of a study's own frozen dataclass."""


def option(default: Any, help: str, *, argument: bool = False, repeat: bool = False, name: str | None = None) -> Any:
    """A field of a settings dataclass, with what the command line needs to know of it.

    default   the value unless given; `...` if it must be given
    help      one sentence for `--help`
    argument  positional on the command line
    repeat    a tuple is given by repeating the option, instead of with commas in one value
    name      of the option on the command line, where it is not the field's own

    Lists on the command line are written with commas between the items.
    """
    about = {"help": help, "argument": argument, "repeat": repeat, "name": name}
    return field(metadata=about) if default is ... else field(default=default, metadata=about)


def later(package: str) -> Callable[[str], Callable[..., Any]]:
    """A function that refers to functions of a package as "module:name" and imports their module at the first call."""

    def refer(path: str) -> Callable[..., Any]:
        module, _, name = path.partition(":")

        def call(*given: Any, **named: Any) -> Any:
            return getattr(import_module(f"{package}.{module}"), name)(*given, **named)

        call.__name__ = f"{package}.{path}"
        return call

    return refer


@dataclass(frozen=True)
class Table:
    """Rows of text under column titles."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""


@dataclass(frozen=True)
class HeadChoice:
    """Heads that the reader of a page can choose: layers, head numbers, the first choice, and a line on each by name."""

    layers: list[int]
    heads: list[int]
    first: str
    described: dict[str, str]


@dataclass(frozen=True)
class Outcome:
    """What a study computed.

    config   all that determines the results; goes into the summary
    results  the summary's results, as JSON can hold them
    data     further files of the run folder: name → content
    written  names of files that the study has written itself
    sources  run folders that were read, so that claims can be judged together with them
    """

    config: Mapping[str, Any]
    results: Mapping[str, Any]
    data: Mapping[str, str | bytes] = field(default_factory=dict)
    written: Sequence[str] = ()
    sources: Sequence[Path] = ()


@dataclass(frozen=True)
class Work:
    """What the runner hands to a study: the locked run folder, where units of work run, and how to show progress.

    folder    the run folder; only this process writes to it
    engine    runs units of work here or on a cluster
    progress  wraps an iterable, given its length and a label, to show a progress bar
    tell      shows one line to the user while the study runs
    """

    folder: Path
    engine: Engine
    progress: Callable[[Iterable[Any], int, str], Iterable[Any]]
    tell: Callable[[str], None]

    def resumed(self, config: Mapping[str, Any], holds: str, other: str) -> None:
        """Resume in the folder if it holds results of the same `config`; raise a ValueError if it holds anything else."""
        from ..runs import claim  # noqa: PLC0415

        claim(self.folder, config, holds, other)

    def units(
        self, names: Sequence[str], compute: Callable[[Any, Unit], Any], shared: Any, units: Sequence[Unit], label: str
    ) -> Iterator[Any]:
        """Results of `compute(shared, unit)` for every unit, in order. Finished units are read from the folder instead.

        names  of the files in the run folder, one for each unit; without suffix
        """
        from ..runs import cached_units  # noqa: PLC0415

        paths = [self.folder / f"{name}.safetensors" for name in names]
        yield from self.progress(cached_units(paths, compute, shared, units, self.engine), len(units), label)


def _no_figures(_: Run) -> dict[str, Figure]:
    return {}


def _no_tables(_: Run) -> list[Table | str]:
    return []


def _alone(run: Run, _: Sequence[Run]) -> list[Run]:
    return [run]


@dataclass(frozen=True)
class Study:
    """A type of run: how it is computed, described, drawn and tabulated.

    name      command, and the `command` entry of the summary
    heading   of its section on the page
    headline  one line on what came out
    settings  frozen dataclass made of `option` fields; None if no command makes such runs
    run       computes an outcome from settings
    help      what the command does, in one sentence; more after an empty line
    examples  command lines for `--help`
    group     of commands in `--help`
    presets   named changes to the settings; the first is the default
    engine    whether units of work can run on a cluster
    out       the default run folder, from the settings
    figures   charts by name
    tables    what the command prints: tables and lines of text
    dataset   the run's numbers as a labelled dataset
    heads     heads that can be chosen on the page
    evidence  the runs by which the study's claims are judged for this run, out of all that are given
    failed    one sentence if the run counts as a failure, so that the command ends with code 1
    page      run folders that a page of this run shows; with it the page is written to `index.html` in the run folder
    preview   flag and help of an option that shows something and runs nothing, and the function of settings and folder
    """

    name: str
    heading: str
    headline: Callable[[Run], str]
    settings: type | None = None
    run: Callable[[Settings, Work], Outcome] | None = None
    help: str = ""
    examples: Sequence[str] = ()
    group: str = ""
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    engine: bool = False
    out: Callable[[Settings], Path] | None = None
    figures: Callable[[Run], dict[str, Figure]] = _no_figures
    tables: Callable[[Run], list[Table | str]] = _no_tables
    dataset: Callable[[Run], xr.Dataset] | None = None
    heads: Callable[[Run], HeadChoice | None] = lambda _: None
    evidence: Callable[[Run, Sequence[Run]], list[Run]] = _alone
    failed: Callable[[Run], str] = lambda _: ""
    page: Callable[[Run], list[Path]] | None = None
    preview: tuple[str, str, Callable[[Settings, Path], list[Table | str]]] | None = None
