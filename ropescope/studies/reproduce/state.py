"""What is done and what is not, from the notes and summaries in the folder alone.

What a step was asked for is noted before it starts, in `steps/NAME.json`, with hashes of what it is made from. What it prints
goes to `steps/NAME.txt`. So a reproduction can be interrupted at any moment. Resuming inside a step is up to its study.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...models.checkpoints import hub_commit
from ...models.identity import model_files
from ...runs import made_with, read_sealed, sha256, write_whole
from .. import study_named
from ..chat import LOCAL
from .steps import CHAT, MODEL, OTHERS, Of, Step


@dataclass(frozen=True)
class Model:
    """A language model: where it is and what identifies its weights; or why it is not at hand."""

    where: str = ""
    made_of: Mapping[str, str] | None = None
    missing: str = ""


def models_at_hand(preset: str, model: str | None = None, chat: str | None = None) -> dict[str, Model]:
    """Language models by name, the chosen one first: `model` is a folder, GGUF file or hub id, or else the usual one."""
    folder = Path(os.environ.get("ROPESCOPE_WEIGHTS") or "weights")
    found: dict[str, Model] = {}
    names = [*([MODEL] if model is None else []), *(OTHERS if preset == "paper" else ())]
    if model is not None:
        path = Path(model)
        if not path.exists() and (model.count("/") != 1 or model.startswith((".", "/", "~"))):
            raise ValueError(f"model {model} is neither a folder nor a GGUF file nor a hub id like org/name")
        found[path.stem if path.is_file() else path.resolve().name] = _model(path) if path.exists() else _hub_model(model)
    for name in names:
        if (folder / name / "config.json").exists():
            found.setdefault(name, _model(folder / name))
        else:
            found.setdefault(name, Model(missing=f"there is no model in {folder / name}"))
    if chat is not None:
        path = Path(chat.removeprefix(LOCAL))
        made_of = _model(path).made_of if chat.startswith(LOCAL) and path.exists() else {"id": chat}
        found[CHAT] = Model(chat, made_of)
    return found


def _model(path: Path) -> Model:
    weights, files = model_files(path)
    return Model(str(path), weights | files)


def _hub_model(name: str) -> Model:
    """A model of the hub, by its commit. If that is not known, finished steps stay and others are left out."""
    try:
        return Model(name, {"id": name, "revision": hub_commit(name)})
    except ValueError as error:
        return Model(missing=str(error))


@dataclass(frozen=True)
class Plan:
    """A folder, the steps that fill it, and the models they read."""

    folder: Path
    steps: tuple[Step, ...]
    models: Mapping[str, Model]

    def settings(self, step: Step) -> dict[str, Any]:
        """A step's settings with the places of what it needs."""
        return {name: self._placed(value) for name, value in step.settings.items()}

    def _placed(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return [self._placed(each) for each in value]
        if not isinstance(value, Of):
            return value
        return self.models[value.name].where if value.name in self.models else str(self.folder / value.name)

    def note(self, step: Step) -> Path:
        """Where it is noted what a step was asked for."""
        return self.folder / "steps" / f"{step.name}.json"

    def log(self, step: Step) -> Path:
        """Where a step's output goes."""
        return self.folder / "steps" / f"{step.name}.txt"

    def reads_model(self, step: Step) -> bool:
        """Whether a step needs a language model."""
        return any(name in self.models for name in step.needs)

    def asked(self, step: Step) -> dict[str, Any]:
        """What a step is asked for and made from, by which later calls recognise its results."""
        made_from: dict[str, Any] = {}
        for name in step.needs:
            summary = self.folder / name / "summary.json"
            made_from[name] = (
                self.models[name].made_of if name in self.models else sha256(summary) if summary.exists() else None
            )
        return {"asked": step.asked(), "made_with": self.made_with(step), "made_from": made_from}

    def made_with(self, step: Step) -> dict[str, Any]:
        """The code and libraries that a step runs with."""
        return made_with(str(study_named(step.study).settings.__module__))

    def noted(self, step: Step) -> dict[str, Any] | None:
        """What is noted of a step; None if nothing is."""
        try:
            found: dict[str, Any] = json.loads(self.note(step).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


DONE, TO_DO, BEGUN, CHANGED, RUNNING, FAILED, LEFT_OUT = (
    "done", "to do", "begun", "changed", "running", "failed", "left out",
)  # fmt: skip
WAITING = (TO_DO, BEGUN, CHANGED)


@dataclass
class Progress:
    """How far a step is: its state, the seconds it took so far, and why it is left out, made anew or failed."""

    step: Step
    state: str
    seconds: float = 0.0
    why: str = ""

    def described(self) -> dict[str, Any]:
        """A step as it goes into a summary."""
        found: dict[str, Any] = {"does": self.step.does, **self.step.asked(), "state": self.state}
        found |= {"seconds": round(self.seconds, 1)}
        return found | ({"why": self.why} if self.why else {})


def not_asked_for(steps: Sequence[Step], only: Sequence[str], skip: Sequence[str]) -> list[str]:
    """Names of the steps to leave as they are."""
    names = [step.name for step in steps]
    for setting, own in (("only", only), ("skip", skip)):
        if strange := [name for name in own if name not in names]:
            raise ValueError(f"{setting}: {strange[0]} is no step; there are {', '.join(names)}")
    return [name for name in names if name in skip or (only and name not in only)]


def look(plan: Plan, skip: Sequence[str] = ()) -> list[Progress]:
    """The state of every step, from what is in the folder; a folder with steps of other settings is refused.

    Those with names in `skip` are left out unless they are done.
    """
    found: dict[str, Progress] = {}
    for step in plan.steps:
        row = found[step.name] = state_of(plan, step)
        if row.state == DONE and (
            other := next((name for name in step.needs if name in found and found[name].state != DONE), None)
        ):
            row.state, row.why = CHANGED, f"{other} is not done: to be made anew"
        if step.name in skip and row.state != DONE:
            row.state, row.why = LEFT_OUT, "not asked for"
    return list(found.values())


def state_of(plan: Plan, step: Step) -> Progress:
    """What is in the folder of one step."""
    lost = next((plan.models[name] for name in step.needs if name in plan.models and plan.models[name].missing), None)
    noted, asked = plan.noted(step) or {}, plan.asked(step)
    if noted and noted.get("asked") != json.loads(json.dumps(asked["asked"])):
        raise ValueError(f"{plan.folder / step.name} was made with other settings: choose another folder for out")
    if noted and noted.get("made_with") != asked["made_with"]:  # not made anew: hours of work would be removed
        raise ValueError(f"{plan.folder / step.name} was made with other code or libraries: choose another folder for out")
    if noted and whole(plan.folder / step.name) and (lost or noted.get("made_from") == asked["made_from"]):
        return Progress(step, DONE, _seconds(noted))
    if lost:
        return Progress(step, LEFT_OUT, why=lost.missing)
    if noted and noted.get("made_from") != asked["made_from"]:
        return Progress(step, CHANGED, why="what it is made from has changed: to be made anew")
    return Progress(step, BEGUN if noted else TO_DO, _seconds(noted))


def _seconds(noted: Mapping[str, Any]) -> float:
    """The time in a note, which somebody may have changed: it decides nothing."""
    found = noted.get("seconds")
    return float(found) if isinstance(found, int | float) and 0 <= found < 1e9 else 0.0


def whole(folder: Path) -> bool:
    """Whether a run folder has a summary, and all files in it are those that the summary names."""
    try:
        summary = read_sealed(folder / "summary.json")
        return all(sha256(folder / name) == digest for name, digest in summary["sha256"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def make_room(plan: Plan, row: Progress) -> None:
    """Note what is asked for. Results made from something else are removed; files from elsewhere are refused."""
    folder = plan.folder / row.step.name
    if plan.noted(row.step) is None and folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
        raise ValueError(f"{folder} holds files that come from elsewhere: choose another folder for out")
    if row.state == CHANGED:
        shutil.rmtree(folder, ignore_errors=True)
    write_note(plan, row, plan.asked(row.step))


def write_note(plan: Plan, row: Progress, asked: Mapping[str, Any]) -> None:
    """Keep what a step was asked for, and how long it took so far."""
    write_whole(plan.note(row.step), json.dumps({**asked, "seconds": round(row.seconds, 1)}, indent=1) + "\n")


def seconds_left(progress: Sequence[Progress], jobs: int) -> float:
    """About how long until all is done, at the pace of what is done already."""
    done = [row for row in progress if row.state == DONE and row.seconds > 0]
    pace = sum(row.seconds for row in done) / sum(row.step.seconds for row in done) if done else 1.0
    open_ones = [row for row in progress if row.state in (*WAITING, RUNNING)]
    left = [max(0.0, pace * row.step.seconds - (row.seconds if row.state == RUNNING else 0)) for row in open_ones]
    return max(sum(left) / jobs, max(left, default=0.0))
