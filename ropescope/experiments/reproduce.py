"""Everything of both papers, in order: steps that are commands of ropescope, each with a run folder of its own.

Every step runs in a process of its own with one thread, as many at a time as are asked for, so results do not depend on how
many run side by side. What a step was asked for is noted before it begins, in `steps/NAME.json`, with hashes of what it is made
from; what it says goes to `steps/NAME.txt`. From notes and summaries alone a later call knows what is done, so it may be
interrupted at any moment. Going on inside a step is the business of its command.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..runs import locked, read_sealed, sha256, write_whole

PRESETS = ("quick", "paper")
MODEL = "smollm2-135m"
OTHERS = {
    "stories15M": 120,
    "minimind2-small": 120,
    "gemma3-270m": 700,
    "qwen2.5-coder-0.5b": 1500,
    "tinyllama-1.1b": 3000,
    "qwen2.5-coder-1.5b": 3500,
}
"""Language models that are profiled beside the first with preset paper, and the seconds that takes about."""
CHAT = "chat"
"""What steps call the chat model."""
TICK = 0.2
"""Seconds between two looks at the processes."""
PATIENCE = 5.0
"""Seconds in which a process that is asked to end must have done so."""


@dataclass(frozen=True)
class Step:
    """A command and the run folder it fills.

    arguments  of ropescope, but for --out; `@name` is the folder of the step or language model of this name
    seconds    it takes about so long on one core
    """

    name: str
    does: str
    arguments: tuple[str, ...]
    seconds: float

    @property
    def needs(self) -> tuple[str, ...]:
        """Steps and models it is made from."""
        return tuple(argument[1:] for argument in self.arguments if argument.startswith("@"))


def steps(preset: str, model: str = MODEL, chat: bool = False) -> tuple[Step, ...]:
    """The list for a preset and the name of a language model; a chat model is asked, too, if that is wanted.

    Preset quick trains small models for the dynamics, and looks into the bundled ones of full size on few inputs. Preset paper
    has the settings of the recorded results; the bundled models are those of its number-0 and letter-1, in half precision.
    """
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, not {preset!r}")
    found: list[Step] = []

    def add(name: str, does: str, quick: tuple[float, str] | None, paper: tuple[float, str]) -> None:
        chosen = quick if preset == "quick" else paper
        if chosen is not None:
            found.append(Step(name, does, tuple(chosen[1].split()), chosen[0]))

    fewer = "17,33,65,129,257,513,850,1700"
    seeds = range(1 if preset == "quick" else 3)
    runs = [(task, seed) for seed in seeds for task in ("number", "letter")]
    add("theory", "built heads, bounds, exact gaps", (30, "theory --inputs 20000 --draws 1000"), (90, "theory"))
    for task, seed in runs:
        how = f"train {task} --seed {seed} --resume"
        add(f"{task}-{seed}", f"a GPT-J learns the {task} task", (150, f"{how} --preset quick"), (3000, how))
    folders = " ".join(f"@{task}-{seed}" for task, seed in runs)
    add("dynamics", "when heads turn pure and hops are learned", (10, f"dynamics {folders}"), (30, f"dynamics {folders}"))
    for task in ("number", "letter"):
        add(f"evaluate-{task}", "test accuracy of the bundled model", (80, f"evaluate {task}"), (80, f"evaluate {task}"))
    add("mechanisms", "what heads do along paths", (120, "mechanisms --inputs 2000 --changed 200"), (1000, "mechanisms"))
    for task in ("number", "letter"):
        what = f"generalise {task}"
        add(
            what.replace(" ", "-"),
            "accuracy on longer inputs",
            (85, f"{what} --lengths {fewer} --samples 128 --seeds 2"),
            (3000, what),
        )
    add("canonical", "one-head models at every angle", (90, "canonical --preset quick"), (900, "canonical"))
    what = f"profile @{model}"
    add(f"profile-{model}", "every head of a language model", (50, f"{what} --count 8 --pairs 12"), (700, what))
    add(f"profile-{model}-unequal", "the same, sentences of unequal length", None, (700, f"{what} --lengths unequal"))
    for other, seconds in OTHERS.items():
        if other != model:
            add(f"profile-{other}", "every head of a language model", None, (seconds, f"profile @{other}"))
    for task in ("number", "letter"):
        what = f"control {task}"
        add(
            what.replace(" ", "-"),
            "planes and heads changed",
            (110, f"{what} --inputs 400 --draws 3"),
            (300, f"{what} --inputs 1000"),
        )
    what = f"control @{model}"
    few, many = "--count 4 --pairs 8 --draws 1", "--count 24 --draws 3"
    add(f"control-{model}", "the same in a language model", (250, f"{what} {few}"), (6000, f"{what} {many}"))
    few = "bench scores --tokens 17,32,64 --rerun-up-to 64 --rounds 3"
    add("bench", "what scores cost, as ratios", (40, few), (900, "bench"))
    what = f"bench profile --model @{model}"
    add("bench-profile", "the same in a language model", (30, f"{what} --pairs 12 --rounds 1"), (900, f"{what} --rounds 3"))
    if chat:
        what, few = f"llm --model @{CHAT} --yes", "--lengths 12,16,32,100 --runs 2 --samples 10"
        add("llm", "both tasks as questions to a chat model", (300, f"{what} {few}"), (3600, what))
    return tuple(found)


# What is at hand


@dataclass(frozen=True)
class Model:
    """A language model: where it is and what identifies its weights, or why it is missing."""

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
            raise ValueError(f"--model {model} is neither a folder nor a GGUF file nor a hub id like org/name")
        found[path.stem if path.is_file() else path.resolve().name] = (
            _model(path) if path.exists() else Model(model, {"id": model})
        )
    for name in names:
        if (folder / name / "config.json").exists():
            found.setdefault(name, _model(folder / name))
        else:
            found.setdefault(name, Model(missing=f"there is no model in {folder / name}"))
    if chat is not None:
        found[CHAT] = Model(chat, {"id": chat})
    return found


def _model(path: Path) -> Model:
    files = [path] if path.is_file() else [path / "config.json", *sorted(path.glob("*.safetensors"))]
    return Model(str(path), {file.name: sha256(file) for file in files if file.exists()})


@dataclass(frozen=True)
class Plan:
    """A folder, the steps that fill it, and the models they read."""

    folder: Path
    steps: tuple[Step, ...]
    models: Mapping[str, Model]

    def command(self, step: Step) -> list[str]:
        """Arguments with the places of what the step needs."""
        given = (self._place(part[1:]) if part.startswith("@") else part for part in step.arguments)
        return [*given, "--out", str(self.folder / step.name)]

    def _place(self, name: str) -> str:
        return self.models[name].where if name in self.models else str(self.folder / name)

    def note(self, step: Step) -> Path:
        """Where it is noted what a step was asked for."""
        return self.folder / "steps" / f"{step.name}.json"

    def said(self, step: Step) -> Path:
        """Where it is kept what a step's command said."""
        return self.folder / "steps" / f"{step.name}.txt"

    def reads_model(self, step: Step) -> bool:
        """Whether a step needs a language model."""
        return any(name in self.models for name in step.needs)

    def asked(self, step: Step) -> dict[str, Any]:
        """What a step is asked for, so that results of anything else are known by it."""
        made_from: dict[str, Any] = {}
        for name in step.needs:
            summary = self.folder / name / "summary.json"
            made_from[name] = (
                self.models[name].made_of if name in self.models else sha256(summary) if summary.exists() else None
            )
        return {"arguments": list(step.arguments), "made_from": made_from}

    def noted(self, step: Step) -> dict[str, Any] | None:
        """What is noted of a step; None if nothing is."""
        try:
            found: dict[str, Any] = json.loads(self.note(step).read_text())
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


DONE, TO_DO, BEGUN, CHANGED, RUNNING, FAILED, LEFT_OUT = (
    "done", "to do", "begun", "changed", "running", "failed", "left out",
)  # fmt: skip
WAITING = (TO_DO, BEGUN, CHANGED)


@dataclass
class Progress:
    """How far a step is: its state, the seconds it took so far, and why it is left out, made anew or failed.

    Of the seconds, `processor` were spent computing: on a busy machine far fewer.
    """

    step: Step
    state: str
    seconds: float = 0.0
    why: str = ""
    processor: float = 0.0


def said(row: Progress) -> dict[str, Any]:
    """A step as it goes into a summary."""
    found: dict[str, Any] = {"does": row.step.does, "command": " ".join(row.step.arguments), "state": row.state}
    found |= {"seconds": round(row.seconds, 1), "processor_seconds": round(row.processor, 1)}
    return found | ({"why": row.why} if row.why else {})


def not_asked_for(steps: Sequence[Step], only: str | None, skip: str | None) -> list[str]:
    """Names of the steps to leave as they are; both are names with commas between them."""
    names = [step.name for step in steps]
    chosen = {option: [] if text is None else text.split(",") for option, text in (("--only", only), ("--skip", skip))}
    for option, own in chosen.items():
        if strange := [name for name in own if name not in names]:
            raise ValueError(f"{option} {strange[0]} is no step: there are {', '.join(names)}")
    return [name for name in names if name in chosen["--skip"] or (only is not None and name not in chosen["--only"])]


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
    if noted and noted.get("arguments") != asked["arguments"]:
        raise ValueError(f"{plan.folder / step.name} was made with other settings: choose another folder for --out")
    if noted and whole(plan.folder / step.name) and (lost or noted.get("made_from") == asked["made_from"]):
        return Progress(step, DONE, _seconds(noted, "seconds"), processor=_seconds(noted, "processor_seconds"))
    if lost:
        return Progress(step, LEFT_OUT, why=lost.missing)
    if noted and noted.get("made_from") != asked["made_from"]:
        return Progress(step, CHANGED, why="what it is made from has changed: to be made anew")
    row = Progress(step, BEGUN if noted else TO_DO)
    row.seconds, row.processor = _seconds(noted, "seconds"), _seconds(noted, "processor_seconds")
    return row


def _seconds(noted: Mapping[str, Any], name: str) -> float:
    """A time of a note, which somebody may have changed: it decides nothing."""
    found = noted.get(name)
    return float(found) if isinstance(found, int | float) and 0 <= found < 1e9 else 0.0


def whole(folder: Path) -> bool:
    """Whether a run folder has a summary, and all files in it are those that the summary names."""
    try:
        summary = read_sealed(folder / "summary.json")
        return all(sha256(folder / name) == digest for name, digest in summary["sha256"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def seconds_left(progress: Sequence[Progress], jobs: int) -> float:
    """About how long until all is done, at the pace of what is done already."""
    done = [row for row in progress if row.state == DONE and row.seconds > 0]
    pace = sum(row.seconds for row in done) / sum(row.step.seconds for row in done) if done else 1.0
    open_ones = [row for row in progress if row.state in (*WAITING, RUNNING)]
    left = [max(0.0, pace * row.step.seconds - (row.seconds if row.state == RUNNING else 0)) for row in open_ones]
    return max(sum(left) / jobs, max(left, default=0.0))


# Running


def leave_with_parent() -> None:
    """End this process when the one that started it ends, however that ends: its standard input is then closed."""

    def wait() -> None:
        with suppress(OSError):
            while os.read(0, 1024):
                pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class Running(NamedTuple):
    """A process at work on a step, which it began at `since`, less the seconds that the step took before."""

    process: subprocess.Popen[bytes]
    since: float


def run(plan: Plan, program: Sequence[str], jobs: int, skip: Sequence[str]) -> Generator[list[Progress], None, None]:
    """Do what is not done, yielding the state of all steps over and over until nothing more can be done.

    program  the beginning of every command line: it must call `leave_with_parent`
    skip     names of steps to leave as they are
    """
    progress = look(plan, skip)
    running: dict[str, Running] = {}
    try:
        while True:
            for row in progress:
                if row.state == RUNNING and _ended(plan, row, running[row.step.name]):
                    del running[row.step.name]
            # Those that read a language model go one at a time: beside others they begin first, or they would end last.
            for row in sorted(progress, key=lambda row: jobs > 1 and not plan.reads_model(row.step)):
                if row.state in WAITING and _ready(plan, row, progress, jobs) and (begun := _begin(plan, row, program)):
                    running[row.step.name] = begun
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
    """Whether it is time for a step; it is left out if that time will never come."""
    needs, states = row.step.needs, {other.step.name: other.state for other in progress}
    if lost := next((name for name in needs if states.get(name) in (FAILED, LEFT_OUT)), None):
        row.state, row.why = LEFT_OUT, f"needs {lost}, which is {states[lost]}"
        return False
    running = [other.step for other in progress if other.state == RUNNING]
    # Language models fill the memory: one at a time.
    taken = plan.reads_model(row.step) and any(plan.reads_model(step) for step in running)
    return len(running) < jobs and not taken and all(states.get(name, DONE) == DONE for name in needs)


def _begin(plan: Plan, row: Progress, program: Sequence[str]) -> Running | None:
    """Start a step; None if it turns out to be done, or cannot be started."""
    step = row.step
    now = state_of(plan, step)  # what it needs may have been made anew since
    row.state, row.seconds, row.processor, row.why = now.state, now.seconds, now.processor, now.why
    if row.state == DONE:
        return None
    try:
        _make_room(plan, row)
    except ValueError as error:
        row.state, row.why = FAILED, str(error)
        return None
    with plan.said(step).open("wb") as said:
        process = subprocess.Popen(
            [*program, *plan.command(step)],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    row.state = RUNNING
    return Running(process, time.monotonic() - row.seconds)


def _make_room(plan: Plan, row: Progress) -> None:
    """Note what is asked for; results made from something else are cleared away, files from elsewhere refused."""
    folder = plan.folder / row.step.name
    if folder.is_dir():
        with locked(folder, 2 * PATIENCE):  # its process may outlive a killed call for a moment
            pass
    if plan.noted(row.step) is None and folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
        raise ValueError(f"{folder} holds files that come from elsewhere: choose another folder for --out")
    if row.state == CHANGED:
        shutil.rmtree(folder, ignore_errors=True)
    _write_note(plan, row, plan.asked(row.step))


def _write_note(plan: Plan, row: Progress, asked: Mapping[str, Any]) -> None:
    took = {"seconds": round(row.seconds, 1), "processor_seconds": round(row.processor, 1)}
    write_whole(plan.note(row.step), json.dumps({**asked, **took}, indent=1) + "\n")


def _ended(plan: Plan, row: Progress, running: Running, patience: float = 0.0) -> bool:
    """Whether a step's process has ended, and how; with patience it is made to."""
    before, process = _children_seconds(), running.process
    if patience:
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    row.seconds = time.monotonic() - running.since
    if (code := process.poll()) is None:
        return False
    row.processor += _children_seconds() - before
    if process.stdin is not None:
        process.stdin.close()
    _write_note(plan, row, plan.noted(row.step) or plan.asked(row.step))
    row.state, row.why = DONE, ""
    if code != 0 or not whole(plan.folder / row.step.name):
        row.state, row.why = FAILED, _last_sentence(plan, row.step, code)
    return True


def _children_seconds() -> float:
    """Computing time of all processes that were started here and have ended."""
    used = os.times()
    return used.children_user + used.children_system


def _last_sentence(plan: Plan, step: Step, code: int) -> str:
    if code < 0:
        return f"ended by signal {-code}"
    lines = plan.said(step).read_text(errors="replace").strip().splitlines()
    if code == 0 or not lines:
        return f"ended with code {code} but left no whole results"
    return lines[-1].removeprefix("ropescope: ")
