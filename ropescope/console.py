"""Output for a terminal: tables, progress bars, single lines. Progress bars are not shown in a pipe.

Everything that the package prints goes through this module. Text may come from files: nothing in it controls the terminal, and
nothing in it is markup.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
LONGEST = 300
"""Longest error message that is shown, in characters."""
SIGNS = {
    "θ": "theta", "ω": "omega", "π": "pi", "β": "beta", "τ": "tau", "→": "->", "≤": "<=", "±": "+-", "²": "^2", "₂": "_2",
    "…": "...", "\N{MINUS SIGN}": "-", "\N{EN DASH}": "-", "⌊": "floor(", "⌋": ")",
}  # fmt: skip
"""Signs of our texts in ASCII."""


def printable(text: str) -> str:
    """The text on one line, with characters that could control a terminal written as escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text.split()))


def name_of(path: Path) -> str:
    """The name of a file or folder, also of `.` and `..`."""
    return (path if path.name not in ("", "..") else path.resolve()).name


def first_line(error: BaseException) -> str:
    """The first line of an error's message that is not empty, cut if it is long; the error's type if there is none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = lines[0] if lines else type(error).__name__
    return line if len(line) <= LONGEST else line[:LONGEST] + "…"


def make_writable(stream: Any) -> None:
    """Let a stream take every text: characters that its encoding lacks, such as ASCII, are written in other words."""
    if isinstance(stream, io.TextIOWrapper):
        codecs.register_error("ropescope", _otherwise)
        stream.reconfigure(errors="ropescope")


def _otherwise(error: UnicodeError) -> tuple[str | bytes, int]:
    """Signs in other words, and escapes for all other characters that an encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    if (sign := SIGNS.get(error.object[error.start])) is not None:
        return sign, error.start + 1
    return codecs.backslashreplace_errors(error)


def tell(sentence: str) -> None:
    """Print one line to standard error."""
    with suppress(OSError):  # work goes on if nobody listens
        print(printable(sentence), file=sys.stderr)


def put(text: str) -> None:
    """Print text to standard output, or nowhere if its reader has gone, as that of `ropescope ... | head`."""
    try:
        print(text, flush=True)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EINVAL):  # EINVAL: on Windows
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # what is still in its buffer must go somewhere when Python ends
        os.close(nowhere)


def say(sentence: str) -> None:
    """Print one line to standard output."""
    put(printable(sentence))


def warned(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning as one line to standard error; a replacement of `warnings.showwarning`."""
    tell(f"{category.__name__}: {message}")


def progress(items: Iterable[T], total: int, label: str) -> Iterable[T]:
    """The items, with a progress bar and the remaining time on a terminal. Nothing is shown in a pipe."""
    from rich.progress import BarColumn, TaskProgressColumn, TimeRemainingColumn  # noqa: PLC0415

    with _bar(BarColumn(), TaskProgressColumn(), TimeRemainingColumn(elapsed_when_finished=True), transient=True) as bar:
        yield from bar.track(items, total=total, description=printable(label))


def _bar(*columns: Any, **more: Any) -> Any:
    """A rich progress bar behind a label, in which nothing is markup."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress, TextColumn  # noqa: PLC0415

    terminal = Console(stderr=True)
    label = TextColumn("{task.description}", markup=False)
    return Progress(label, *columns, console=terminal, disable=not terminal.is_terminal, **more)


def silent(items: Iterable[T], total: int, label: str) -> Iterable[T]:
    """The items, without a progress bar."""
    return items


@contextmanager
def training_bar(steps: int) -> Iterator[Callable[[int, float, Mapping[str, Any] | None], None]]:
    """A function of step, loss and measures that moves a bar with loss, accuracy and remaining time; quiet in a pipe."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn  # noqa: PLC0415

    bar = _bar(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    line = bar.add_task("training", total=steps)
    accuracy = ""

    def show(step: int, loss: float, row: Mapping[str, Any] | None) -> None:
        nonlocal accuracy
        if row is not None:
            accuracy = " ".join(f"{value:.2f}" for value in row["accuracy"])
        bar.update(line, completed=step, description=f"loss {loss:.3f}  accuracy per hop {accuracy}")

    with bar:
        yield show


def make_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", caption: str = "") -> Any:
    """A rich table of text. Cells are never interpreted as markup."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    def plain(cell: str) -> Text:
        return Text(printable(cell))

    table = Table(box=box.SIMPLE_HEAD, title_justify="left")
    table.title, table.caption = plain(title) if title else None, plain(caption) if caption else None
    for number, column in enumerate(columns):
        table.add_column(plain(column), justify="right" if number else "left")
    for row in rows:
        table.add_row(*map(plain, row))
    return table


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print a table of text."""
    print_renderable(make_table(columns, rows, title))


def print_renderable(shown: Any) -> None:
    """Print a rich renderable at the width of the terminal, or at 140 characters in a pipe."""
    from rich.console import Console  # noqa: PLC0415

    console = Console()
    if not console.is_terminal:
        console.width = 140
    with console.capture() as text:
        console.print(shown)
    put(text.get().removesuffix("\n"))
