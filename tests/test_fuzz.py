"""Whatever is in a file: one sentence and a code, no traceback, no file touched outside the folder asked for, no runaway.

Files are real small ones, changed at random: cut short, bytes turned, entries of JSON replaced by anything, lengths made huge.
Hashes of summaries are set right afterwards where the change should be seen by what comes after the check.

    pytest tests/test_fuzz.py                               # as in the suite
    pytest tests/test_fuzz.py --hypothesis-profile=long      # for as long as it takes

With ROPESCOPE_FUZZ=FOLDER it is counted there what came out.
"""

import contextlib
import hashlib
import io
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fuzzing import (
    NOWHERE,
    RESULTS,
    anything,
    at_most,
    changed_bytes,
    changed_json,
    changed_text,
    check,
    counted,
    outcome,
    touched,
)
from hypothesis import given, note
from hypothesis import strategies as st

from ropescope import runs

pytestmark = pytest.mark.slow

assert counted  # a fixture of every test


def small_run(name: str, to: Path) -> Path:
    """A recorded run without pictures."""
    folder = to / "in" / name
    shutil.rmtree(to / "in", ignore_errors=True)
    shutil.copytree(RESULTS / name, folder, ignore=shutil.ignore_patterns("*.png", "*.html"))
    return folder


def set_right(folder: Path) -> None:
    """Hashes of files in a summary, if there still is one with hashes."""
    path = folder / "summary.json"
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        summary = json.loads(path.read_bytes())
        for file in summary["sha256"]:
            if (folder / file).is_file():
                summary["sha256"][file] = hashlib.sha256((folder / file).read_bytes()).hexdigest()
        path.write_text(json.dumps(summary))


RUNS = {
    "number-0": ["summary.json", "config.json", "history.safetensors"],
    "profile-stories15M": ["summary.json", "profile.nc"],
    "theory": ["summary.json", "curves.json"],
    "canonical": ["summary.json", "curves.json"],
    "control-letter": ["summary.json"],
    "generalise-letter": ["summary.json", "rows.json"],
    "llm-tinyllama-1.1b": ["summary.json", "answers.jsonl"],
    "conformance": ["summary.json", "families.json"],
    "bench": ["summary.json"],
    "bench-profile": ["summary.json"],
    "dynamics": ["summary.json"],
}


@at_most(30)
@given(st.data())
def test_run_folders(tmp_path, data):
    name = data.draw(st.sampled_from(sorted(RUNS)))
    folder = small_run(name, tmp_path)
    file = folder / data.draw(st.sampled_from(RUNS[name]))
    note(str(file))
    if file.suffix == ".json":
        file.write_bytes(data.draw(changed_text(json.loads(file.read_text()))))
    else:
        file.write_bytes(data.draw(changed_bytes(file.read_bytes(), data.draw(st.sampled_from([600, None])))))
    if data.draw(st.integers(0, 5)):
        set_right(folder)
    outcome(["report", str(folder), "--out", str(tmp_path / "out" / "page.html")], tmp_path)


@at_most(8)
@given(st.data())
def test_playgrounds(tmp_path, data):
    folder = small_run("profile-stories15M", tmp_path)
    played = json.loads((RESULTS / "profile-smollm2-135m" / "playground.json").read_text())
    (folder / "playground.json").write_bytes(data.draw(changed_text(played)))
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"sha256": summary["sha256"] | {"playground.json": ""}}))
    set_right(folder)
    outcome(["report", str(folder), "--out", str(tmp_path / "out" / "page.html")], tmp_path)


@at_most(20)
@given(st.data())
def test_training_runs_for_dynamics(tmp_path, data):
    folder = small_run("number-0", tmp_path)
    file = folder / data.draw(st.sampled_from(["config.json", "history.safetensors"]))
    if file.suffix == ".json":
        file.write_bytes(data.draw(changed_text(json.loads(file.read_text()))))
    else:
        file.write_bytes(data.draw(changed_bytes(file.read_bytes(), data.draw(st.sampled_from([1500, None])))))
    outcome(["dynamics", str(folder), "--out", NOWHERE], tmp_path)


# Settings


TINY = ['task_sizes={"targets":3,"stops":3,"hops":2}', "samples=[300,60,60]", "layers=1", "width=8", "steps=4", "warm_up=1"]
TINY += ["watch_every=2", "checkpoint_every=2", "probe=20", "batch=4"]
TRAIN = ["train", "number", "--resume", *(part for change in TINY for part in ("--set", change))]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("trained")
    assert outcome([*TRAIN, "--out", str(root / "out")], root) == (0, "")
    return root / "out"


@at_most(20)
@given(st.data())
def test_training_that_is_resumed(tmp_path, trained, data):
    """Of a changed checkpoint nothing is used: the run ends in the same weights or is refused."""
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    shutil.copytree(trained, tmp_path / "out")
    name = data.draw(st.sampled_from(["config.json", "checkpoint.safetensors", "history.safetensors"]))
    file = tmp_path / "out" / name
    whole = file.read_bytes()
    file.write_bytes(data.draw(changed_bytes(whole)))
    code, said = outcome([*TRAIN, "--out", str(tmp_path / "out")], tmp_path)
    if code == 0:
        for kept in ("model/model.safetensors", "checkpoint.safetensors"):
            assert (tmp_path / "out" / kept).read_bytes() == (trained / kept).read_bytes()
    else:
        assert str(tmp_path / "out") in said


NOTED = {"arguments": ["theory", "--inputs", "20000", "--draws", "1000"], "made_from": {}, "seconds": 3.5}


@at_most(30)
@given(st.data())
def test_notes_of_reproduce(tmp_path, monkeypatch, data):
    monkeypatch.setenv("ROPESCOPE_WEIGHTS", str(tmp_path))  # none, or all would be hashed
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    (tmp_path / "out" / "steps").mkdir(parents=True)
    shutil.copytree(RESULTS / "bench", tmp_path / "out" / "theory")
    (tmp_path / "out" / "steps" / "theory.json").write_bytes(data.draw(changed_text(NOTED)))
    outcome(["reproduce", "--list", "--out", str(tmp_path / "out")], tmp_path)


@at_most(60)
@given(st.data())
def test_cached_units(tmp_path, data):
    """Whatever has become of a file of arrays, the arrays are those that were kept."""
    right = {"x": np.arange(7.0), "y": np.array([[1, 2]])}
    path = tmp_path / "00000.safetensors"
    path.write_bytes(data.draw(changed_bytes(runs.packed_arrays(right))))
    with contextlib.redirect_stderr(io.StringIO()):
        found = runs.cached_arrays(path, lambda: right)
    check(0, "")
    assert found.keys() == right.keys()
    assert all(np.array_equal(found[name], right[name]) for name in right)


@pytest.fixture(scope="module")
def logged(tmp_path_factory) -> Path:
    """A log of Inspect AI with the answers to four questions."""
    from chat_oracle import ready  # noqa: PLC0415

    import ropescope as rs  # noqa: PLC0415

    ready()
    sizes = {"tasks": ["letter"], "lengths": [16], "runs": 2, "samples": 2}
    result = rs.run("llm", model="oracle/1", yes=True, out=tmp_path_factory.mktemp("logged"), progress=False, **sizes)
    (path,) = (result.folder / "logs").iterdir()
    return path


@at_most(60)
@given(st.data())
def test_logs_of_answers(tmp_path, logged, data):
    """No answer is read that was not given."""
    from ropescope.studies.chat.asking import answers_in  # noqa: PLC0415
    from ropescope.studies.chat.grid import Grid  # noqa: PLC0415

    asked = Grid(("letter",), (16,), 2, 2).cell("letter", 16)
    given_ones = answers_in(logged.parent, asked, pytest.fail)
    assert len(given_ones) == 4
    (tmp_path / logged.name).write_bytes(data.draw(changed_bytes(logged.read_bytes())))
    told: list[str] = []
    found = answers_in(tmp_path, asked, told.append)
    assert found.items() <= given_ones.items()
    check(2 if told else 0, "\n".join(told))


@at_most(30)
@given(change=st.sampled_from(TINY), value=anything)
def test_recipes(tmp_path, change, value):
    """Small enough to be refused, or they would be trained."""
    name = change.partition("=")[0]
    text = json.dumps(value)
    outcome(["train", "number", "--set", f"{name}={text}", "--set", "width=3", "--out", str(tmp_path / "out")], tmp_path)


# Language models


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A Llama of two layers with a tokenizer of words."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("model") / "tiny"
    words = {word: n for n, word in enumerate(["[UNK]", *"abcdefghijklmnopqrstuvwxyz0123456789.,:"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation()])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=len(words), **sizes, num_key_value_heads=1, max_position_embeddings=64)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def copied(model: Path, to: Path) -> Path:
    shutil.rmtree(to / "in", ignore_errors=True)
    shutil.copytree(model, to / "in" / "tiny")
    return to / "in" / "tiny"


def taken(root: Path) -> Path:
    """A folder that holds something else, which a profile refuses once it has read model and prompts."""
    folder = root / "out" / "taken"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.txt").write_text("mine")
    return folder


def profile(model: Path, root: Path, prompts: str = "number", *more: str) -> tuple[int, str]:
    return outcome(["profile", str(model), "--prompts", prompts, "--count", "1", *more, "--out", str(taken(root))], root)


def test_the_model_itself_is_opened(tmp_path, model):
    text = tmp_path / "prompt.txt"
    text.write_text("a b c\nd e f\ng h i\n")
    code, said = profile(model, tmp_path, str(text))
    assert code == 2
    assert "holds other files but no profile" in said


@at_most(40)
@given(st.data())
def test_settings_of_models(tmp_path, model, data):
    folder = copied(model, tmp_path)
    file = folder / data.draw(st.sampled_from(["config.json", "config.json", "tokenizer.json", "tokenizer_config.json"]))
    file.write_bytes(data.draw(changed_text(json.loads(file.read_text()))))
    profile(folder, tmp_path, "number")


def with_header(weights: bytes, header: object) -> bytes:
    text = json.dumps(header).encode()
    size = int.from_bytes(weights[:8], "little")
    return struct.pack("<Q", len(text)) + text + weights[8 + size :]


@at_most(50)
@given(st.data())
def test_safetensors(tmp_path, model, data):
    folder = copied(model, tmp_path)
    file = folder / "model.safetensors"
    weights = file.read_bytes()
    size = int.from_bytes(weights[:8], "little")
    if data.draw(st.booleans()):
        file.write_bytes(with_header(weights, data.draw(changed_json(json.loads(weights[8 : 8 + size])))))
    else:
        file.write_bytes(data.draw(changed_bytes(weights, data.draw(st.sampled_from([16, 8 + size, None])))))
    profile(folder, tmp_path)


@at_most(40)
@given(st.data())
def test_models_of_our_own(tmp_path, trained, data):
    folder = copied(trained / "model", tmp_path)
    file = folder / data.draw(st.sampled_from(["config.json", "model.safetensors"]))
    if file.suffix == ".json":
        file.write_bytes(data.draw(changed_text(json.loads(file.read_text()))))
    else:
        weights = file.read_bytes()
        size = int.from_bytes(weights[:8], "little")
        if data.draw(st.booleans()):
            file.write_bytes(with_header(weights, data.draw(changed_json(json.loads(weights[8 : 8 + size])))))
        else:
            file.write_bytes(data.draw(changed_bytes(weights, data.draw(st.sampled_from([16, 8 + size, None])))))
    outcome(["evaluate", "number", "--model", str(folder), "--out", NOWHERE], tmp_path)


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory) -> Path:
    """The smallest Llama that can be written as GGUF."""
    import gguf  # noqa: PLC0415

    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for add, value in (
        (writer.add_context_length, 64),
        (writer.add_embedding_length, 32),
        (writer.add_block_count, 1),
        (writer.add_feed_forward_length, 32),
        (writer.add_head_count, 2),
        (writer.add_head_count_kv, 1),
        (writer.add_rope_dimension_count, 16),
        (writer.add_layer_norm_rms_eps, 1e-5),
        (writer.add_vocab_size, 40),
    ):
        add(value)
    draws = np.random.default_rng(0)
    shapes = {"token_embd": (40, 32), "output_norm": (32,), "output": (40, 32)}
    shapes |= {"blk.0.attn_norm": (32,), "blk.0.ffn_norm": (32,), "blk.0.attn_q": (32, 32), "blk.0.attn_output": (32, 32)}
    shapes |= {"blk.0.attn_k": (16, 32), "blk.0.attn_v": (16, 32)}
    shapes |= {"blk.0.ffn_gate": (32, 32), "blk.0.ffn_up": (32, 32), "blk.0.ffn_down": (32, 32)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", draws.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_gguf_file_itself_is_opened(tmp_path, gguf_file):
    code, said = profile(gguf_file, tmp_path)
    assert code == 2
    assert "comes without a tokenizer" in said


@at_most(50)
@given(st.data())
def test_gguf(tmp_path, gguf_file, data):
    whole = gguf_file.read_bytes()
    file = tmp_path / "in.gguf"
    file.write_bytes(data.draw(changed_bytes(whole, data.draw(st.sampled_from([24, 400, 1600, None])))))
    profile(file, tmp_path)


def test_a_count_that_no_file_can_hold(tmp_path):
    """The usual reader would go on for as long as it says."""
    import gguf  # noqa: PLC0415

    path = tmp_path / "in.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("some.numbers", [1, 2, 3])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    whole = path.read_bytes()
    at = whole.index(b"some.numbers") + len("some.numbers") + 8
    path.write_bytes(whole[:at] + struct.pack("<Q", 1 << 40) + whole[at + 8 :])
    code, said = profile(path, tmp_path)
    assert code == 2
    assert "claims 1,099,511,627,776 entries, more than the file can hold" in said


# Prompts

ODD = ["\x00", "\u202e", "\x1b[31m", "\r\n", "\u2028", "\t", "a b\nc d\n", "\n\n", "🜚", "e\u0301", "\x85", " " * 50, "x" * 3000]


@at_most(30)
@given(st.data())
def test_prompt_files(tmp_path, model, data):
    path = tmp_path / "prompts.txt"
    if data.draw(st.booleans()):
        path.write_bytes(data.draw(st.binary(max_size=200)))
    else:
        text = "".join(data.draw(st.lists(st.text(max_size=20) | st.sampled_from(ODD), max_size=12)))
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    blocks = data.draw(st.sampled_from(["line", "token"]))
    profile(model, tmp_path, str(path), "--blocks", blocks)


# In processes of their own


def test_from_the_shell(tmp_path, model, gguf_file, trained):
    """The same from outside, where nothing of ours stands between Python and the user."""
    cases = []
    run = small_run("theory", tmp_path)
    (run / "summary.json").write_text('{"command": "theory", "config": {}, "results": {"bounds": []}, "sha256": {}}')
    cases.append(["report", str(run), "--out", str(tmp_path / "out" / "page.html")])
    cut = copied(trained / "model", tmp_path / "cut")
    (cut / "model.safetensors").write_bytes(struct.pack("<Q", (1 << 63) - 1) + b"{" * 100)
    cases.append(["evaluate", "number", "--model", str(cut), "--out", NOWHERE])
    (tmp_path / "in.gguf").write_bytes(gguf_file.read_bytes()[:8] + b"\xff" * 16 + gguf_file.read_bytes()[24:])
    cases.append(["profile", str(tmp_path / "in.gguf"), "--out", str(taken(tmp_path))])
    for name in ("home", "cwd"):
        (tmp_path / name).mkdir()
    before = touched(tmp_path)
    environment = {**os.environ, "HOME": str(tmp_path / "home"), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    del environment["ROPESCOPE_TRACEBACK"]
    for case in cases:
        done = subprocess.run(
            [sys.executable, "-m", "ropescope", *case],
            cwd=tmp_path / "cwd",
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode in (1, 2)
        check(done.returncode, done.stderr)
        assert len(done.stderr.splitlines()) == 1, done.stderr
    assert touched(tmp_path) == before
