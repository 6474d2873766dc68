"""Statistics of recorded profiles and of recorded dynamics by the methods of today, out of the data that the folders hold.

python tools/restate.py results/profile-gemma3-270m results/dynamics …

Of a profile with `profile.nc` all statistics are computed again. Without it, those that need tables of heads alone are;
p-values and intervals that cannot be are dropped. Of dynamics, milestones are computed again from the histories of the
training runs beside the folder. The summary keeps its settings, versions and date, and says when its statistics were written.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ropescope.runs import Run, read_profile, read_run, read_trajectory, write_whole
from ropescope.runs.sealed import sealed
from ropescope.studies.histories.milestones import milestones
from ropescope.studies.profile.statistics import plain, related, statistics

DROPPED = {"p_value", "p_layers", "p_shuffled", "low", "high"}
"""Names under which earlier versions recorded p-values and intervals that do not hold."""


def restated(run: Run) -> dict[str, Any]:
    """The results of a run by the methods of today."""
    if run.command == "dynamics":
        return {name: milestones(read_trajectory(run.folder.parent / name)) for name in run.results}
    if run.command != "profile":
        raise ValueError(f"{run.folder} holds neither a profile nor dynamics")
    if (run.folder / "profile.nc").exists():
        return statistics(read_profile(run.folder / "profile.nc"))
    return from_tables(run.results)


def from_tables(recorded: Any) -> dict[str, Any]:
    """What tables of heads give; everything else as recorded, without p-values and intervals."""
    results: dict[str, Any] = _without(deepcopy({name: value for name, value in recorded.items() if name != "claims"}))
    tables = [np.array(results["heads"][name]["mean"], dtype=float) for name in ("positional", "symbolic")]
    results["correlation"] = plain(related(*tables))
    results["noise"] = None
    for found in results["frequency"]["largest"].values():
        found["with_lead"] = plain(related(tables[1] - tables[0], np.array(found["plane"], dtype=float)))
    for score in results["depth"].values():
        score["with_layer"] = score["with_layer"]["spearman"]["r"]
    return results


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(item) for key, item in value.items() if key not in DROPPED and key != "within_layers"}
    return [_without(item) for item in value] if isinstance(value, list) else value


def main(folders: list[str]) -> None:
    """Write the summaries anew."""
    for folder in folders:
        run = read_run(Path(folder))
        stamp = {"written": datetime.now(UTC).isoformat(timespec="seconds"), "ropescope": version("ropescope")}
        write_whole(run.folder / "summary.json", sealed({**run.summary, "results": restated(run), "restated": stamp}, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
