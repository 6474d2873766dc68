"""Tables of docs/sizes.md."""

from __future__ import annotations

from pathlib import Path

from ropescope.runs import read_run
from ropescope.studies.claims import judge
from ropescope.studies.sizes.tables import tables
from ropescope.studies.study import Table

SIZES = Path(__file__).parents[1] / "results" / "sizes"


def outcomes() -> list[str]:
    """A row for each size."""
    (table,) = tables(read_run(SIZES))
    assert isinstance(table, Table)
    return [f"| {' | '.join(row)} |" for row in table.rows]


def claims() -> list[str]:
    """A row for each claim."""
    rows = judge([read_run(SIZES)], "sizes")
    return [f"| `{row.claim}` | {row.statement} | {row.ours} | **{row.verdict}** |" for row in rows]


TABLES = {"sizes": outcomes, "sizes-claims": claims}
