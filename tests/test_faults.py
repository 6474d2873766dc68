"""What can go wrong outside of the program: a second writer, damage, a full disk, signals, clocks, weights that are no numbers.

Errors are the system's own wherever it can be made to give them. See docs/faults.md; kills are in soak.py, damage at random in
test_fuzz.py.
"""

import errno
import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save

from ropescope import cli, runs
from ropescope.training.trainer import Recipe, train

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
SIZES = {"task_sizes": {"targets": 3, "stops": 3, "hops": 2}, "samples": (300, 60, 60), "layers": 1, "width": 8, "batch": 4}
TINY = Recipe("number", **SIZES, steps=6, warm_up=1, watch_every=2, checkpoint_every=2, probe=20)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
ENVIRONMENT.pop("ROPESCOPE_TRACEBACK", None)


def said(arguments: list[str], monkeypatch, capsys) -> tuple[int, str]:
    """Exit code and the one line of a command run here."""
    monkeypatch.setattr(sys, "argv", ["ropescope", *arguments])
    try:
        cli.main()
        code = 0
    except SystemExit as leaving:
        code = leaving.code
    return code, capsys.readouterr().err


# Two writers

WRITERS = {
    "demo": ["demo"],
    "train": ["train", "number", "--preset", "quick", "--set", "samples=[300,60,60]", "--set", "probe=20"],
    "evaluate": ["evaluate", "number"],
    "dynamics": ["dynamics", str(ROOT / "results" / "number-0")],
    "mechanisms": ["mechanisms", "number"],
    "theory": ["theory"],
    "canonical": ["canonical", "--preset", "quick"],
    "generalise": ["generalise", "number"],
    "control": ["control", "number", "--inputs", "40"],
    "conformance": ["conformance", "llama"],
    "bench": ["bench", "scores"],
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_has_one_writer(name, tmp_path, monkeypatch, capsys):
    with runs.locked(tmp_path):
        code, line = said([*WRITERS[name], "--out", str(tmp_path)], monkeypatch, capsys)
    assert code == 2
    assert line == f"ropescope: another process writes to {tmp_path}: wait for it or choose another folder\n"
    assert not list(tmp_path.iterdir())


# Damage


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    train(TINY, folder)
    return folder


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "history.safetensors"])
def test_a_changed_checkpoint_is_refused(name, trained, tmp_path):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    data = bytearray((trained / name).read_bytes())
    data[-1] ^= 1
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=rf"damaged checkpoint \(.*{name} is damaged .*it is not used; copy the folder anew"):
        train(TINY, tmp_path, resume=True)


def test_checkpoints_of_earlier_versions_are_read(trained, tmp_path):
    for name in ("checkpoint.safetensors", "history.safetensors"):
        (tmp_path / name).write_bytes(save(load((trained / name).read_bytes())))
    shutil.copy(trained / "config.json", tmp_path)
    train(TINY, tmp_path, resume=True)
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == (trained / "model" / "model.safetensors").read_bytes()


# What the system does not let happen

THEORY = ["theory", "--inputs", "10", "--longest", "100", "--draws", "5"]


@pytest.mark.slow
def test_a_full_disk(tmp_path, monkeypatch, capsys):
    """Files may not grow beyond a size, as on a full disk: the page is refused and nothing is left; with more room it works."""
    page = tmp_path / "page.html"
    asked = ["report", str(ROOT / "results" / "bench"), "--out", str(page)]
    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, most))
    try:
        code, line = said(asked, monkeypatch, capsys)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))
    assert code == 1
    assert line == (
        f"ropescope: {page} cannot be read or written (File too large): raise the limit on the size of files; "
        "files already written are whole\n"
    )
    assert not list(tmp_path.iterdir())
    assert said(asked, monkeypatch, capsys) == (0, "")


def test_training_on_a_full_disk_goes_on_where_it_was(trained, tmp_path):
    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    room = (trained / "checkpoint.safetensors").stat().st_size - 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, most))
    try:
        with pytest.raises(OSError, match="File too large") as full:
            train(TINY, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))
    assert full.value.filename == str(tmp_path / "checkpoint.safetensors")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "history.safetensors"]
    train(TINY, tmp_path, resume=True)
    for name in ("model/model.safetensors", "history.safetensors", "checkpoint.safetensors"):
        assert (tmp_path / name).read_bytes() == (trained / name).read_bytes()


def test_nowhere_to_speak_to():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ropescope", "--version"], stdout=full, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"ropescope: input or output failed (No space left on device)")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["theory", "--help"], THEORY], ids=" ".join)
def test_a_closed_pipe_ends_in_silence_and_loses_nothing(arguments, tmp_path):
    """As `| head` or `| true` leave it behind: results are written, the code is 0, and nothing is said."""
    out = ["--out", str(tmp_path / "out")] if arguments == THEORY else []
    read, write = os.pipe()
    os.close(read)
    program = [sys.executable, "-m", "ropescope", *arguments, *out]
    done = subprocess.run(program, stdout=write, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
    assert not out or runs.read_run(tmp_path / "out").command == "theory"


def test_a_closed_standard_error_does_not_end_work(tmp_path):
    """A line about the work finds no reader; the work goes on."""
    read, write = os.pipe()
    os.close(read)
    program = "from ropescope.console import tell; tell('one'); tell('two'); print('done')"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=write, env=ENVIRONMENT, check=False)
    os.close(write)
    assert done.stdout == b"done\n"


def test_too_many_open_files(tmp_path):
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    runs.write_whole(tmp_path / "a", "first")
    next_one = os.dup(0)
    os.close(next_one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_one, most))
    try:
        with pytest.raises(OSError, match="Too many open files") as refused:
            runs.write_whole(tmp_path / "a", "second")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, most))
    assert refused.value.filename == str(tmp_path / "a")
    assert (tmp_path / "a").read_text() == "first"


NO_PLACES = {"/proc/nowhere": "No such file", "/dev/null/x": "Not a directory", "x" * 300: "File name too long"}


@pytest.mark.parametrize(("out", "why"), NO_PLACES.items(), ids=NO_PLACES.values())
def test_folders_that_cannot_be_written_to(out, why, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, line = said(["theory", "--out", out], monkeypatch, capsys)
    assert code == 2
    assert line.startswith(f"ropescope: {out} cannot be written to ({why}")
    assert line.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_every_refusal_names_its_reason(monkeypatch, capsys):
    """Those that cannot be had from a system at hand."""
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.EFBIG, errno.EMFILE):

        def fail(number=number):
            raise OSError(number, os.strerror(number), "some/file.json")

        monkeypatch.setattr(cli, "app", fail)
        code, line = said([], monkeypatch, capsys)
        assert code == 1
        assert line.startswith(f"ropescope: some/file.json cannot be read or written ({os.strerror(number)}): ")


def test_memory_that_is_not_enough(tmp_path, monkeypatch, capsys):
    least, most = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + (1 << 29), most))
    try:
        code, line = said(["demo", "--inputs", "100000000", "--out", str(tmp_path)], monkeypatch, capsys)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (least, most))
    assert code == 1
    assert line.startswith("ropescope: memory is not enough")
    assert not list(tmp_path.iterdir())


def test_a_line_cannot_steer_a_terminal(monkeypatch, capsys):
    def fail():
        raise ValueError("a\nb \x1b[2J \u202e \ud800 é")

    monkeypatch.setattr(cli, "app", fail)
    assert said([], monkeypatch, capsys) == (2, "ropescope: a b \\x1b[2J \\u202e \\ud800 é\n")


def test_a_mistake_of_ours_is_one_sentence_too(monkeypatch, capsys):
    monkeypatch.delenv("ROPESCOPE_TRACEBACK")
    monkeypatch.setattr(cli, "app", lambda: {}["nothing"])
    code, line = said([], monkeypatch, capsys)
    assert code == 70
    assert "this should not happen (KeyError: 'nothing')" in line
    assert line.count("\n") == 1


# Signals

READY = "from ropescope.__main__ import main; print('ready', flush=True); main()"


@pytest.mark.slow
@pytest.mark.parametrize("working", [False, True])
@pytest.mark.parametrize(("number", "code", "says"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")])
def test_signals_end_in_one_sentence(number, code, says, working, tmp_path):
    """While modules are imported, and when work has begun."""
    out = tmp_path / "out"
    program = [sys.executable, "-c", READY, "theory", "--out", str(out)]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert process.stdout.readline() == "ready\n"
    while working and not (out / ".lock").exists():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    again = ": give the same command again to resume" if working and number == signal.SIGINT else ""
    assert (process.returncode, err) == (code, f"ropescope: {says}; files already written are whole{again}\n")
    assert not out.exists(), "what was made for the run and is empty is removed"


# Clocks


def test_nothing_depends_on_the_clock(trained, tmp_path, monkeypatch):
    """It runs backwards, and files are from the future and the past."""
    for name in ("config.json", "checkpoint.safetensors", "history.safetensors"):
        shutil.copy(trained / name, tmp_path)
    half = Recipe("number", **SIZES, steps=6, warm_up=1, watch_every=2, checkpoint_every=2, probe=20)
    hours = itertools.count(2e9, -3600)
    monkeypatch.setattr(time, "time", lambda: next(hours))
    (tmp_path / "checkpoint.safetensors").unlink()
    for path, when in zip(tmp_path.iterdir(), (4e9, 1e8), strict=True):
        os.utime(path, (when, when))
    train(half, tmp_path, resume=True)
    for name in ("model/model.safetensors", "history.safetensors", "checkpoint.safetensors"):
        assert (tmp_path / name).read_bytes() == (trained / name).read_bytes()


# Weights that are no numbers


@pytest.mark.parametrize("name", ["evaluate", "generalise", "mechanisms"])
def test_models_of_ours_with_nan(name, trained, tmp_path, monkeypatch, capsys):
    weights = {key: value.copy() for key, value in load((trained / "model" / "model.safetensors").read_bytes()).items()}
    first = "transformer.h.0.attn.k_proj.weight"
    weights[first][0, 0] = np.nan
    shutil.copytree(trained / "model", tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(save(weights))
    asked = [name, "number", "--model", str(tmp_path / "model"), "--out", str(tmp_path / "out")]
    code, line = said(asked, monkeypatch, capsys)
    assert code == 2
    assert line.startswith(f"ropescope: {tmp_path / 'model'} holds NaN or infinite weights, first in ")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    import transformers  # noqa: PLC0415

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 1, "vocab_size": 12}
    folder = tmp_path_factory.mktemp("llama")
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_key_value_heads=1)).save_pretrained(folder)
    return folder


BAD = "model.layers.1.self_attn.q_proj.weight"
READERS = {
    "profile": ["profile"],
    "control": ["control"],
    "bench": ["bench", "profile", "--model"],
    "llm": ["llm", "--anyway", "--model"],
}


@pytest.mark.parametrize("name", READERS)
def test_language_models_with_infinite_or_missing_weights(name, llama, tmp_path, monkeypatch, capsys):
    weights = {key: value.copy() for key, value in load((llama / "model.safetensors").read_bytes()).items()}
    shutil.copytree(llama, tmp_path / "model")
    source = ("local/" if name == "llm" else "") + str(tmp_path / "model")
    asked = [*READERS[name], source, "--out", str(tmp_path / "out")]
    weights[BAD][0, 0] = np.inf
    (tmp_path / "model" / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))
    code, line = said(asked, monkeypatch, capsys)
    assert (code, line) == (
        2,
        f"ropescope: {tmp_path / 'model'} holds NaN or infinite weights, first in {BAD}: copy the model again\n",
    )
    del weights[BAD]  # a library would fill it with random numbers
    (tmp_path / "model" / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))
    code, line = said(asked, monkeypatch, capsys)
    assert code == 2
    assert f"1 of its weights are not in the file, first {BAD}" in line
    assert not (tmp_path / "out").exists()


def test_a_model_larger_than_its_weights_is_not_built(llama, tmp_path, monkeypatch, capsys):
    shutil.copytree(llama, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    for change, says in (
        ({"num_hidden_layers": 10**6}, "ask for 1000000 layers"),
        ({"vocab_size": 10**10}, "its settings ask for 160,"),
    ):
        path.write_text(json.dumps(config | change))
        code, line = said(["profile", str(tmp_path / "model"), "--out", str(tmp_path / "out")], monkeypatch, capsys)
        assert code == 2
        assert says in line


def test_a_training_that_diverges_keeps_its_last_good_checkpoint(tmp_path):
    """Weights can be lost in the very step before a checkpoint, when the loss is still a number."""
    wild = Recipe("number", **SIZES, steps=40, warm_up=20, watch_every=40, checkpoint_every=1, probe=20, rate=3e38)
    sentences = []
    for resume in (False, True):
        with pytest.raises(ValueError, match="lower the rate; the last checkpoint is whole") as lost:
            train(wild, tmp_path, resume)
        sentences.append(str(lost.value))
        kept = runs.read_arrays(tmp_path / "checkpoint.safetensors")
        assert all(np.isfinite(values).all() for name, values in kept.items() if name.startswith("model."))
        assert torch.tensor(kept["step"]) >= 1
    assert sentences[0] == sentences[1]


# Kills

LIVES = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1]]
import test_faults

folder, events = Path(sys.argv[2]), []

def count(event, arguments):
    if event == "os.rename" and str(folder) in str(arguments[0]):
        events.append(event)
        if len(events) == point:
            os.kill(os.getpid(), signal.SIGKILL)

for point in range(1, 1000):
    life = os.fork()
    if not life:
        sys.addaudithook(count)
        test_faults.train(test_faults.TINY, folder, resume=True)
        os._exit(0)
    _, status = os.waitpid(life, 0)
    ended = os.waitstatus_to_exitcode(status)
    test_faults.require_readable(folder)
    if ended != -signal.SIGKILL:
        print(point)
        sys.exit(ended)
"""
"""Lives of one training: the first is killed when it has written its first file and not yet renamed it, the second with its
second file, and so on."""


def require_readable(folder: Path) -> None:
    """Raise an error unless all files of a training are whole."""
    for path in folder.rglob("[!.]*.safetensors"):
        load(path.read_bytes()) if path.name == "model.safetensors" else runs.read_arrays(path)
    for path in folder.rglob("[!.]*.json"):
        json.loads(path.read_text())


@pytest.mark.slow
def test_a_training_that_is_killed_at_every_write_ends_as_if_it_was_not(trained, tmp_path):
    asked = [sys.executable, "-c", LIVES, str(Path(__file__).parent), str(tmp_path)]
    done = subprocess.run(asked, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5, "later lives resume and get further"
    names = [{str(path.relative_to(folder)) for path in folder.rglob("*")} for folder in (trained, tmp_path)]
    assert names[0] == names[1]
    for path in trained.rglob("*.safetensors"):
        assert (tmp_path / path.relative_to(trained)).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_kills_at_random(tmp_path):
    """A few of what `make soak` does in hundreds."""
    asked = [sys.executable, "-m", "tests.soak", "--points", "3", "--cases", "train", "--out", str(tmp_path)]
    done = subprocess.run(asked, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "summary.json").read_text())["results"]["train"]
    assert found["points"] == 3
    assert {found[key] for key in ("lost", "corrupt", "different", "left_over")} == {0}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["points.json", "summary.json"]
