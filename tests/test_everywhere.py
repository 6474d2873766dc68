"""Other systems: no Unix, an output in ASCII, names that are not UTF-8, files that are not ours, odd models."""

import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import run

from ropescope import console, runs

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
ENVIRONMENT.pop("ROPESCOPE_TRACEBACK", None)
SIZES = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 32}
SIZES |= {"num_key_value_heads": 1, "max_position_embeddings": 64}
IDS = [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], [5, 3, 2, 1, 5, 6, 7, 8, 9, 1, 2, 3]]
QUICK = ["--no-planes", "--no-sensitivity"]


def made(name: str, folder: Path, **changes) -> Path:
    """A folder with an untrained model."""
    import transformers  # noqa: PLC0415

    torch.manual_seed(0)
    kind = getattr(transformers, f"{name}ForCausalLM")
    kind(getattr(transformers, f"{name}Config")(**SIZES | changes)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    return made("Llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def ids(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("ids") / "ids.json"
    path.write_text(json.dumps(IDS), encoding="utf-8")
    return path


def outcome(*arguments: object) -> tuple[int, str]:
    """Exit code and the last line on standard error of a command run here; it is one of ours if the command failed."""
    done = run(*arguments, traceback="")
    last = done.stderr.splitlines()[-1:] or [""]
    assert done.returncode in (0, 1, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or last[0].startswith(("ropescope: ", "Error: ")), done.stderr
    return done.returncode, last[0]


# No Unix

NO_UNIX = """
import sys
unix_only = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog")
sys.modules["fcntl"] = None
import filelock  # without locks of the system
del sys.modules["fcntl"]
import importlib, os, pkgutil, signal, warnings
import inspect_ai.model, inspect_ai.solver, torch, altair, xarray, scipy.stats, rich.console, typer  # as on Windows
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, Trainer
for name in unix_only:
    sys.modules[name] = None
for name in ("fork", "register_at_fork", "getuid", "geteuid", "sync", "fchmod", "chown", "killpg", "setsid", "getpgid", "wait3",
             "O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC", "sched_getaffinity", "statvfs", "mkfifo", "uname", "getloadavg", "nice"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGPIPE", "setitimer", "alarm"):
    delattr(signal, name)
opened = os.open
def no_folders(path, flags, *more, **named):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", str(path))
    return opened(path, flags, *more, **named)
os.open = no_folders
warnings.filterwarnings("error", category=EncodingWarning, module="ropescope")
import ropescope
for module in pkgutil.walk_packages(ropescope.__path__, "ropescope."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from ropescope.__main__ import main
model, ids, out = sys.argv[1:]
for arguments in (["profile", model, "--prompts", ids, "--no-planes", "--no-sensitivity", "--out", out],
                  ["report", out, "--out", out + ".html"]):
    sys.argv = ["ropescope", *arguments]
    try:
        main()
    except SystemExit as leaving:
        assert not leaving.code
"""


@pytest.mark.slow
def test_all_modules_a_profile_and_a_report_without_what_windows_lacks(llama, ids, tmp_path):
    """Also: no text file is opened in the system's own encoding."""
    program = [sys.executable, "-X", "warn_default_encoding", "-c", NO_UNIX, str(llama), str(ids), str(tmp_path / "out")]
    done = subprocess.run(program, env=ENVIRONMENT, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert runs.read_run(tmp_path / "out").command == "profile"
    assert (tmp_path / "out.html").stat().st_size > 100_000


# Output in ASCII


def test_an_output_in_ascii_takes_every_text():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="\n")
    console.make_writable(stream)
    stream.write("τ = 1e-4 … π² → é \udcff \N{MINUS SIGN}1")
    stream.flush()
    assert stream.buffer.getvalue() == b"tau = 1e-4 ... pi^2 -> \\xe9 \\udcff -1"


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_commands_print_to_an_output_that_is_not_utf_8(encoding, tmp_path):
    asked = ["theory", "--inputs", "10", "--longest", "100", "--draws", "5", "--out", str(tmp_path / "é")]
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-m", "ropescope", *asked], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"look at " in done.stdout
    done.stdout.decode(encoding)


# Names that are not UTF-8


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="names of files are Unicode there")
def test_names_that_are_not_utf_8(llama, tmp_path):
    odd = tmp_path / os.fsdecode(b"\xff\xe9")
    odd.mkdir()
    model = odd / os.fsdecode(b"model\xff")
    model.symlink_to(llama)
    (odd / "ids.json").write_text(json.dumps(IDS), encoding="utf-8")
    out = odd / os.fsdecode(b"run\xfe")
    code, line = outcome("profile", model, "--prompts", odd / "ids.json", *QUICK, "--out", out)  # safetensors cannot open it
    assert code == 2
    assert "is not valid UTF-8" in line
    assert outcome("profile", llama, "--prompts", odd / "ids.json", *QUICK, "--out", out)[0] == 0
    assert runs.read_run(out).command == "profile"
    assert outcome("report", out, "--out", odd / "page.html")[0] == 0


# Files that are not ours


@pytest.mark.parametrize("kind", ["notes", "device", "link to nowhere", "own summary"])
def test_report_replaces_pages_and_nothing_else(kind, tmp_path):
    recorded, page = ROOT / "results" / "bench", tmp_path / "x.html"
    if kind == "notes":
        page.write_text("mine", encoding="utf-8")
    elif kind == "link to nowhere":
        page.symlink_to(tmp_path / "nowhere")
    elif kind == "device":
        os.mkfifo(page)
    else:
        (tmp_path / "run").mkdir()
        page = tmp_path / "run" / "summary.json"
        page.write_bytes((recorded / "summary.json").read_bytes())
        recorded = tmp_path / "run"

    def written():  # looking at a link changes when it was last read
        found = page.lstat()
        return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns

    before = written()
    code, line = outcome("report", recorded, "--out", page)
    assert (code, line) == (2, f"ropescope: out: {page} exists and is no page of ropescope: remove it or give another name")
    assert written() == before


@pytest.mark.slow
def test_report_replaces_its_own_page_and_leaves_the_folder_alone(tmp_path):
    mine = [tmp_path / name for name in (".notes.01234567.held", ".notes.01234567.part", ".lock", "index.html", "x.html.bak")]
    for path in mine:
        path.write_text("mine", encoding="utf-8")
    for _ in range(2):
        assert outcome("report", ROOT / "results" / "bench", "--out", tmp_path / "x.html") == (0, "")
    assert sorted(tmp_path.iterdir()) == sorted([*mine, tmp_path / "x.html"])
    assert {path.read_text(encoding="utf-8") for path in mine} == {"mine"}


def test_a_file_called_lock_that_is_not_ours_is_not_removed(tmp_path):
    (tmp_path / ".lock").write_text("mine", encoding="utf-8")
    code, line = outcome("theory", "--out", tmp_path)
    assert (code, line) == (2, f"ropescope: {tmp_path / '.lock'} is no lock of ropescope: choose another folder")
    assert (tmp_path / ".lock").read_text(encoding="utf-8") == "mine"


# Odd models


@pytest.mark.slow
def test_six_equal_tokens_on_an_untrained_model(llama, tmp_path):
    """Scores of all heads are equal, so that nothing correlates."""
    (tmp_path / "ids.json").write_text("[[1,1,1,1,1,1]]", encoding="utf-8")
    assert outcome("profile", llama, "--prompts", tmp_path / "ids.json", "--out", tmp_path / "out")[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("window", [1, 2, 3, 4])
def test_windows_that_hold_few_blocks(window, ids, tmp_path):
    model = made("Mistral", tmp_path / "model", sliding_window=window)
    assert outcome("profile", model, "--prompts", ids, *QUICK, "--out", tmp_path / "out")[0] == 0
    assert outcome("report", tmp_path / "out", "--out", tmp_path / "page.html")[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("positions", [2, 8])
def test_a_model_of_few_positions(positions, ids, tmp_path):
    import transformers  # noqa: PLC0415

    config = transformers.GPTJConfig(n_embd=8, n_layer=2, n_head=2, vocab_size=32, n_positions=positions, rotary_dim=4)
    transformers.GPTJForCausalLM(config).save_pretrained(tmp_path / "model")
    code, line = outcome("profile", tmp_path / "model", "--prompts", ids, "--out", tmp_path / "out")
    assert code == 2
    assert f"at most {positions}" in line
    (tmp_path / "short.json").write_text("[[1,2,3,4,5,6,7,8]]", encoding="utf-8")
    code, _ = outcome("profile", tmp_path / "model", "--prompts", tmp_path / "short.json", *QUICK, "--out", tmp_path / "out")
    assert code == (0 if positions == 8 else 2)


def test_weights_that_are_all_zero(ids, tmp_path):
    model = made("Llama", tmp_path / "model")
    from safetensors.torch import load_file, save_file  # noqa: PLC0415

    weights = {name: torch.zeros_like(value) for name, value in load_file(model / "model.safetensors").items()}
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    code, line = outcome("profile", model, "--prompts", ids, "--out", tmp_path / "out")
    assert code == 2
    assert "its queries or keys are all zero" in line


@pytest.mark.slow
def test_a_model_in_the_working_folder_has_a_name(ids, tmp_path, monkeypatch):
    monkeypatch.chdir(made("Llama", tmp_path / "mine"))
    assert outcome("profile", ".", "--prompts", ids, *QUICK)[0] == 0
    assert runs.read_run(Path("out/profile-mine")).config["model"]["source"] == "mine"
    monkeypatch.chdir(tmp_path)
    assert outcome("profile", ".")[0] == 2


# Odd commands

ODD = ["0", "-1", "2", "1e999", "nan", "-inf", "1e-300", "99999999999999999999", "4611686018427387904", "", "abc", "1,,2", "[]"]
ODD += ["{}", "null", "é", "../x", "true", "1.5"]
PROMPTS = [
    "[]",
    "[[]]",
    "[[1]]",
    "[[1,2,3]]",
    "[[1,2,3,4],[5]]",
    "{}",
    "null",
    "[1,2,3,4]",
    '[["a","b","c","d"]]',
    "[[1.5,2,3,4]]",
]
PROMPTS += [
    "[[-1,2,3,4]]",
    "[[99999,1,2,3]]",
    "[[1e400,2,3,4]]",
    "[[NaN,2,3,4]]",
    "",
    "\n\n",
    "a b c\nd e f",
    "[[true,false,1,2]]",
]
PROMPTS += ["[[9223372036854775808,1,2,3,4]]", '{"ids": [[1,2,3,4]]}', "[" * 5000, "[[1,2,3,4,5,6,7,8]]", "[[7,7,7,7,7,7]]"]
SMALL = ['task_sizes={"targets":3,"stops":3,"hops":2}', "samples=[300,60,60]", "layers=1", "width=8", "steps=4", "warm_up=1"]
SMALL += ["watch_every=2", "checkpoint_every=2", "probe=20", "batch=4"]
CHANGED = ["steps", "width", "layers", "samples", "rate", "warm_up", "heads", "planes", "probe", "batch", "task_sizes", "base"]


def odd_command(draw: random.Random, model: Path, folder: Path) -> list[str]:
    """A command with one or two odd settings, prompts or places."""
    name = draw.choice(["profile", "profile", "train", "theory", "bench", "demo"])
    given = [name]
    if name == "profile":
        path = folder / "prompts.json"
        path.write_text(draw.choice(PROMPTS), encoding="utf-8")
        given += [str(model), "--prompts", str(path), *QUICK]
        given += [draw.choice(["--tau", "--count", "--blocks", "--dtype", "--seed"]), draw.choice(ODD)] * draw.randrange(2)
    elif name == "train":
        changes = [*SMALL, f"{draw.choice(CHANGED)}={draw.choice(ODD)}"]
        given += ["number", *(part for change in changes for part in ("--set", change))]
    elif name == "theory":
        given += ["--inputs", draw.choice(["5", *ODD]), "--longest", "100", "--draws", draw.choice(["0", "-1", "nan", ""])]
    elif name == "bench":
        given += ["scores", "--tokens", draw.choice(ODD), "--batch", "2", "--rounds", "1"]
    else:
        given += ["--inputs", draw.choice(["0", "1", "-1", "nan", "", "abc"])]
    places = [
        folder / "out",
        folder / "out",
        folder / "file",
        folder / "other",
        Path("/proc/nowhere"),
        folder / "file" / "below",
    ]
    return [*given, "--out", str(draw.choice(places))]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_odd_commands_end_in_one_sentence(seed, llama, tmp_path):
    """Nothing ends with code 70, and no file of others is touched."""
    draw = random.Random(seed)
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine", encoding="utf-8")
    for _ in range(15):
        command = odd_command(draw, llama, tmp_path)
        print(command)
        outcome(*command)
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"
    assert (tmp_path / "other" / "mine.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("tokens", [2**62, 10**20])
def test_sizes_that_no_memory_holds(tokens, tmp_path):
    code, line = outcome("bench", "scores", "--tokens", tokens, "--batch", 2, "--rounds", 1, "--out", tmp_path / "out")
    assert code == 1
    assert line.startswith("ropescope: memory is not enough")
