"""The command line: one command per study, made from its settings. Parse, call, show."""

from __future__ import annotations

import errno
import inspect
import os
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, Field, fields
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn, Union, get_args, get_origin, get_type_hints

import typer
import typer.core

from .console import make_writable, print_table, say, tell, warned
from .studies import studies
from .studies.study import Declined, Study, Table, load

GROUPS = ("Your model", "Watching", "The papers", "Checks")
"""Groups of commands in `--help`, in order."""


class Grouped(typer.core.TyperGroup):
    """Lists commands under the headings of `GROUPS`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one list for each group."""
        known = studies()
        for group in GROUPS:
            rows = []
            for name in self.list_commands(ctx):
                command = self.get_command(ctx, name)
                its = known[name].group if name in known else OWN.get(name, GROUPS[-1])
                if command is not None and its == group:
                    rows.append((name, command.get_short_help_str(limit=90)))
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)


OWN = {"report": "Your model"}
"""Groups of the commands that are no studies."""

app = typer.Typer(
    name="ropescope",
    cls=Grouped,
    help="What each attention head of a RoPE transformer does: does it attend to places or to things, exactly.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


# Ending

TOO_MUCH = "out of memory|allocate memory|size calculation overflowed|Overflow when unpacking|too large to convert"
"""What libraries say of sizes that no memory holds."""


def main() -> None:
    """The entry point: whatever goes wrong ends in one sentence and an exit code.

    2 for bad input, 1 for what the system does not let happen, 130 for Ctrl-C, 143 for SIGTERM, 70 for a mistake of ours, whose
    place is shown if ROPESCOPE_TRACEBACK is set.
    """
    import warnings

    warnings.showwarning = warned
    for stream in (sys.stdout, sys.stderr):
        make_writable(stream)
    try:
        app()
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):  # the reader of a help text has gone
            sys.exit(0)
        _leave_if_told(leaving)
        raise
    except BaseException as error:
        _leave_if_told(error)
        if isinstance(error, ValueError) and not isinstance(error, OSError):
            _leave(str(error), 1 if isinstance(error, Declined) else 2)
        if isinstance(error, OSError):
            _leave(_refused(error), 1)
        if isinstance(error, MemoryError) or re.search(TOO_MUCH, str(error)):
            _leave("memory is not enough: ask for less at once, or free some; files already written are whole", 1)
        if os.environ.get("ROPESCOPE_TRACEBACK"):
            raise
        _leave(
            f"this should not happen ({type(error).__name__}: {error}): please report it, with what is shown when "
            "ROPESCOPE_TRACEBACK=1 is set; files already written are whole",
            70,
        )


def _leave(sentence: str, code: int) -> NoReturn:
    """End with one line, in which nothing can control a terminal: it may quote names and contents of files."""
    with suppress(OSError):  # nobody may listen
        tell(f"ropescope: {sentence}")
    sys.exit(code)


def _leave_if_told(error: BaseException | None) -> None:
    """End if a signal caused an exception. Libraries, typer among them, raise others in its place."""
    seen = error
    while seen is not None:
        if isinstance(seen, KeyboardInterrupt):
            _leave(str(seen) or "interrupted; files already written are whole: give the same command again to resume", 130)
        if isinstance(seen, SystemExit) and seen.code == 143:
            _leave("terminated; files already written are whole", 143)
        seen = seen.__cause__ or seen.__context__


ADVICE = {
    errno.ENOSPC: "make room and give the same command again",
    errno.EDQUOT: "make room and give the same command again",
    errno.EFBIG: "raise the limit on the size of files",
    errno.EMFILE: "raise the limit on open files",
    errno.ENFILE: "raise the limit on open files",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def _refused(error: OSError) -> str:
    """What the system did not let happen, to which file, and what can be done about it."""
    what = f"{error.filename} cannot be read or written" if error.filename is not None else "input or output failed"
    why = error.strerror or str(error) or type(error).__name__
    return f"{what} ({why}): {ADVICE.get(error.errno or 0, 'choose another place')}; files already written are whole"


@contextmanager
def _signals() -> Iterator[None]:
    """While work is done, Ctrl-C and SIGTERM raise an exception, so that nothing half-written is left.

    Before and after it they end the process at once: nothing is being written, and while modules are imported an exception may
    get lost in them. Hence whatever the work needs is imported before.
    """
    import signal
    import threading

    from .__main__ import ENDS

    def end(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one does not wait
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(ENDS[signal.Signals(number)][1])

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, end) for number in ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Commands made from settings


def command_of(study: Study) -> Callable[..., None]:
    """A function with one typer parameter for every setting of a study; those that are not given keep the study's defaults."""
    assert study.settings is not None
    hints, entries = get_type_hints(study.settings), {entry.name: entry for entry in fields(study.settings)}
    parameters = {name: _parameter(entry, hints[name]) for name, entry in entries.items()}
    folder = f"out/{study.name}" if study.out is None else f"out/{study.name}-..."
    parameters["out"] = _option(Path, "Run folder.", folder)
    if study.presets:
        parameters["preset"] = _option(str, f"One of {', '.join(study.presets)}.", next(iter(study.presets)))
    if study.engine:
        parameters["engine"] = _option(str, "here, or ray: side by side on a Ray cluster, with the same results.", "here")
        joined = "Ray cluster to join: host:port of its head, or auto."
        parameters["address"] = _option(str, joined, "one is started here for the run")
    if study.page is not None:
        parameters["open"] = _option(bool, "Open the page in the browser at the end.", "", "--open")
    if study.preview is not None:
        flag, text, _ = study.preview
        parameters[flag] = _option(bool, text, "", f"--{flag}")
    required = [name for name, entry in entries.items() if entry.default is MISSING]

    def command(**given: Any) -> None:
        _run(study, {name: value for name, value in given.items() if value is not None and value != []})

    command.__name__, command.__doc__ = study.name, study.help
    command.__annotations__ = {**parameters, "return": None}
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if name in required else None,
                annotation=hint,
            )
            for name, hint in parameters.items()
        ]
    )
    return command


def _option(kind: Any, text: str, default: str = "", *flags: str) -> Any:
    """An option that typer leaves at None, with the study's default in its help."""
    shown = f"{text}  [default: {default}]" if default else text
    return Annotated[kind | None, typer.Option(*flags, help=shown, show_default=False)]


def _parameter(entry: Field[Any], hint: Any) -> Any:
    """How typer reads one setting: lists as text with commas, unless the option is repeated."""
    about, choices = entry.metadata, get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    kind = next(each for each in choices if each is not type(None))
    if get_origin(kind) is tuple:
        kind = list[str] if about["argument"] or about["repeat"] else str
    flag, default, text = about["name"] or entry.name.replace("_", "-"), _default(entry), about["help"]
    if about["argument"]:
        shown = f"{text}  [default: {default}]" if default else text
        return Annotated[kind if entry.default is MISSING else kind | None, typer.Argument(help=shown, show_default=False)]
    if entry.default is MISSING:
        return Annotated[kind, typer.Option(f"--{flag}", help=text)]
    switch = kind is bool and entry.default is not False
    return _option(kind, text, default, f"--{flag}/--no-{flag}" if switch else f"--{flag}")


def _default(entry: Field[Any]) -> str:
    """A default as the help shows it; nothing where there is none, or where it says nothing."""
    value = entry.default
    if value is MISSING or value is None or isinstance(value, bool):
        return ""
    return ",".join(map(str, value)) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)


def _run(study: Study, given: dict[str, Any]) -> None:
    """Run a study and show its result: tables, verdicts on claims, and what to look at."""
    from . import api
    from .runs import Engine
    from .studies.result import claims_table
    from .studies.runner import make_settings, worker_lost

    out, engine, address = (given.pop(name, None) for name in ("out", "engine", "address"))
    preset = given.pop("preset", None) if study.presets else None
    wants_page = bool(given.pop("open", False)) and study.page is not None
    only_shown = study.preview is not None and given.pop(study.preview[0], False)
    settings = make_settings(study, given, preset)
    folder = out or api.default_folder(study, settings)
    if study.preview is not None and only_shown:
        _show(study.preview[2](settings, folder))
        return
    load(study)
    try:
        with _signals():
            result = api.run_with_page(study, settings, folder, Engine(engine or "here", address, worker_lost))
    except KeyboardInterrupt:
        if hasattr(settings, "resume"):
            raise KeyboardInterrupt(f"interrupted; add --resume to the same command to continue in {folder}") from None
        raise
    _show(result.table())
    if claims := result.claims():
        _show([claims_table(claims)])
    pages = [name for name in result.summary["sha256"] if name.endswith(".html")]
    for name in ["index.html"] if study.page is not None else pages:
        say(f"look at {result.folder / name}")
    if wants_page and not api.open_page(result.folder / "index.html"):
        tell("ropescope: there is no browser to open the page in")
    if why := study.failed(result.run):
        _leave(why, 1)


def _show(parts: Iterable[Table | str]) -> None:
    for part in parts:
        if isinstance(part, str):
            say(part)
        else:
            print_table(part.columns, part.rows, part.title)


@app.command(epilog="Example:  ropescope report results --out out/report.html")
def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, or folders of run folders.")],
    out: Annotated[Path, typer.Option(help="The page: one HTML file.")] = Path("out/report.html"),
    title: Annotated[str | None, typer.Option(help="Its title.  [default: the model or the question]")] = None,
    open: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write one page of any runs, with linked charts, to look at and to share. It needs no network."""
    import time

    from .api import open_page, page

    started = time.perf_counter()
    with _signals():
        made = page(folders, out, title)
    say(f"{made}: {made.stat().st_size / 1e6:.2f} MB, made in {time.perf_counter() - started:.1f} s")
    if open and not open_page(made):
        tell("ropescope: there is no browser to open the page in")


def _version(wanted: bool) -> bool:
    if wanted:
        from . import __version__

        say(__version__)
        raise typer.Exit
    return wanted


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


for _study in studies().values():
    if _study.settings is not None:
        _examples = "\n\n".join(f"Example:  {example}" for example in _study.examples)
        app.command(_study.name, epilog=_examples)(command_of(_study))
