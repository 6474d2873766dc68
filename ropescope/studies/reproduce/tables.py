"""The steps of a reproduction as a table: while it runs, and afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...console import say
from ...runs import Run
from ..study import Table
from .state import BEGUN, DONE, FAILED, RUNNING, TO_DO, Progress, seconds_left

if TYPE_CHECKING:
    import xarray as xr

COLUMNS = ("step", "what it does", "state", "took")


def headline(run: Run) -> str:
    """How many steps are done."""
    states = [row["state"] for row in run.results["steps"].values()]
    return f"{states.count(DONE)} of {len(states)} steps done, preset {run.config['preset']}"


def tables(run: Run) -> list[Table | str]:
    """A row for each step."""
    rows = [
        [name, row["does"], f"{row['state']}: {row['why']}" if row.get("why") else row["state"], _duration(row["seconds"])]
        for name, row in run.results["steps"].items()
    ]
    return [Table(COLUMNS, rows), headline(run)]


def failed(run: Run) -> str:
    """A sentence if steps have failed."""
    names = [name for name, row in run.results["steps"].items() if row["state"] == FAILED]
    return f"{', '.join(names)} failed: what was printed is in {run.folder / 'steps'}" if names else ""


def dataset(run: Run) -> xr.Dataset:
    """State and seconds of every step."""
    import xarray as xr  # noqa: PLC0415

    steps = run.results["steps"]
    found = {key: ("step", [row[key] for row in steps.values()]) for key in ("state", "seconds")}
    return xr.Dataset(found, coords={"step": list(steps)})


def overview(progress: Sequence[Progress], jobs: int) -> list[Table | str]:
    """How far every step is, with estimates, and what is left."""
    rows = [
        [
            row.step.name,
            row.step.does,
            f"{row.state}: {row.why}" if row.why else row.state,
            _duration(row.seconds) if row.seconds else "",
            _duration(row.step.seconds),
        ]
        for row in progress
    ]
    done, left = sum(row.state == DONE for row in progress), seconds_left(progress, jobs)
    caption = f"{done} of {len(progress)} steps done" + (f", about {_duration(left)} left" if left else "")
    return [Table([*COLUMNS, "estimate"], rows), caption]


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


@contextmanager
def shown(jobs: int) -> Iterator[Callable[[Sequence[Progress]], None]]:
    """A table that follows the steps on a terminal; in a pipe a line for each that starts or ends."""
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    terminal = Console(stderr=True)
    if terminal.is_terminal:
        with Live(console=terminal, refresh_per_second=4, transient=True) as live:
            yield lambda progress: live.update(_live(progress, jobs))
        return
    before: dict[str, str] = {}

    def show(progress: Sequence[Progress]) -> None:
        for row in progress:
            if row.state not in (TO_DO, BEGUN, before.get(row.step.name)):
                took = f" ({_duration(row.seconds)})" if row.seconds and row.state != RUNNING else ""
                left = f", about {_duration(seconds_left(progress, jobs))} left in all" if row.state == RUNNING else ""
                say(f"{row.step.name}: {row.state}{took}{': ' + row.why if row.why else ''}{left}")
            before[row.step.name] = row.state

    yield show


def _live(progress: Sequence[Progress], jobs: int) -> Any:
    from ...console import make_table  # noqa: PLC0415

    table, caption = overview(progress, jobs)
    assert isinstance(table, Table)
    return make_table(table.columns, table.rows, caption=str(caption))
