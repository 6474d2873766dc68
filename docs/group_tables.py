"""Tables of docs/head-groups.md."""

from __future__ import annotations

from pathlib import Path

from ropescope.runs import read_run
from ropescope.studies.claims import judge
from ropescope.studies.head_groups.tables import tables
from ropescope.studies.study import Table

GROUPS = Path(__file__).parents[1] / "results" / "head-groups"


def outcomes() -> list[str]:
    """A row for each kind of model."""
    (table,) = tables(read_run(GROUPS))
    assert isinstance(table, Table)
    return [f"| {' | '.join(row)} |" for row in table.rows]


def claims() -> list[str]:
    """A row for each claim."""
    rows = judge([read_run(GROUPS)], "head_groups")
    return [f"| `{row.claim}` | {row.statement} | {row.ours} | **{row.verdict}** |" for row in rows]


TABLES = {"head-groups": outcomes, "head-groups-claims": claims}
