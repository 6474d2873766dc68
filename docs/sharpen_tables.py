"""Tables of sharpen.md, from recorded runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ropescope.runs import Run, read_run
from ropescope.studies.sharpen.tables import choice_rows, random_rows


def recorded() -> Run:
    """The recorded study of sharpened heads."""
    return read_run(Path(__file__).parents[1] / "results" / "sharpen-stories15M")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def loss_rows() -> list[str]:
    """Losses of every choice by the number of keys, and gains."""
    return [_row(row) for row in choice_rows(recorded().results)]


def beside_rows() -> list[str]:
    """Choices beside random ones of as many heads."""
    return [_row(row) for row in random_rows(recorded().results)]


TABLES: dict[str, Callable[[], list[str]]] = {
    "sharpen-losses": loss_rows,
    "sharpen-random": beside_rows,
}
