"""Reproduction goes step by step: it can be killed at any moment and gone on with, and does nothing twice."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ropescope.studies import study_named
from ropescope.studies.reproduce import state
from ropescope.studies.reproduce.state import (
    BEGUN,
    CHANGED,
    DONE,
    FAILED,
    LEFT_OUT,
    RUNNING,
    TO_DO,
    Model,
    Plan,
    Progress,
    look,
    models_at_hand,
    not_asked_for,
    seconds_left,
)
from ropescope.studies.reproduce.steps import CHAT, MODEL, OTHERS, Of, Step, steps
from ropescope.studies.runner import make_settings

TINY = (
    'task_sizes={"targets":3,"stops":3,"hops":2}',
    "samples=[300,60,60]",
    "layers=2",
    "width=16",
    "steps=60",
    "warm_up=2",
    "watch_every=10",
    "checkpoint_every=10",
    "probe=20",
    "batch=8",
)


def training(task: str) -> Step:
    settings = {"task": task, "resume": True, "changes": TINY}
    return Step(f"{task}-0", "a small model learns", "train", 4, settings)


NUMBER, LETTER = training("number"), training("letter")
DYNAMICS = Step("dynamics", "what they learned when", "dynamics", 6, {"sources": (Of("number-0"), Of("letter-0"))})
SHORT = {"task": "number", "lengths": (17, 20), "samples": 4, "seeds": 1}
LONGER = Step("generalise-number", "longer inputs", "generalise", 5, SHORT)
BROKEN = Step("broken", "cannot be done", "evaluate", 3, {"task": "word"})
AFTER = Step("after", "needs what cannot be done", "dynamics", 3, {"sources": (Of("broken"),)})
SMALL = (NUMBER, LETTER, DYNAMICS, LONGER)
SOAKED = (NUMBER, Step("dynamics", "what it learned when", "dynamics", 6, {"sources": (Of("number-0"),)}), LONGER)
"""Steps of the soak test."""

COMMAND = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import test_reproduce
from ropescope.studies.reproduce import run
named = [getattr(test_reproduce, name) for name in sys.argv.pop(1).split(",")]
chosen = tuple(step for each in named for step in (each if isinstance(each, tuple) else (each,)))
run.steps = lambda preset, model, chat: chosen
from ropescope.cli import main
main()
"""


def start(folder: Path, chosen: tuple[Step, ...], *options: str, **more: object) -> subprocess.Popen:
    names = ",".join(name for step in chosen for name, value in globals().items() if value is step)
    arguments = [str(Path(__file__).parent), names, "reproduce", "--out", str(folder), *options]
    return subprocess.Popen([sys.executable, "-c", COMMAND, *arguments], text=True, **more)


def run(folder: Path, chosen: tuple[Step, ...], *options: str) -> tuple[int, str, str]:
    process = start(folder, chosen, *options, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=300)
    assert "Traceback" not in err, err
    return process.returncode, out, err


def made(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file of the steps, with the moment it was written."""
    paths = [path for step in SMALL for path in sorted((folder / step.name).rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("undisturbed")
    code, out, err = run(folder, SMALL, "--jobs", "2")
    assert (code, err) == (0, "")
    return folder, out


@pytest.mark.slow
def test_steps_are_done_in_order_and_end_in_a_page(undisturbed):
    folder, out = undisturbed
    events = [line.split(",")[0].split(" (")[0] for line in out.splitlines() if line.split(":")[0] in {s.name for s in SMALL}]
    began = [line.removesuffix(": running") for line in events if line.endswith(": running")]
    assert began == ["number-0", "letter-0", *began[2:]]
    assert set(began) == {step.name for step in SMALL}
    assert max(events.index("number-0: done"), events.index("letter-0: done")) < events.index("dynamics: running")
    assert f"look at {folder / 'index.html'}" in out
    assert (folder / "index.html").stat().st_size > 0
    for step in SMALL:
        assert state.whole(folder / step.name)
        assert json.loads((folder / step.name / "summary.json").read_text())["command"] == step.study
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["config"] == {"preset": "quick", "models": summary["config"]["models"]}
    told = summary["results"]["steps"]
    assert list(told) == [step.name for step in SMALL]
    assert all(row["state"] == DONE and row["seconds"] > 0 for row in told.values())
    assert "test accuracy" in (folder / "steps" / "number-0.txt").read_text()


@pytest.mark.slow
def test_what_is_done_is_not_done_again(undisturbed):
    folder, _ = undisturbed
    before = made(folder)
    code, out, _ = run(folder, SMALL)
    assert code == 0
    assert "running" not in out
    assert made(folder) == before


@pytest.mark.slow
def test_the_list_shows_states_and_touches_nothing(undisturbed, tmp_path):
    code, out, _ = run(tmp_path / "new", SMALL, "--list")
    assert code == 0
    assert out.count("to do") == 4
    assert "0 of 4 steps done, about" in out
    assert not (tmp_path / "new").exists()
    code, out, _ = run(undisturbed[0], SMALL, "--list")
    assert code == 0
    assert "4 of 4 steps done" in out
    assert "left" not in out


def alive(folder: Path) -> list[int]:
    """Processes with the folder on their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            text = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in text and (path / "stat").read_text().split()[2] != "Z":
            found.append(int(path.name))
    return found


@pytest.mark.slow
def test_killed_at_random_moments_it_goes_on_to_the_same_results(undisturbed, tmp_path):
    rng = random.Random(0)
    folder, kills = tmp_path / "killed", 0
    while kills < 3:
        process = start(folder, SMALL, "--jobs", "2", stdout=subprocess.DEVNULL)
        before = len(list(folder.rglob("*")))
        while process.poll() is None and len(list(folder.rglob("*"))) <= before + rng.randrange(6):
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 1.5))
        if process.poll() is not None:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
        until = time.monotonic() + 10
        while alive(folder):
            assert time.monotonic() < until, "a step outlived the call that started it"
            time.sleep(0.05)
    assert kills >= 3
    code, _, err = run(folder, SMALL, "--jobs", "2")
    assert (code, err) == (0, "")
    assert [row.state for row in look(Plan(folder, SMALL, {}))] == [DONE] * 4
    for name in ("number-0/model/model.safetensors", "letter-0/history.safetensors", "generalise-number/rows.json"):
        assert (folder / name).read_bytes() == (undisturbed[0] / name).read_bytes(), name
    results = [json.loads((at / "dynamics" / "summary.json").read_text())["results"] for at in (folder, undisturbed[0])]
    assert results[0] == results[1]


@pytest.mark.slow
def test_interrupted_by_hand_it_says_how_to_go_on(tmp_path):
    process = start(tmp_path, SMALL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not (tmp_path / "number-0" / "config.json").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "ropescope: interrupted; files already written are whole: give the same command again to resume\n"
    assert not alive(tmp_path)
    row = look(Plan(tmp_path, SMALL, {}))[0]
    assert row.state == BEGUN
    assert row.seconds > 0


@pytest.mark.slow
def test_a_failed_step_stops_only_those_that_need_it(tmp_path):
    code, out, err = run(tmp_path, (BROKEN, AFTER, NUMBER), "--jobs", "1")
    assert code == 1
    assert err.startswith("ropescope: broken failed: task must be one of number, letter, redundant, not 'word'\n")
    assert err.splitlines()[-1] == f"ropescope: broken failed: what was printed is in {tmp_path / 'steps'}"
    assert "after: left out: needs broken, which is failed" in out
    assert state.whole(tmp_path / "number-0")
    told = json.loads((tmp_path / "summary.json").read_text())["results"]["steps"]
    assert {name: row["state"] for name, row in told.items()} == {"broken": FAILED, "after": LEFT_OUT, "number-0": DONE}
    code, out, _ = run(tmp_path, (BROKEN, AFTER, NUMBER), "--only", "number-0")
    assert code == 0
    assert out.count("left out: not asked for") >= 1


# Without running anything


@pytest.fixture
def plan(tmp_path) -> Plan:
    return Plan(tmp_path, SMALL, {})


def pretend(plan: Plan, step: Step, text: str = "") -> None:
    """What a finished step leaves."""
    from ropescope.runs import write_summary  # noqa: PLC0415

    plan.note(step).parent.mkdir(exist_ok=True)
    (plan.folder / step.name).mkdir(exist_ok=True)
    (plan.folder / step.name / "rows.json").write_text(text)
    write_summary(plan.folder / step.name, step.study, {}, {"text": text}, ["rows.json"])
    plan.note(step).write_text(json.dumps({**plan.asked(step), "seconds": 8.0}))


def states(plan: Plan, skip: tuple[str, ...] = ()) -> list[str]:
    return [row.state for row in look(plan, skip)]


@pytest.mark.slow
def test_a_damaged_file_is_noticed(plan):
    for step in SMALL:
        pretend(plan, step)
    assert states(plan) == [DONE] * 4
    (plan.folder / "generalise-number" / "rows.json").write_text("changed")
    assert states(plan) == [DONE, DONE, DONE, BEGUN]
    (plan.folder / "number-0" / "rows.json").unlink()
    assert states(plan) == [BEGUN, DONE, CHANGED, BEGUN]


@pytest.mark.slow
def test_what_is_made_from_something_new_is_made_anew(plan):
    for step in SMALL:
        pretend(plan, step)
    pretend(plan, NUMBER, "trained again")
    assert states(plan) == [DONE, DONE, CHANGED, DONE]
    row = look(plan)[2]
    state.make_room(plan, row)
    assert not (plan.folder / "dynamics").exists()
    assert states(plan) == [DONE, DONE, BEGUN, DONE]


def test_other_settings_and_strange_files_are_refused(plan):
    pretend(plan, LONGER)
    other = Step(LONGER.name, LONGER.does, LONGER.study, 5, {**SHORT, "seed": 2})
    with pytest.raises(ValueError, match="generalise-number was made with other settings: choose another folder for out"):
        look(Plan(plan.folder, (other,), {}))
    (plan.folder / "number-0").mkdir()
    (plan.folder / "number-0" / "diary.txt").write_text("mine")
    row = look(plan)[0]
    assert row.state == TO_DO
    with pytest.raises(ValueError, match="number-0 holds files that come from elsewhere"):
        state.make_room(plan, row)
    assert (plan.folder / "number-0" / "diary.txt").read_text() == "mine"


@pytest.mark.slow
def test_two_calls_do_not_share_a_folder(tmp_path):
    from ropescope.runs import locked  # noqa: PLC0415

    with locked(tmp_path):
        process = start(tmp_path, SMALL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err == f"ropescope: another process writes to {tmp_path}: wait for it or choose another folder\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_steps_of_a_model_that_is_not_at_hand_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("ROPESCOPE_WEIGHTS", str(tmp_path / "weights"))
    models = models_at_hand("quick")
    plan = Plan(tmp_path / "out", steps("quick", next(iter(models))), models)
    left_out = {row.step.name: row.why for row in look(plan) if row.state == LEFT_OUT}
    why = f"there is no model in {tmp_path / 'weights' / 'smollm2-135m'}"
    assert left_out == dict.fromkeys(("profile-smollm2-135m", "control-smollm2-135m", "bench-profile"), why)
    assert all(row.state == TO_DO for row in look(plan) if row.step.name not in left_out)
    with pytest.raises(ValueError, match="model nowhere is neither a folder nor a GGUF file nor a hub id"):
        models_at_hand("quick", "nowhere")
    monkeypatch.setattr(state, "hub_commit", lambda name: "a" * 40)
    assert models_at_hand("quick", "someone/some-model") == {
        "some-model": Model("someone/some-model", {"id": "someone/some-model", "revision": "a" * 40})
    }


def test_a_model_is_known_by_its_weights(tmp_path, monkeypatch):
    folder = tmp_path / "weights" / "smollm2-135m"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    monkeypatch.setenv("ROPESCOPE_WEIGHTS", str(tmp_path / "weights"))
    step = Step("profile", "reads a model", "profile", 1, {"model": Of("smollm2-135m")})
    plan = Plan(tmp_path / "out", (step,), models_at_hand("quick"))
    assert plan.settings(step) == {"model": str(folder)}
    plan.folder.mkdir()
    pretend(plan, step)
    assert states(plan) == [DONE]
    elsewhere = tmp_path / "elsewhere" / folder.name
    elsewhere.parent.mkdir()
    folder.rename(elsewhere)
    assert states(Plan(plan.folder, (step,), models_at_hand("quick", str(elsewhere)))) == [DONE]
    (elsewhere / "model.safetensors").write_bytes(b"others")
    assert states(Plan(plan.folder, (step,), models_at_hand("quick", str(elsewhere)))) == [CHANGED]
    assert states(Plan(plan.folder, (step,), models_at_hand("quick"))) == [
        DONE
    ]  # the model is gone, what it was read for is not


def test_only_and_skip():
    assert not_asked_for(SMALL, (), ()) == []
    assert not_asked_for(SMALL, ("dynamics", "letter-0"), ()) == ["number-0", "generalise-number"]
    assert not_asked_for(SMALL, (), ("dynamics",)) == ["dynamics"]
    with pytest.raises(ValueError, match="skip: nothing is no step; there are number-0, letter-0"):
        not_asked_for(SMALL, (), ("nothing",))


def test_the_estimate_follows_the_pace():
    def rows(*states: str, seconds: float = 0.0) -> list[Progress]:
        return [Progress(step, state, seconds) for step, state in zip(SMALL, states, strict=True)]

    assert seconds_left(rows(TO_DO, TO_DO, TO_DO, TO_DO), 1) == 19
    assert seconds_left(rows(TO_DO, TO_DO, TO_DO, TO_DO), 2) == 9.5
    assert seconds_left(rows(LEFT_OUT, TO_DO, FAILED, LEFT_OUT), 2) == 4
    assert seconds_left(rows(DONE, TO_DO, TO_DO, TO_DO, seconds=8), 1) == 30  # twice as slow as said
    assert seconds_left(rows(TO_DO, RUNNING, TO_DO, TO_DO, seconds=1), 1) == 18
    assert seconds_left(rows(DONE, DONE, DONE, DONE), 1) == 0


@pytest.mark.parametrize("preset", ["quick", "paper"])
def test_every_step_is_a_study_with_settings_it_takes(preset):
    chosen = steps(preset, chat=True)
    assert len({step.name for step in chosen}) == len(chosen)
    plan = Plan(Path("out"), chosen, {name: Model(f"weights/{name}") for name in (MODEL, *OTHERS, CHAT)})
    before: set[str] = set()
    for step in chosen:
        assert make_settings(study_named(step.study), plan.settings(step), step.preset)
        assert all(need in plan.models or need in before for need in step.needs), step.name
        before.add(step.name)


RECORDED = {"control-smollm2-135m": "control-smollm2"}


def test_preset_paper_asks_for_what_is_recorded():
    """Each step of preset paper that is recorded has the settings of its summary."""
    results = Path(__file__).parents[1] / "results"
    for step in steps("paper"):
        folder = results / RECORDED.get(step.name, step.name)
        if step.study == "evaluate":
            assert not folder.exists()  # of bundled models, whose runs are recorded with their accuracy
            continue
        config = json.loads((folder / "summary.json").read_text())["config"]
        for name, entry in (("inputs", "inputs"), ("draws", "draws"), ("seed", "seed"), ("count", "prompts")):
            if name in step.settings:
                assert config[entry] == step.settings[name], (step.name, name)
        if step.study == "profile":
            assert config["prompts"]["lengths"] == step.settings.get("lengths", "equal")
            assert (config["prompts"]["count"], config["prompts"]["pairs"]) == (50, 24)
