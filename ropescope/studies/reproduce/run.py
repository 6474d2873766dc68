"""Runs the steps: every step in a process of its own with one thread, several side by side.

Results do not depend on how many steps run side by side.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from ...runs import Run
from ..study import Outcome, Table, Work
from . import Settings, tables
from .papers import paper_figures
from .state import (
    BEGUN,
    DONE,
    FAILED,
    LEFT_OUT,
    RUNNING,
    WAITING,
    Plan,
    Progress,
    look,
    make_room,
    models_at_hand,
    not_asked_for,
    state_of,
    whole,
    write_note,
)
from .steps import Step, steps

TICK = 0.2
"""Seconds between two looks at the processes."""
PATIENCE = 5.0
"""Seconds in which a process that is asked to end must have done so."""
CHILD = "from ropescope.studies.reproduce.child import main; main()"


def run(settings: Settings, work: Work) -> Outcome:
    """The state of every step once nothing more can be done; figures in the papers' layout go to `figures/`."""
    plan, left_out = planned(settings, work.folder)
    progress = look(plan, left_out)
    with closing(run_steps(plan, settings.side_by_side, left_out)) as states, tables.shown(settings.side_by_side) as show:
        for progress in states:
            show(progress)
    for row in progress:
        if row.state == FAILED:
            work.tell(f"ropescope: {row.step.name} failed: {row.why}")
    config = {"preset": settings.preset, "models": {name: model.made_of for name, model in plan.models.items() if model.where}}
    done = [plan.folder / row.step.name for row in progress if row.state == DONE]
    files = [f"figures/{name}" for name in paper_figures(done, plan.folder / "figures")] if done else []
    return Outcome(config, {"steps": {row.step.name: row.described() for row in progress}}, written=files, sources=done)


def preview(settings: Settings, folder: Path) -> list[Table | str]:
    """The steps, their states and what is left, without touching anything."""
    plan, left_out = planned(settings, folder)
    return tables.overview(look(plan, left_out), settings.side_by_side)


def page(run: Run) -> list[Path]:
    """The run folders that the page shows."""
    return [run.folder / name for name, row in run.results["steps"].items() if row["state"] == DONE]


def planned(settings: Settings, folder: Path) -> tuple[Plan, list[str]]:
    """The plan for a folder, and the names of the steps to leave as they are."""
    models = models_at_hand(settings.preset, settings.model, settings.chat)
    plan = Plan(folder, steps(settings.preset, next(iter(models)), settings.chat is not None), models)
    return plan, not_asked_for(plan.steps, settings.only, settings.skip)


class Running(NamedTuple):
    """A process at work on a step, which started at `since`, less the seconds that the step took before."""

    process: subprocess.Popen[bytes]
    since: float


def run_steps(plan: Plan, jobs: int, skip: Sequence[str]) -> Generator[list[Progress], None, None]:
    """Run what is not done, yielding the state of all steps over and over until nothing more can be done."""
    progress = look(plan, skip)
    running: dict[str, Running] = {}
    try:
        while True:
            for row in progress:
                if row.state == RUNNING and _ended(plan, row, running[row.step.name]):
                    del running[row.step.name]
            # Those that read a language model go one at a time: beside others they start first, or they would end last.
            for row in sorted(progress, key=lambda row: jobs > 1 and not plan.reads_model(row.step)):
                if row.state in WAITING and _ready(plan, row, progress, jobs) and (started := _start(plan, row)):
                    running[row.step.name] = started
            yield progress
            if not running:
                return
            time.sleep(TICK)
    finally:
        for at_work in running.values():
            at_work.process.terminate()
        for row in progress:
            if row.step.name in running:
                _ended(plan, row, running[row.step.name], PATIENCE)
                row.state, row.why = BEGUN, ""


def _ready(plan: Plan, row: Progress, progress: Sequence[Progress], jobs: int) -> bool:
    """Whether a step can start; it is left out if it never can."""
    needs, states = row.step.needs, {other.step.name: other.state for other in progress}
    if lost := next((name for name in needs if states.get(name) in (FAILED, LEFT_OUT)), None):
        row.state, row.why = LEFT_OUT, f"needs {lost}, which is {states[lost]}"
        return False
    running = [other.step for other in progress if other.state == RUNNING]
    # Language models fill the memory: one at a time.
    taken = plan.reads_model(row.step) and any(plan.reads_model(step) for step in running)
    return len(running) < jobs and not taken and all(states.get(name, DONE) == DONE for name in needs)


def _start(plan: Plan, row: Progress) -> Running | None:
    """Start a step; None if it turns out to be done, or cannot be started."""
    step = row.step
    now = state_of(plan, step)  # what it needs may have been made anew since
    row.state, row.seconds, row.why = now.state, now.seconds, now.why
    if row.state == DONE:
        return None
    try:
        make_room(plan, row)
    except ValueError as error:
        row.state, row.why = FAILED, str(error)
        return None
    asked = {"study": step.study, "preset": step.preset, "settings": plan.settings(step), "out": str(plan.folder / step.name)}
    with plan.log(step).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, json.dumps(asked)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8:backslashreplace"},
        )
    row.state = RUNNING
    return Running(process, time.monotonic() - row.seconds)


def _ended(plan: Plan, row: Progress, running: Running, patience: float = 0.0) -> bool:
    """Whether a step's process has ended, and how; with patience it is made to."""
    process = running.process
    if patience:
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    row.seconds = time.monotonic() - running.since
    if (code := process.poll()) is None:
        return False
    if process.stdin is not None:
        process.stdin.close()
    write_note(plan, row, plan.noted(row.step) or plan.asked(row.step))
    row.state, row.why = DONE, ""
    if code != 0 or not whole(plan.folder / row.step.name):
        row.state, row.why = FAILED, _last_sentence(plan, row.step, code)
    return True


def _last_sentence(plan: Plan, step: Step, code: int) -> str:
    if code < 0:
        return f"ended by signal {-code}"
    lines = plan.log(step).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    if code == 0 or not lines:
        return f"ended with code {code} but left no whole results"
    return lines[-1].removeprefix("ropescope: ")
