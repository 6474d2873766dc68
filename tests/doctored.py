"""Recorded runs with single values changed, to see verdicts of claims change."""

import copy
import json
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from ropescope.runs import Run
from ropescope.studies.claims import CASES, Claim, Runs

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"


def at(run: str, *path) -> tuple:
    """A change of recorded runs: their name, which may hold a star, the path of a value in their results, and another value.

    The path may begin with "config" or with the name of a file beside the summary.
    """
    *path, value = path
    return (run, tuple(path), value)


def edited(run: Run, path: tuple, value: object, folder: Path) -> Run:
    """The run with one value changed, in its summary or in a file beside it."""
    summary = copy.deepcopy(dict(run.summary))
    if str(path[0]).endswith(".json"):
        name, *path = path
        content = json.loads((run.folder / name).read_text())
        folder = folder / run.name
        folder.mkdir()
        part = content
    else:
        folder, part = run.folder, summary if path[0] == "config" else summary["results"]
    for key in path[:-1]:
        part = part[key]
    assert path[-1] in part if isinstance(part, dict) else len(part) > path[-1], "there is no such value to change"
    part[path[-1]] = value
    if folder != run.folder:
        (folder / name).write_text(json.dumps(content))
    return Run(folder, summary)


def check_changed(runs: Sequence[Run], rows: Sequence[Claim], folder: Path, claim: str, expected: str, *changes: tuple) -> None:
    """Changed numbers give this verdict, which is not that of the recorded runs, and the same note."""
    usual = next(row for row in rows if row.claim == claim)
    assert usual.verdict != expected
    doctored = list(runs)
    for name, path, value in changes:
        assert any(fnmatch(run.name, name) for run in doctored)
        doctored = [edited(run, path, value, folder) if fnmatch(run.name, name) else run for run in doctored]
    row = CASES[claim].row(Runs(doctored))
    assert (row.verdict, row.note) == (expected, usual.note)
