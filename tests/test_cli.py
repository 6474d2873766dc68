"""The command line as a user meets it."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import run

from ropescope import cli
from ropescope.models.bundled import bundled_folder

COMMANDS = [command.callback.__name__ for command in cli.app.registered_commands]


@pytest.mark.parametrize("arguments", [["--help"], *([command, "--help"] for command in COMMANDS)])
@pytest.mark.slow
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys; from ropescope.cli import main\n"
        "try:\n    sys.argv = ['ropescope', *sys.argv[1:]]; main()\n"
        "finally:\n    print('MODULES', *sorted({name.split('.')[0] for name in sys.modules}))"
    )
    out = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True).stdout
    help_text, modules = out.split("MODULES")
    heavy = {"torch", "transformers", "numpy", "altair", "xarray", "pandas", "ray"}
    assert not heavy & set(modules.split())
    assert "Usage: ropescope" in help_text
    if arguments[0] != "--help":
        assert "Example:" in help_text


def test_import_is_light():
    code = "import sys, ropescope; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "transformers", "numpy", "typer", "rich", "altair"} & set(out.split())


def test_every_public_name_is_there():
    import ropescope  # noqa: PLC0415

    for name in ropescope.__all__:
        assert getattr(ropescope, name) is not None
    assert set(ropescope.__all__) == set(dir(ropescope))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ropescope.nothing  # noqa: B018


def check_summary(folder: Path, command: str) -> dict:
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["command"] == command
    assert summary["versions"]["torch"]
    assert "seed" in str(summary["config"]) or command == "dynamics"  # which draws nothing
    for name, expected in summary["sha256"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == expected
    return summary


@pytest.mark.slow
def test_demo(tmp_path):
    done = run("demo", "--out", str(tmp_path / "demo"), "--inputs", "32")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    results = check_summary(tmp_path / "demo", "demo")["results"]
    assert results["positional"]["positional"] == pytest.approx(1)
    assert results["positional"]["position_share"] == pytest.approx(1)
    assert results["positional"]["symbolic"] < 0.1
    assert results["symbolic"]["symbolic"] == pytest.approx(1)
    assert results["symbolic"]["symbol_share"] == pytest.approx(1)
    assert results["symbolic"]["positional"] < 0.1
    assert results["binding"]["binding_share"] > 0.8
    assert all(results[f"untrained L{n}"]["entropy"] > 0.99 for n in range(12))
    assert results["letter L5"]["symbolic"] > 0.95
    page = (tmp_path / "demo" / "index.html").read_text()
    assert "<script src=" not in page, "the page must not need the network"
    assert (tmp_path / "demo" / "index.png").read_bytes().startswith(b"\x89PNG")
    again = run("demo", "--out", str(tmp_path / "again"), "--inputs", "32")
    assert again.returncode == 0
    assert (tmp_path / "again" / "heads.json").read_bytes() == (tmp_path / "demo" / "heads.json").read_bytes()


@pytest.mark.slow
def test_bench(tmp_path):
    lengths = ["--tokens", "5,9", "--rerun-up-to", "5", "--batch", "4", "--rounds", "1"]
    done = run("bench", "--out", str(tmp_path), *lengths, "--samples", "2000", "--steps", "3")
    assert done.returncode == 0, done.stderr
    everything = check_summary(tmp_path, "bench")["results"]
    assert everything["sampling"]["number_loop_over_vectorised"] > 0
    assert everything["training"]["transformers_over_ours"] > 0
    assert 0 < everything["training"]["watching_share"] < 1
    assert "plain Python loop" in done.stdout
    results = everything["scores"]
    assert list(results) == ["5", "9"]
    assert results["5"]["swaps"] == 6
    assert results["5"]["faster_than_rerunning_blocks"] > 0
    assert results["9"]["faster_than_rerunning_blocks"] is None
    assert "scored pass" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["demo", "--inputs", "1"], "inputs must be at least 8"),
        (["demo", "--seed", "-1"], "seed must be at least 0, not -1"),
        (["demo", "--tau", "0"], "tau must be a positive number"),
        (["demo", "--tau", "warm"], "--tau"),
        (["demo", "--out", "/dev/null/x"], "cannot be written to"),
        (["bench", "--tokens", "17,many"], "each of tokens must be a whole number, not 'many'"),
        (["bench", "--tokens", "2"], "tokens must be lengths of at least 3"),
        (["bench", "scores", "--batch", "0"], "batch and rounds must be at least 1"),
        (["bench", "speed"], "what must be one of scores, training, all, profile, watch, ray"),
        (["bench", "--samples", "1"], "samples must be at least 200"),
        (["bench", "--out", "/dev/null/x"], "cannot be written to"),
        (["train", "word"], "task must be one of number, letter"),
        (["train", "number", "--preset", "huge"], "preset must be one of paper, quick"),
        (["train", "number", "--set", "steps"], "the change 'steps' must be NAME=VALUE"),
        (["train", "number", "--set", "speed=3"], "'speed' is not an entry of the recipe"),
        (["train", "number", "--set", "seed=3"], "'seed' is not an entry of the recipe: task_sizes"),
        (["train", "number", "--set", "layers=0"], "layers must be at least 1"),
        (["train", "number", "--seeds", "0,x"], "each of seeds must be a whole number, not 'x'"),
        (["train", "number", "--seeds", "0,-1"], "seed must be at least 0, not -1"),
        (["train", "number", "--seeds", "0,1", "--seed", "2"], "give seed or seeds, not both"),
        (["train", "number", "--engine", "rya"], "engine must be one of here, ray, not 'rya'"),
        (["canonical", "--address", "auto"], "address is that of a Ray cluster: set engine to ray"),
        (["profile", "/dev/null", "--engine", "ray", "--address", "head"], "address must be host:port"),
        (["bench", "ray"], "benchmarks profile, watch, ray, memory, precision need a model"),
        (
            ["bench", "ray", "--model", "x", "--nodes", "1"],
            "count and nodes must be at least 2, as one node is lost half-way, not 24 and 1",
        ),
        (["train", "number", "--set", 'task_sizes={"hops": 99}'], "hops is 99 but stops only 8"),
        (["evaluate", "word"], "task must be one of number, letter"),
        (["evaluate", "number", "--model", "/dev/null"], "holds no model"),
        (["dynamics", "/dev/null"], "is no folder: give a run folder, a folder of checkpoints, or a hub id with revisions"),
        (["dynamics", "results/number-0", "--layers", "one"], "each of layers must be a whole number, not 'one'"),
        (["mechanisms", "word"], "task must be one of number, letter"),
        (["mechanisms", "--model", "/dev/null"], "model needs the task that it was trained on"),
        (["mechanisms", "number", "--model", "/dev/null"], "holds no model"),
        (["mechanisms", "number", "--model", str(bundled_folder("letter"))], "give a model trained on this task"),
        (["mechanisms", "number", "--inputs", "3"], "inputs must be from 40 to 45600 and changed from 4 to 45600"),
        (["generalise", "number", "--lengths", "33"], "ropescope: lengths must begin with 17"),
        (["theory", "--longest", "50"], "longest at least 100"),
        (["theory", "--inputs", "0"], "inputs and draws must be at least 1"),
        (["canonical", "--preset", "huge"], "preset must be one of full, quick, not 'huge'"),
        (["reproduce", "--preset", "huge"], "preset must be one of quick, paper, not 'huge'"),
        (["reproduce", "--only", "theory,nothing"], "only: nothing is no step; there are theory, number-0"),
        (["reproduce", "--jobs", "0"], "jobs must be at least 1, not 0"),
        (["nothing"], "nothing"),
    ],
)
def test_bad_input_is_one_sentence_and_an_exit_code(arguments, says, tmp_path, monkeypatch, capsys):
    if "--out" not in arguments and arguments[0] in COMMANDS:
        arguments = [*arguments, "--out", str(tmp_path)]
    # Here and not in a process of its own, most of whose time would go into loading torch; the next test has some of them.
    monkeypatch.setattr(sys, "argv", ["ropescope", *arguments])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["demo", "--inputs", "1"], "ropescope: inputs must be at least 8"),
        (["nothing"], "No such command 'nothing'"),
        # Wrong types: in this process the checks of the tests would speak first.
        (["train", "number", "--set", "samples=[1]"], "samples must be 3 numbers"),
        (["train", "number", "--set", "planes=5"], "planes must be ids of RoPE planes"),
        (["train", "number", "--set", 'planes=["a"]'], "each of planes must be a whole number"),
    ],
)
def test_bad_input_shows_no_traceback(arguments, says, tmp_path):
    done = run(*arguments, *(["--out", str(tmp_path)] if arguments[0] in COMMANDS else []))
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("task", "other", "sizes"), [("number", "letter", (128, 136)), ("letter", "number", (136, 128))])
@pytest.mark.parametrize("command", ["evaluate", "mechanisms", "generalise"])
def test_a_model_of_another_task_is_refused(command, task, other, sizes, tmp_path):
    with pytest.raises(ValueError, match=f"vocabulary of {sizes[0]} tokens and the {task} task one of {sizes[1]}"):
        cli.app([command, task, "--model", str(bundled_folder(other)), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("dynamics", "report", "reproduce")])  # no seed
@pytest.mark.parametrize(("seed", "says"), [(-1, "at least 0, not -1"), (2**63, "below 2\\*\\*63, not 9223372036854775808")])
def test_bad_seeds_are_refused_by_every_command(command, seed, says, tmp_path):
    task = {"llm": ["--model", "local/nowhere"], "compare": ["one", "two"]}.get(command, [])
    one = ("train", "evaluate", "profile", "control", "windows", "sharpen", "choice", "check-rope", "rope-faults")
    task = ["number"] if command in one else task
    with pytest.raises(ValueError, match=f"^seed must be {says}$"):
        cli.app([command, *task, "--seed", str(seed), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_train_and_dynamics(tmp_path):
    sizes = 'task_sizes={"targets": 3, "stops": 3, "hops": 2, "letters": 6, "integers": 6}'
    changes = [sizes, "samples=[500, 60, 100]", "layers=2", "width=16", "steps=20", "warm_up=2", "watch_every=5", "probe=20"]
    arguments = ["train", "number", "--out", str(tmp_path / "run"), *(f"--set={change}" for change in changes)]
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "test accuracy" in done.stdout
    check_summary(tmp_path / "run", "train")
    assert run(*arguments).returncode == 2  # already there
    shown = run("dynamics", str(tmp_path / "run"), "--out", str(tmp_path / "figures"))
    assert shown.returncode == 0, shown.stderr
    results = check_summary(tmp_path / "figures", "dynamics")["results"]
    assert results["run"]["last_step"] == 20
    history = hashlib.sha256((tmp_path / "run" / "history.safetensors").read_bytes()).hexdigest()
    assert json.loads((tmp_path / "figures" / "summary.json").read_text())["config"]["runs"] == {"run": history}
    assert (tmp_path / "figures" / "run-learning.png").exists()


def test_the_installed_command():
    script = Path(sys.executable).with_name("ropescope")
    assert subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout == "0.1.0\n"


def test_interrupted_writing_leaves_the_old_file(tmp_path):
    from ropescope import runs  # noqa: PLC0415

    target = tmp_path / "result.json"
    runs.write_whole(target, "old")
    with pytest.raises(TypeError):
        runs.write_whole(target, 5)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.slow
def test_theory(tmp_path):
    done = run("theory", "--out", str(tmp_path), "--inputs", "200", "--longest", "150", "--draws", "20")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    results = check_summary(tmp_path, "theory")["results"]
    assert results["every_input"]["wrong"] == 0
    assert all(row["wrong"] == 0 for row in results["random_inputs"].values())
    assert len(results["bounds"]["index_printed_violated_up_to_100"]) == 25
    assert results["bounds"]["index_corrected_violated"] == 0
    assert results["scores"]["index"]["positional"] == pytest.approx(1)
    assert results["scores"]["retrieval, angle 0"]["symbolic"] == pytest.approx(1)
    assert results["limits"]["symbolic_on_index_largest_distance"] < 1e-12
    assert "violated at 25 lengths" in done.stdout
    for name in ("gaps", "planes"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<script src=" not in (tmp_path / f"{name}.html").read_text()
