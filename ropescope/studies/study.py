"""The interface that every study implements, and that the command line, the page and notebooks read.

    settings (frozen dataclass)  →  run(settings, work)  →  Outcome  →  run folder  →  Result

`run` computes. Everything else reads a finished `Run` (a run folder). So the same functions show recorded runs, runs from the
shell and runs from Python.

The `__init__.py` of a study's folder declares the study and its settings and imports nothing heavy. `later` imports the rest on
first use, so that `ropescope --help` does not wait for torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..console import name_of

if TYPE_CHECKING:
    import xarray as xr

    from ..charts import Figure
    from ..runs import Engine, Run
    from .story import Question, View

T = TypeVar("T")
Unit = TypeVar("Unit")
Settings = Any
"""An instance of the study's settings dataclass."""


def option(default: Any, help: str, *, argument: bool = False, repeat: bool = False, name: str | None = None) -> Any:
    """A field of a settings dataclass, with the metadata that the command line needs.

    default   default value; `...` if the setting is required
    help      one sentence for `--help`
    argument  whether it is a positional argument on the command line
    repeat    whether a tuple is given by repeating the option; otherwise as one value with commas between the items
    name      name of the option on the command line, if it differs from the field's name
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


def load(study: Study) -> None:
    """Import the modules of all functions that a study refers to with `later`."""
    for value in vars(study).values():
        module, _, function = getattr(value, "__name__", "").partition(":")
        if function:
            import_module(module)


@dataclass(frozen=True)
class Table:
    """Rows of text under column titles."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""


@dataclass(frozen=True)
class HeadChoice:
    """Heads that the reader of a page can select.

    layers     layer numbers
    heads      head numbers within a layer
    first      name of the head that is selected at first
    described  one line about each head, by name
    kinds      what each head mainly is over all inputs, by name: positional, symbolic or mixed; empty if that is not known
    """

    layers: list[int]
    heads: list[int]
    first: str
    described: dict[str, str]
    kinds: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What a study computed.

    config   everything that determines the results; written to the summary
    results  results for the summary; must be valid JSON
    data     further files for the run folder: name → content
    written  names of files that the study has already written
    sources  run folders that the study has read; claims are judged from them too
    """

    config: Mapping[str, Any]
    results: Mapping[str, Any]
    data: Mapping[str, str | bytes] = field(default_factory=dict)
    written: Sequence[str] = ()
    sources: Sequence[Path] = ()


@dataclass(frozen=True)
class Work:
    """What the runner passes to a study.

    folder    run folder, locked: no other process writes to it
    engine    where units of work run: here or on a cluster
    progress  function of an iterable, its length and a label that shows a progress bar
    tell      function that shows one line to the user
    quiet     whether no progress is to be shown
    patience  seconds to wait for another process that holds a folder
    """

    folder: Path
    engine: Engine
    progress: Callable[[Iterable[Any], int, str], Iterable[Any]]
    tell: Callable[[str], None]
    quiet: bool = False
    patience: float = 0.0

    def resumed(self, config: Mapping[str, Any], made_by: str | None, holds: str, other: str) -> None:
        """Check that the folder is empty or holds results of the same `config` and code; otherwise raise a ValueError.

        Arguments are those of `runs.claim`: `made_by` is the `__name__` of the module that computes what is stored.
        """
        from ..runs import claim  # noqa: PLC0415

        claim(self.folder, config, made_by, holds, other)

    def units(
        self, names: Sequence[str], compute: Callable[[Any, Unit], Any], shared: Any, units: Sequence[Unit], label: str
    ) -> Iterator[Any]:
        """Results of `compute(shared, unit)` for every unit, in order. Finished units are read from the folder.

        names  file name of each unit in the run folder, without suffix
        """
        from ..runs import cached_units  # noqa: PLC0415

        paths = [self.folder / f"{name}.safetensors" for name in names]
        yield from self.progress(cached_units(paths, compute, shared, units, self.engine), len(units), label)


def model_folder(name: str) -> Callable[[Any], Path]:
    """The default run folder of a study of one model: named after the study and the model."""

    def folder(settings: Any) -> Path:
        path = Path(settings.model)
        return Path("out") / f"{name}-{path.stem if path.is_file() else name_of(path)}"

    return folder


def check_seed(seed: int | None) -> None:
    """Raise ValueError unless torch and numpy both take the seed, with room for the seeds that follow it."""
    if seed is not None and not 0 <= seed < 2**63:
        raise ValueError(f"seed must be {'at least 0' if seed < 0 else 'below 2**63'}, not {seed}")


class Declined(ValueError):  # noqa: N818
    """A study did nothing, as its settings did not allow it to: the command ends with code 1."""


def _measured(describe: Callable[[Run], T]) -> Callable[[Run], T]:
    """The function, which reads a run by `measured.shown`; imported at the first call."""

    @wraps(describe)
    def call(run: Run) -> T:
        from .measured import shown  # noqa: PLC0415

        found: T = shown(describe)(run)
        return found

    return call


def _no_figures(_: Run) -> dict[str, Figure]:
    return {}


def _no_tables(_: Run) -> list[Table | str]:
    return []


def _alone(run: Run, _: Sequence[Run]) -> list[Run]:
    return [run]


@dataclass(frozen=True)
class Study:
    """A run type: how such runs are computed, described, plotted and tabulated.

    name      name of the shell command, and the `command` entry of the summary
    heading   heading of its section on the page
    headline  one line about the result
    settings  frozen dataclass of `option` fields; None if no command makes such runs
    run       function of settings and `Work` that returns an `Outcome`
    help      what the command does, in one sentence; details after an empty line
    examples  command lines for `--help`
    group     heading in `--help` under which the command is listed
    presets   named changes to the settings; the first is the default
    engine    whether units of work can run on a cluster
    out       function of the settings that returns the default run folder
    figures   charts by name
    tables    tables and lines of text that the command prints
    dataset   the run's numbers as a labelled dataset
    heads     heads that can be selected on the page
    evidence  runs from which claims about this run are judged, out of all runs given
    failed    one sentence if the run counts as a failure (the command then ends with exit code 1), else empty
    page      folders of the runs that the run's own page shows; the page is written to `index.html` in the run folder
    own       whether `run` itself locks its folders and writes their summaries; they are the sources of its outcome
    preview   flag and help of an option that runs nothing, and the function of settings and folder that it calls
    question  section of the page to which its runs belong
    title     what the page calls a run, in words; the name of its folder is shown beside it
    lead      what stands first in the section of a run: a `View`, or None
    tail      what stands after its charts
    overview  a view of all runs of the study together, or None; it stands in the section of its question
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
    own: bool = False
    preview: tuple[str, str, Callable[[Settings, Path], list[Table | str]]] | None = None
    question: Question = "How is it checked, and what does it cost?"
    title: Callable[[Run], str] = lambda run: run.name
    lead: Callable[[Run], View | None] = lambda _: None
    tail: Callable[[Run], View | None] = lambda _: None
    overview: Callable[[Sequence[Run]], View | None] = lambda _: None

    def __post_init__(self) -> None:
        """Let all that describes a run read it so that nothing unmeasured is shown."""
        for name in ("headline", "figures", "tables", "heads", "title", "lead", "tail"):
            object.__setattr__(self, name, _measured(getattr(self, name)))
