"""Tables of sharpen.md, from recorded runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ropescope.runs import Run, read_run
from ropescope.studies.sharpen.tables import choice_rows, random_rows


def recorded(name: str) -> Run:
    """A recorded study of sharpened heads."""
    return read_run(Path(__file__).parents[1] / "results" / name)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def loss_rows(name: str) -> list[str]:
    """Losses of every choice by the number of keys, and gains."""
    return [_row(row) for row in choice_rows(recorded(name).results)]


def beside_rows(name: str) -> list[str]:
    """Choices beside random ones of as many heads."""
    return [_row(row) for row in random_rows(recorded(name).results)]


TABLES: dict[str, Callable[[], list[str]]] = {
    f"{table}{ending}": partial(rows, f"sharpen-stories15M{ending}")
    for table, rows in (("sharpen-losses", loss_rows), ("sharpen-random", beside_rows))
    for ending in ("", "-512")
}
