"""Dynamics over checkpoints that `transformers` kept: in folders, and as revisions behind a hub on loopback."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM
from typer.testing import CliRunner

import ropescope as rs
from ropescope.cli import app
from ropescope.models.checkpoints import Checkpoint, at_hand, find_checkpoints, weights_hash
from ropescope.runs import read_run, read_trajectory
from ropescope.studies.dynamics import sweep
from ropescope.studies.dynamics.sweep import Asked, Unit, measure_unit

pytestmark = pytest.mark.slow

IDS = [[(7 * n + 3 * k) % 40 for k in range(9 + n % 2)] for n in range(3)]


def tiny(seed=0, **changes):
    torch.manual_seed(seed)
    sizes = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(**sizes | changes))


def between(one, other, share):
    """A model on the way from one to another."""
    model = tiny()
    mixed = {name: torch.lerp(value, other.state_dict()[name], share) for name, value in one.state_dict().items()}
    model.load_state_dict(mixed)
    return model


@pytest.fixture
def training(tmp_path):
    """Five checkpoints of a training that stood still between 200 and 300, as a Trainer names them, and what else it leaves."""
    folder = tmp_path / "my-training"
    ends = tiny(0), tiny(1)
    for step, share in ((100, 0.0), (200, 0.5), (300, 0.5), (1000, 1.0)):
        between(*ends, share).save_pretrained(folder / f"checkpoint-{step}")
    (folder / "checkpoint-300" / "trainer_state.json").write_text(json.dumps({"global_step": 300}))
    between(*ends, 0.75).save_pretrained(folder / "half-way")
    (folder / "half-way" / "trainer_state.json").write_text(json.dumps({"global_step": 600}))
    (folder / "runs").mkdir()
    (folder / "README.md").write_text("not a checkpoint")
    (tmp_path / "ids.json").write_text(json.dumps(IDS))
    return folder


def command(*words):
    done = CliRunner().invoke(app, ["dynamics", *map(str, words)], catch_exceptions=True)
    if done.exception is not None and not isinstance(done.exception, SystemExit | ValueError):
        raise done.exception
    return done


def test_scores_of_every_checkpoint_are_those_of_its_profile(training, tmp_path):
    out = tmp_path / "out"
    done = command(training, "--prompts", tmp_path / "ids.json", "--out", out)
    assert done.exit_code == 0, done.output
    assert "checkpoint-200, checkpoint-300 hold the same weights" in done.output
    run = read_trajectory(out / "my-training")
    assert run.steps.tolist() == [100, 200, 300, 600, 1000]
    prompts = rs.id_prompts(IDS)
    for at, name in enumerate(("checkpoint-100", "checkpoint-200", "checkpoint-300", "half-way", "checkpoint-1000")):
        scores = rs.profile(rs.load_model(str(training / name)).model, prompts, planes=False, sensitivity=False)
        for measure in ("positional", "symbolic", "symbol_share", "entropy"):
            assert np.allclose(run.measures[measure][at], scores[measure].mean("input"), atol=1e-6), (name, measure)
    summary = read_run(out / "my-training")
    assert summary.command == "sweep"
    assert summary.results["same_weights"] == [["checkpoint-200", "checkpoint-300"]]
    assert len(list((out / "my-training" / "checkpoints").iterdir())) == 4, "the same weights are kept once"
    assert not list(out.rglob("model*.safetensors")), "scores only"
    assert json.loads((out / "summary.json").read_text())["results"]["my-training"]["last_step"] == 1000


def test_checkpoints_that_come_later_are_taken_up(training, tmp_path, monkeypatch):
    out, opened = tmp_path / "out", []
    asked = (training, "--prompts", tmp_path / "ids.json", "--out", out)
    shutil.move(training / "checkpoint-1000", tmp_path / "later")
    assert command(*asked).exit_code == 0
    first = read_trajectory(out / "my-training")
    shutil.move(tmp_path / "later", training / "checkpoint-1000")
    measured = sweep.measure_unit
    monkeypatch.setattr(sweep, "measure_unit", lambda *given: opened.append(given) or measured(*given))
    assert command(*asked).exit_code == 0
    run = read_trajectory(out / "my-training")
    assert run.steps.tolist() == [100, 200, 300, 600, 1000]
    assert len(opened) == 1, "what is known is not measured again"
    assert np.array_equal(run.measures["positional"][:4], first.measures["positional"])


def test_other_prompts_are_refused_in_the_same_folder(training, tmp_path):
    out = tmp_path / "out"
    asked = (training, "--prompts", tmp_path / "ids.json", "--out", out)
    assert command(*asked).exit_code == 0
    (tmp_path / "ids.json").write_text(json.dumps([row[::-1] for row in IDS]))
    assert "other inputs or other settings" in str(command(*asked).exception)


def test_weights_are_recognised_however_they_lie_in_files(training, tmp_path):
    folder = training / "checkpoint-200"
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    split = tmp_path / "split"
    split.mkdir()
    save_file({name: tensors[name] for name in names[::2]}, split / "model-00001-of-00002.safetensors", {"made": "by hand"})
    save_file({name: tensors[name] for name in names[1::2]}, split / "model-00002-of-00002.safetensors")
    assert weights_hash(split) == weights_hash(folder) == weights_hash(training / "checkpoint-300")
    assert weights_hash(folder) != weights_hash(training / "checkpoint-100")
    last = tensors[names[1]]
    for changed in (last.half(), last.reshape(1, *last.shape), torch.nextafter(last, last + 1)):
        rest = {name: tensors[name] for name in names[3::2]} | {names[1]: changed}
        save_file(rest, split / "model-00002-of-00002.safetensors")
        assert weights_hash(split) != weights_hash(folder)


def test_the_same_weights_under_other_settings_are_another_model(training, tmp_path):
    settings = training / "checkpoint-300" / "config.json"
    changed = json.loads(settings.read_text())
    changed["rope_parameters"]["rope_theta"] = 50.0
    settings.write_text(json.dumps(changed))
    out = tmp_path / "out"
    assert command(training, "--prompts", tmp_path / "ids.json", "--out", out).exit_code == 0
    run = read_trajectory(out / "my-training")
    assert not np.array_equal(run.measures["positional"][1], run.measures["positional"][2])


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda f: shutil.copytree(f / "checkpoint-100", f / "copy-100"), "are both of step 100: leave one of them out"),
        (lambda f: shutil.copytree(f / "checkpoint-100", f / "final"), "final names no step"),
        (
            lambda f: [shutil.rmtree(path) for path in f.iterdir() if path.is_dir()],
            "holds neither a training run nor checkpoints",
        ),
        (lambda f: (f / "checkpoint-200" / "model.safetensors").write_bytes(b"\x10" * 9), "is not a complete safetensors file"),
        (
            lambda f: os.truncate(f / "checkpoint-200" / "model.safetensors", 9000),
            "is not a complete safetensors file (it is truncated)",
        ),
        (
            lambda f: tiny(num_attention_heads=2).save_pretrained(f / "checkpoint-400"),
            "checkpoint-400 has heads of shape (2, 2)",
        ),
    ],
)
def test_what_cannot_be_swept_is_one_sentence(training, tmp_path, spoil, sentence):
    spoil(training)
    done = command(training, "--prompts", tmp_path / "ids.json", "--out", tmp_path / "out")
    assert isinstance(done.exception, ValueError)
    assert sentence in str(done.exception)


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ([], "must hold a list of prompts"),
        ([[1, 2]], "prompt 0 of"),
        ([[1, 2, -3, 4]], "whole numbers from 0 on"),
        ([[1, 2, 3, 40]], "prompt 0 has the token 40 but the model has 40 tokens"),
        ([{"ids": [1, 2, 3, 4], "blocks": [[0, 2], [1, 3]]}], "in order, before the last token"),
        ([{"ids": [1, 2, 3, 4], "blocks": [[0, 2], [2, 4]]}], "in order, before the last token"),
        ([{"ids": [1, 2, 3, 4], "blocks": [[0, 2]]}], "at least 2 ranges"),
        ([{"ids": [1, 2, 3, 4], "blocks": [[0, True], [2, 3]]}], "at least 2 ranges"),
    ],
)
def test_bad_token_ids_are_one_sentence(training, tmp_path, ids, sentence):
    (tmp_path / "ids.json").write_text(json.dumps(ids))
    done = command(training, "--prompts", tmp_path / "ids.json", "--out", tmp_path / "out")
    assert isinstance(done.exception, ValueError)
    assert sentence in str(done.exception)


@pytest.mark.parametrize(
    ("source", "revisions", "sentence"),
    [
        ("nothing-here", (), "is no folder: give a run folder, a folder of checkpoints, or a hub id with revisions"),
        ("nothing-here", ("step1",), "is neither a folder nor a hub id"),
        ("org/name", ("main",), "main names no step"),
    ],
)
def test_sources_that_are_none(source, revisions, sentence):
    with pytest.raises(ValueError, match=sentence):
        find_checkpoints(source, revisions)


# A hub: what `huggingface_hub` asks for, answered from folders.


class Hub(BaseHTTPRequestHandler):
    """Serves `folder/REVISION` as revisions of every model; asks nobody who they are."""

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        parts = self.path.split("?")[0].strip("/").split("/")
        commits = {hashlib.sha1(path.name.encode()).hexdigest(): path for path in self.server.folder.iterdir()}
        commit, data = "0" * 40, None
        if parts[:2] == ["api", "models"] and (folder := self.server.folder / parts[-1]).is_dir():  # ORG/NAME/revision/REVISION
            commit = hashlib.sha1(folder.name.encode()).hexdigest()
            files = [{"rfilename": path.name} for path in sorted(folder.iterdir())]
            data = json.dumps({"id": "org/name", "sha": commit, "siblings": files}).encode()
        elif "tree" in parts and parts[-1] in commits:  # api/models/ORG/NAME/tree/COMMIT
            files = sorted(commits[parts[-1]].iterdir())
            sizes = [(path.name, path.stat().st_size, hashlib.sha1(path.read_bytes()).hexdigest()) for path in files]
            data = json.dumps([{"type": "file", "path": name, "size": n, "oid": oid} for name, n, oid in sizes]).encode()
        elif "resolve" in parts and parts[3] in commits:  # ORG/NAME/resolve/COMMIT/FILE
            commit, name = parts[3:]
            data = (commits[commit] / name).read_bytes()
            self.server.asked.append(name)
        self.send_response(404 if data is None else 200)
        self.send_header("Content-Length", str(len(data or b"")))
        self.send_header("ETag", f'"{hashlib.sha1(data or b"").hexdigest()}"')
        self.send_header("X-Repo-Commit", commit)
        self.end_headers()
        if body and data:
            self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(tmp_path):
    folder = tmp_path / "hub"
    for step, share in ((1, 0.0), (512, 0.5), (1024, 0.5)):
        between(tiny(0), tiny(1), share).save_pretrained(folder / f"step{step}")
        (folder / f"step{step}" / "pytorch_model.bin").write_bytes(b"pickled")
        (folder / f"step{step}" / "code.py").write_text("raise SystemExit")
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        server.folder, server.asked = folder, []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_revisions_are_downloaded_one_at_a_time_and_let_go(hub, tmp_path):
    (tmp_path / "ids.json").write_text(json.dumps(IDS))
    out, rest = tmp_path / "out", tmp_path / "rest"
    rest.mkdir()
    env = os.environ | {
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
        "HF_HOME": str(tmp_path / "home"),
        "TMPDIR": str(rest),
    }
    program = [sys.executable, "-c", "from ropescope.cli import main; main()", "dynamics", "org/name"]
    words = ["--revisions", "step1,step512,step1024", "--prompts", str(tmp_path / "ids.json"), "--out", str(out)]
    done = subprocess.run([*program, *words], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "step512, step1024 hold the same weights\n"
    assert read_trajectory(out / "name").steps.tolist() == [1, 512, 1024]
    assert not any(name.endswith((".bin", ".py")) for name in hub.asked), "nothing pickled, no code"
    assert not list(rest.iterdir()), "weights are let go"
    assert not list(tmp_path.glob("home/**/*.safetensors"))
    done = subprocess.run([*program, "--revisions", "step7", *words[2:]], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("ropescope: org/name at step7 cannot be downloaded: ")
    assert done.stderr.count("\n") == 1


def test_weights_that_differ_from_machine_to_machine_are_refused(training):
    checkpoint = Checkpoint(100, "checkpoint-100", str(training / "checkpoint-100"))
    with pytest.raises(ValueError, match="all machines must see the same folder"):
        measure_unit((Asked(), rs.id_prompts(IDS)), Unit(checkpoint, "0" * 64))


def test_a_folder_is_left_where_it_is(training):
    with at_hand(Checkpoint(100, "checkpoint-100", str(training / "checkpoint-100"))) as folder:
        assert folder == training / "checkpoint-100"
    assert (folder / "config.json").exists()
