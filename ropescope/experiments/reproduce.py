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
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..models.weights import WEIGHTS, fetch
from ..runs import new_folder, sha256, write_whole

PRESETS = ("quick", "paper")
MODEL = "smollm2-135m"
OTHERS = ("stories15M", "gemma3-270m", "qwen2.5-coder-0.5b", "tinyllama-1.1b")
"""Language models that are profiled beside the first with preset paper."""
TICK = 0.2
"""Seconds between two looks at the processes."""


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


def steps(preset: str, model: str = MODEL) -> tuple[Step, ...]:
    """The list for a preset and the name of a language model.

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
    add("theory", "built heads, bounds, exact gaps", (40, "theory --inputs 20000 --draws 1000"), (120, "theory"))
    for task, seed in runs:
        how = f"train {task} --seed {seed} --resume"
        add(f"{task}-{seed}", f"a GPT-J learns the {task} task", (100, f"{how} --preset quick"), (2800, how))
    folders = " ".join(f"@{task}-{seed}" for task, seed in runs)
    add("dynamics", "when heads turn pure and hops are learned", (10, f"dynamics {folders}"), (30, f"dynamics {folders}"))
    for task in ("number", "letter"):
        add(f"evaluate-{task}", "test accuracy of the bundled model", (40, f"evaluate {task}"), (40, f"evaluate {task}"))
    add("mechanisms", "what heads do along paths", (60, "mechanisms --inputs 4000 --changed 400"), (600, "mechanisms"))
    for task in ("number", "letter"):
        what = f"generalise {task}"
        add(
            what.replace(" ", "-"),
            "accuracy on longer inputs",
            (60, f"{what} --lengths {fewer} --samples 128 --seeds 2"),
            (900, what),
        )
    add("canonical", "one-head models at every angle", (120, "canonical --preset quick"), (900, "canonical"))
    what = f"profile @{model}"
    add(f"profile-{model}", "every head of a language model", (60, f"{what} --count 8 --pairs 12"), (600, what))
    add(f"profile-{model}-unequal", "the same, sentences of unequal length", None, (600, f"{what} --lengths unequal"))
    for other in OTHERS:
        if other != model:
            add(f"profile-{other}", "every head of a language model", None, (900, f"profile @{other}"))
    for task in ("number", "letter"):
        what = f"control {task}"
        add(
            what.replace(" ", "-"),
            "planes and heads changed",
            (60, f"{what} --inputs 400 --draws 3"),
            (300, f"{what} --inputs 1000"),
        )
    what = f"control @{model}"
    few, many = "--count 8 --pairs 12 --draws 2", "--count 24 --draws 3"
    add(f"control-{model}", "the same in a language model", (120, f"{what} {few}"), (1800, f"{what} {many}"))
    return tuple(found)


# What is at hand


@dataclass(frozen=True)
class Model:
    """A language model: where it is and what identifies its weights, or why it is not at hand."""

    where: str = ""
    made_of: Mapping[str, str] | None = None
    missing: str = ""


def models_at_hand(preset: str, model: str | None = None, fetched: bool = False) -> dict[str, Model]:
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
        elif fetched and name in WEIGHTS:
            try:
                found.setdefault(name, _model(fetch(name, folder)))
            except ValueError as error:
                found.setdefault(name, Model(missing=str(error)))
        else:
            found.setdefault(name, Model(missing=f"no model at hand, run `ropescope weights {name}`"))
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
        except (OSError, ValueError):
            return None
        return found


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


def said(row: Progress) -> dict[str, Any]:
    """A step as it goes into a summary."""
    found = {
        "does": row.step.does,
        "command": " ".join(row.step.arguments),
        "state": row.state,
        "seconds": round(row.seconds, 1),
    }
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
    for name in step.needs:
        if (model := plan.models.get(name)) is not None and model.missing:
            return Progress(step, LEFT_OUT, why=model.missing)
    noted = plan.noted(step)
    if noted is None:
        return Progress(step, TO_DO)
    asked, seconds = plan.asked(step), noted.get("seconds", 0.0)
    if noted.get("arguments") != asked["arguments"]:
        raise ValueError(f"{plan.folder / step.name} was made with other settings: choose another folder for --out")
    if noted.get("made_from") != asked["made_from"]:
        return Progress(step, CHANGED, why="what it is made from has changed: to be made anew")
    return Progress(step, DONE if whole(plan.folder / step.name) else BEGUN, seconds)


def whole(folder: Path) -> bool:
    """Whether a run folder has a summary, and all files in it are those that the summary names."""
    try:
        summary = json.loads((folder / "summary.json").read_text())
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


@contextmanager
def alone(folder: Path, patience: float = 10.0) -> Iterator[int]:
    """Hold a folder against a second call of the same kind; yields the file that holds it.

    Processes of steps hold it too, so those of a call that was killed are waited for: they leave as soon as they notice.
    """
    import fcntl  # noqa: PLC0415  # where there is none, everything else still works

    lock = os.open(new_folder(folder / "steps") / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ValueError(
                        f"{folder} is being worked on by another call: wait for it, or choose another folder"
                    ) from None
                time.sleep(TICK)
        yield lock
    finally:
        os.close(lock)


def leave_with_parent() -> None:
    """End this process when the one that started it ends, however that ends: its standard input is then closed."""

    def wait() -> None:
        with suppress(OSError):
            while os.read(0, 1024):
                pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def run(plan: Plan, program: Sequence[str], jobs: int, skip: Sequence[str] = ()) -> Generator[list[Progress], None, None]:
    """Do what is not done, yielding the state of all steps over and over until nothing more can be done.

    program  the beginning of every command line: it must call `leave_with_parent`
    skip     names of steps to leave as they are
    """
    with alone(plan.folder) as lock:
        progress = look(plan, skip)
        running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        try:
            while True:
                for row in progress:
                    if row.state == RUNNING:
                        _look_after(plan, row, running)
                for row in progress:
                    if row.state in WAITING:
                        _start(plan, row, progress, running, jobs, program, lock)
                yield progress
                if not running:
                    return
                time.sleep(TICK)
        finally:
            _stop(plan, progress, running)


def _start(
    plan: Plan,
    row: Progress,
    progress: Sequence[Progress],
    running: dict[str, tuple[subprocess.Popen[bytes], float]],
    jobs: int,
    program: Sequence[str],
    lock: int,
) -> None:
    """Start a step if it is time for it; leave it out if that time will never come."""
    step, states = row.step, {other.step.name: other.state for other in progress}
    if lost := [name for name in step.needs if states.get(name) in (FAILED, LEFT_OUT)]:
        row.state, row.why = LEFT_OUT, f"needs {lost[0]}, which is {states[lost[0]]}"
        return
    if any(states.get(name, DONE) != DONE for name in step.needs):
        return
    # Language models fill the memory: one at a time.
    reading = [name for other in progress if other.state == RUNNING for name in other.step.needs if name in plan.models]
    if len(running) >= jobs or (reading and any(name in plan.models for name in step.needs)):
        return
    fresh = state_of(plan, step)  # what it needs may have been made anew since
    row.state, row.seconds, row.why = fresh.state, fresh.seconds, fresh.why
    if row.state == DONE:
        return
    try:
        _make_room(plan, row)
    except ValueError as error:
        row.state, row.why = FAILED, str(error)
        return
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (plan.folder / "steps" / f"{step.name}.txt").open("wb") as said:
        process = subprocess.Popen(
            [*program, *plan.command(step)],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=environment,
            pass_fds=(lock,),
        )
    running[step.name] = process, time.monotonic() - row.seconds
    row.state = RUNNING


def _make_room(plan: Plan, row: Progress) -> None:
    """Note what is asked for; results made from something else are cleared away, files from elsewhere refused."""
    step = row.step
    folder = plan.folder / step.name
    if plan.noted(step) is None and folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
        raise ValueError(f"{folder} holds files that come from elsewhere: choose another folder for --out")
    if row.state == CHANGED:
        shutil.rmtree(folder, ignore_errors=True)
    write_whole(plan.note(step), json.dumps({**plan.asked(step), "seconds": row.seconds}, indent=1) + "\n")


def _look_after(plan: Plan, row: Progress, running: dict[str, tuple[subprocess.Popen[bytes], float]]) -> None:
    """See whether a running step has ended, and how."""
    process, since = running[row.step.name]
    row.seconds = time.monotonic() - since
    if (code := process.poll()) is None:
        return
    del running[row.step.name]
    assert process.stdin is not None
    process.stdin.close()
    _note_seconds(plan, row)
    if code == 0 and whole(plan.folder / row.step.name):
        row.state, row.why = DONE, ""
    else:
        row.state, row.why = FAILED, _last_sentence(plan, row.step, code)


def _last_sentence(plan: Plan, step: Step, code: int) -> str:
    if code < 0:
        return f"ended by signal {-code}"
    said = (plan.folder / "steps" / f"{step.name}.txt").read_text(errors="replace").strip().splitlines()
    return said[-1].removeprefix("ropescope: ") if said else f"ended with code {code} and said nothing"


def _note_seconds(plan: Plan, row: Progress) -> None:
    noted = plan.noted(row.step) or plan.asked(row.step)
    write_whole(plan.note(row.step), json.dumps({**noted, "seconds": round(row.seconds, 1)}, indent=1) + "\n")


def _stop(
    plan: Plan, progress: Sequence[Progress], running: dict[str, tuple[subprocess.Popen[bytes], float]], patience: float = 5.0
) -> None:
    """End what still runs."""
    for process, _ in running.values():
        process.terminate()
    for row in progress:
        if row.step.name in running:
            process, since = running[row.step.name]
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            row.state, row.seconds = BEGUN, time.monotonic() - since
            _note_seconds(plan, row)
