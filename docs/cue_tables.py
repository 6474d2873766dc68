"""Tables of docs/cues.md."""

from __future__ import annotations

from pathlib import Path

from ropescope.runs import read_run
from ropescope.studies.claims import judge
from ropescope.studies.cues.tables import tables
from ropescope.studies.study import Table

CUES = Path(__file__).parents[1] / "results" / "cues"


def outcomes() -> list[str]:
    """A row for each change."""
    table = tables(read_run(CUES))[0]
    assert isinstance(table, Table)
    return [f"| {' | '.join(row)} |" for row in table.rows]


def claims() -> list[str]:
    """A row for each claim."""
    rows = judge([read_run(CUES)], "cues")
    return [f"| `{row.claim}` | {row.statement} | {row.ours} | **{row.verdict}** |" for row in rows]


TABLES = {"cues": outcomes, "cues-claims": claims}
