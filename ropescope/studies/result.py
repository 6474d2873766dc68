"""The result of a study: numbers, tables, figures and verdicts, as on the page. Notebooks display it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..charts import Chart, Figure, picture, title_of
from ..console import printable
from ..html import render
from ..runs import Run
from .claims import Claim, judge
from .study import Study, Table

if TYPE_CHECKING:
    import xarray as xr


class Tables(tuple[Table | str, ...]):
    """Tables and lines of text. `print` and notebooks display them."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(printable(part) if isinstance(part, str) else _text(part) for part in self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return render("tables.html", parts=self)


@dataclass(frozen=True)
class Result:
    """A finished run. A notebook displays its headline, its tables and its first figure.

    study    the study, with its name and settings
    run      the run folder with `run.config` and `run.results`
    sources  runs from which this run was made, or that were made with it, as by several seeds; claims are judged from them too

    `dataset` and `plot` raise errors if the run has no dataset or no such figure.

    >>> import ropescope as rs
    >>> result = rs.run("theory", inputs=100, longest=200, draws=20)
    >>> result.headline
    'built models: ...'
    >>> list(result.dataset)[:2], list(result.figures())
    ([...], ['gaps', 'planes'])
    >>> result.plot("lengths")
    Traceback (most recent call last):
    ValueError: figure must be one of gaps, planes, not 'lengths'
    """

    study: Study
    run: Run
    sources: Sequence[Run] = ()

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.run.folder

    @property
    def summary(self) -> Mapping[str, Any]:
        """Content of `summary.json`: settings, results, versions, hashes."""
        return self.run.summary

    @property
    def headline(self) -> str:
        """One line about the result."""
        return self.study.headline(self.run)

    @property
    def dataset(self) -> xr.Dataset:
        """The numbers as a labelled dataset."""
        if self.study.dataset is None:
            raise ValueError(f"a run of {self.study.name} has no dataset: its numbers are in `summary`")
        return self.study.dataset(self.run)

    def table(self) -> Tables:
        """Tables and lines of text, as the command prints them, also of runs that were made together with this one."""
        together = [run for run in self.sources if run.command == self.study.name]
        return Tables(part for run in (self.run, *together) for part in self.study.tables(run))

    def figures(self) -> dict[str, Figure]:
        """All figures by name, each with its chart and how to read it."""
        return self.study.figures(self.run)

    def plot(self, name: str | None = None) -> Chart:
        """One figure as an Altair chart: the first, or the one named. Notebooks show it; `.save("x.png")` writes it."""
        figures = self.figures()
        if not figures:
            raise ValueError(f"a run of {self.study.name} has no figures")
        if name is not None and name not in figures:
            raise ValueError(f"figure must be one of {', '.join(figures)}, not {name!r}")
        return figures[name or next(iter(figures))].chart

    def claims(self) -> list[Claim]:
        """Claims that this run and its sources can judge, each with its verdict."""
        evidence = self.study.evidence(self.run, self.sources)
        return [row for row in judge(evidence, _folder(self.study)) if row.verdict != "not run"]

    def __repr__(self) -> str:
        return f"<{self.study.name}: {printable(self.headline)}>"

    def _repr_html_(self) -> str:
        """Headline, tables and the first figure as a picture, without any script; `plot` shows it with tooltips."""
        first = list(self.figures().values())[:1]
        pictures = [(title_of(figure), b64encode(picture(figure.chart)).decode()) for figure in first]
        return render("result.html", headline=self.headline, parts=self.table(), pictures=pictures)


def _folder(study: Study) -> str:
    """Name of the folder in `studies/` that defines a study."""
    from . import folder_of  # noqa: PLC0415

    return folder_of(study)


def claims_table(claims: Sequence[Claim]) -> Table:
    """A table of claims: the paper's value, ours and the verdict."""
    rows = [[row.claim, row.statement, row.paper_value, row.ours, row.verdict] for row in claims]
    return Table(["claim", "statement", "its value", "ours", "verdict"], rows)


def _text(table: Table) -> str:
    lines = [[printable(cell) for cell in line] for line in (table.columns, *table.rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(table.columns))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*([printable(table.title)] if table.title else []), *shown])
