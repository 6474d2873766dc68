"""The models that come with the package do what is said of them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GPTJForCausalLM

import ropescope as rs
from ropescope.models.bundled import FOLDER, bundled_folder
from ropescope.runs import read_trajectory, sha256
from ropescope.studies.histories.milestones import milestones
from ropescope.tasks import LetterTask, NumberTask
from ropescope.training.trainer import evaluate, recipe

RESULTS = Path(__file__).parents[1] / "results"
TASKS = {"number": NumberTask(), "letter": LetterTask()}
RUNS = [f"{task}-{seed}" for task in TASKS for seed in (0, 1, 2)]


def source_of(name: str) -> dict[str, str]:
    found: dict[str, str] = json.loads((bundled_folder(name) / "source.json").read_text())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_they_solve_their_task_at_every_hop_count(name):
    """On fresh sequences; `ropescope evaluate` does the same on all 45,600 test sequences."""
    accuracy = evaluate(rs.bundled(name), TASKS[name].sample(4_000, seed=12345))
    assert accuracy.shape == (4,)
    assert accuracy.min() >= 0.99


@pytest.mark.parametrize("name", TASKS)
def test_transformers_opens_them_and_agrees(name):
    theirs = GPTJForCausalLM.from_pretrained(bundled_folder(name), dtype=torch.float32).eval()
    ids = torch.from_numpy(TASKS[name].sample(8, seed=1).tokens)
    with torch.inference_mode():
        ours, expected = rs.bundled(name)(ids), theirs(ids).logits
    assert (ours - expected).abs().max() / expected.abs().max() <= 1e-5


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.slow
def test_their_heads_are_those_of_the_recorded_run(name):
    """Scores of the stored weights, on other inputs than the watcher's, against the last row of the history."""
    run = read_trajectory(RESULTS.parent / source_of(name)["run"])
    found: list[torch.Tensor] = []
    with torch.inference_mode():
        ids = torch.from_numpy(TASKS[name].sample(256, seed=99).tokens)
        rs.bundled(name)(ids, on_heads=lambda _, h: found.append(torch.stack(rs.swap_scores(rs.layer_logits(h))).mean(1)))
    now = torch.stack(found)[..., 0].numpy()
    recorded = np.stack((run.measures["positional"][-1, :, 0], run.measures["symbolic"][-1, :, 0]), -1)
    assert np.abs(now - recorded).max() < 0.08
    kinds, before = rs.purity(*now.T), rs.purity(*recorded.T)
    assert (kinds == before).mean() >= 0.9


def test_they_are_small_and_the_weights_of_the_recorded_runs():
    assert sum(path.stat().st_size for path in FOLDER.rglob("*")) <= 12_000_000
    for name in TASKS:
        source = source_of(name)
        assert source["half_precision_sha256"] == sha256(bundled_folder(name) / "model.safetensors")
        summary = json.loads((RESULTS.parent / source["run"] / "summary.json").read_text())
        assert source["single_precision_sha256"] == summary["sha256"]["model/model.safetensors"]


@pytest.mark.parametrize("run", RUNS)
def test_recorded_runs_are_whole_and_solve_their_task(run):
    """Preset paper, its own seed, the history that its summary names, test accuracy of at least 0.995 at every hop count."""
    task, seed = run.split("-")
    config = json.loads((RESULTS / run / "config.json").read_text())
    assert config == json.loads(json.dumps(recipe(task, "paper", int(seed)).settings()))
    summary = json.loads((RESULTS / run / "summary.json").read_text())
    assert summary["config"] == config
    assert summary["sha256"]["history.safetensors"] == sha256(RESULTS / run / "history.safetensors")
    assert min(summary["results"]["test_accuracy"].values()) >= 0.995


def test_the_recorded_dynamics_are_recomputed_from_the_histories():
    recorded = json.loads((RESULTS / "dynamics" / "summary.json").read_text())["results"]
    assert list(recorded) == RUNS
    for run in RUNS:
        assert json.loads(json.dumps(milestones(read_trajectory(RESULTS / run)))) == recorded[run]


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="there are letter, number"):
        rs.bundled("word")
