"""Training is deterministic, can be killed at any moment, and shows what its watcher saw."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import ropescope as rs
from ropescope.models.gptj import load_gptj
from ropescope.runs import History, read_trajectory
from ropescope.studies.bench.training import plain_letter, plain_number
from ropescope.tasks import LetterTask, NumberTask
from ropescope.training import trainer
from ropescope.training.probe import evaluate, probe_of, probe_row
from ropescope.training.trainer import Recipe, batch_rows, train

SMALL = Recipe(
    task="number",
    task_sizes={"targets": 3, "stops": 3, "hops": 2, "letters": 6, "integers": 6},
    samples=(2_000, 60, 200),
    layers=2,
    width=16,
    mlp_width=32,
    batch=16,
    steps=60,
    warm_up=6,
    rate=3e-3,
    watch_every=5,
    probe=20,
    checkpoint_every=10,
)
RUN = """
import json, sys
from pathlib import Path
from ropescope.training.trainer import Recipe, train
recipe = json.loads(sys.argv[1])
recipe["samples"], recipe["betas"] = tuple(recipe["samples"]), tuple(recipe["betas"])
train(Recipe(**recipe), Path(sys.argv[2]), resume=True)
"""


BEST = replace(SMALL, activation="gelu", clip=1.0, decay_all=False, keep_best=True)
FILES = ("model/model.safetensors", "history.safetensors", "checkpoint.safetensors")


def start(folder: Path, recipe: Recipe = SMALL) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", RUN, json.dumps(asdict(recipe)), str(folder)])


def times(folder: Path) -> dict[str, int]:
    """When each file was written; files may go while we look."""
    found = {}
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            found[path.name] = path.stat().st_mtime_ns
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert start(folder).wait() == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "files"), [(SMALL, FILES), (BEST, (*FILES, "last/model.safetensors"))], ids=["paper", "released"]
)
def test_killed_at_random_moments_and_resumed_is_the_same_run(recipe, files, tmp_path_factory, tmp_path):
    undisturbed = tmp_path_factory.mktemp("undisturbed")
    assert start(undisturbed, recipe).wait() == 0
    rng = np.random.default_rng(0)
    kills = 0
    for _ in range(200):
        run = start(tmp_path, recipe)
        # Wait for something to be written in this life, then kill it at any moment after.
        before = times(tmp_path)
        while run.poll() is None and times(tmp_path) == before:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.4))
        if run.poll() is not None:
            break
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        kills += 1
        if kills >= 4:
            assert start(tmp_path, recipe).wait() == 0
            break
    assert kills >= 3
    for name in files:
        assert (tmp_path / name).read_bytes() == (undisturbed / name).read_bytes(), name


@pytest.mark.slow
def test_a_finished_run_says_what_it_was(undisturbed):
    summary = json.loads((undisturbed / "summary.json").read_text())
    key = json.loads((undisturbed / "config.json").read_text())
    assert set(key.pop("made_with")) == {"code", "versions"}
    assert summary["config"] == key
    assert set(summary["results"]["test_accuracy"]) == {"1-hop", "2-hop"}
    history = History.read(undisturbed / "history.safetensors").arrays()
    assert history["step"].tolist() == list(range(0, 61, 5))
    assert history["positional"].shape == (13, 2, 1)
    assert history["accuracy"].shape == (13, 2)
    assert history["loss"][-1] < history["loss"][0]


@pytest.mark.slow
def test_accuracy_is_recomputed_from_the_saved_weights(undisturbed):
    summary = json.loads((undisturbed / "summary.json").read_text())
    test = trainer.split(SMALL.make_task(), SMALL.samples, SMALL.seed)["test"]
    again = evaluate(load_gptj(undisturbed / "model"), test)
    assert again.tolist() == pytest.approx(list(summary["results"]["test_accuracy"].values()), abs=1e-6)


@pytest.mark.slow
def test_a_run_is_not_overwritten_or_mixed(undisturbed):
    with pytest.raises(ValueError, match="already holds a run"):
        train(SMALL, undisturbed)
    with pytest.raises(ValueError, match="another recipe"):
        train(Recipe(**{**asdict(SMALL), "seed": 1}), undisturbed, resume=True)


def test_every_sample_is_seen_once_in_an_epoch_and_shuffled_in_the_next():
    recipe = Recipe(**{**asdict(SMALL), "samples": (64, 20, 20)})
    epochs = [np.concatenate([batch_rows(recipe, step) for step in range(e * 4, e * 4 + 4)]) for e in range(3)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(64))
    assert (epochs[1] != epochs[2]).any()


def test_rate_rises_and_falls():
    rates = [SMALL.rate_at(step) for step in range(SMALL.steps + 1)]
    assert rates[0] == 0
    assert max(rates) == rates[6] == SMALL.rate
    assert rates[-1] == 0
    assert np.allclose(np.diff(rates[6:]), -SMALL.rate / 54)


def test_a_row_of_the_history_holds_the_scores_and_leaves_training_alone():
    torch.manual_seed(0)
    task = LetterTask()
    model = rs.GPTJ(rs.GPTJConfig(task.vocab_size, layers=3, width=32, heads=2)).train()
    probe = probe_of(task.sample(200, seed=0), 40)
    assert np.bincount(probe.hops).tolist() == [0, 10, 10, 10, 10]
    before = torch.get_rng_state()
    row = probe_row(model, probe)
    assert model.training
    assert torch.equal(before, torch.get_rng_state())
    seen: list[rs.Heads] = []
    with torch.inference_mode():
        logits = model.eval()(torch.from_numpy(probe.tokens), on_heads=lambda _, heads: seen.append(heads))[:, -1]
    for layer, heads in enumerate(seen):
        scores = rs.swap_scores(rs.layer_logits(heads))
        np.testing.assert_allclose(row["positional"][layer], scores.positional.mean(0), atol=1e-6)
        np.testing.assert_allclose(row["symbolic"][layer], scores.symbolic.mean(0), atol=1e-6)
    right = (logits.argmax(-1).numpy() == probe.answer).reshape(-1)
    np.testing.assert_allclose(row["accuracy"], [right[probe.hops == h].mean() for h in (1, 2, 3, 4)], atol=1e-6)


@pytest.mark.parametrize(("task", "plain"), [(NumberTask(), plain_number), (LetterTask(), plain_letter)])
def test_the_loops_of_the_benchmark_draw_real_sequences(task, plain):
    rng = random.Random(0)
    tokens = np.stack([task.encode(plain(rng)) for _ in range(300)])
    assert set(task.solve(tokens).hops) == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"task": "word"}, "task must be one of number, letter"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"warm_up": 60}, "warm_up must be"),
        ({"probe": 61}, "probe is 61, more than the 60"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"layers": 0}, "layers must be at least 1, not 0"),
        ({"width": 7, "heads": 2}, "width must be a multiple of 2 x heads = 4, not 7"),
        ({"samples": (500, 60, 1)}, "samples must be at least 2 in each part, one for each hop count, not 1"),
        ({"task_sizes": {"hop": 2}}, "task_sizes 'hop' is not a size of the number task: it has targets, stops, hops"),
        ({"task_sizes": {"hops": 99}}, "hops is 99 but stops only 8"),
        ({"betas": (2, 3)}, "each of betas must be a number, at least 0 and below 1, not 2"),
        ({"dropout": 2}, "dropout must be a number, at least 0 and below 1, not 2"),
        ({"rate": -1}, "rate must be a number, at least 0 and finite, not -1"),
        ({"rate": float("nan")}, "rate must be a number, .* not nan"),
    ],
)
def test_bad_recipes_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        Recipe(**{**asdict(SMALL), **change})


WRONG_TYPES = {
    "layers=1e3": "layers must be a whole number, not 1000.0",
    "batch=true": "batch must be a whole number, not True",
    'width="a"': "width must be a whole number, not 'a'",
    "samples=[1]": "samples must be 3 numbers, not (1,)",
    "samples=[500, 300, 4.5]": "each of samples must be a whole number, not 4.5",
    "task_sizes=[2]": 'task_sizes must be names with sizes, like {"hops": 2}, not (2,)',
    'task_sizes={"hops": null}': "task_sizes 'hops' must be a whole number, not None",
    "betas=0.9": "betas must be 2 numbers, not 0.9",
    "rate=null": "rate must be a number, at least 0 and finite, not None",
    "weight_decay=false": "weight_decay must be a number, at least 0 and finite, not False",
}


@pytest.mark.slow
def test_entries_of_a_wrong_type_are_refused():
    """In a process without the type checks of these tests, which would refuse them first."""
    code = """
import sys
from ropescope.training.trainer import recipe
for change in sys.argv[1:]:
    try:
        recipe("number", changes=[change])
    except ValueError as error:
        print(error)
"""
    out = subprocess.run([sys.executable, "-c", code, *WRONG_TYPES], capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == list(WRONG_TYPES.values())


def test_a_recipe_of_too_many_sequences_leaves_nothing_behind(tmp_path):
    sizes = {"targets": 1, "stops": 0, "hops": 1, "letters": 1, "integers": 1}
    with pytest.raises(ValueError, match="more distinct sequences than this task has"):
        train(Recipe(**{**asdict(SMALL), "task_sizes": sizes}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_no_number_stops_the_run(tmp_path):
    with pytest.raises(ValueError, match=r"loss is .* at step"):
        train(Recipe(**{**asdict(SMALL), "rate": 1e30, "warm_up": 0}), tmp_path)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_never_used(undisturbed, tmp_path):
    for name in ("config.json", "history.safetensors"):
        (tmp_path / name).write_bytes((undisturbed / name).read_bytes())
    (tmp_path / "checkpoint.safetensors").write_bytes((undisturbed / "checkpoint.safetensors").read_bytes()[:-50])
    with pytest.raises(ValueError, match="damaged checkpoint"):
        train(SMALL, tmp_path, resume=True)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "kinds"), [("number", {"positional", "symbolic"}), ("letter", {"symbolic"})])
def test_preset_quick_shows_pure_heads_forming(task, kinds, tmp_path):
    """It starts with none, ends with the task solved and pure heads of just the kinds that the task calls for."""
    recipe = trainer.recipe(task, "quick")
    results = train(recipe, tmp_path)
    assert min(results["test_accuracy"].values()) > 0.99
    run = read_trajectory(tmp_path)
    first, last = (rs.purity(run.measures["positional"][at], run.measures["symbolic"][at]) for at in (0, -1))
    assert not first.any()
    assert {name for name, kind in (("positional", 1), ("symbolic", -1)) if (last == kind).any()} == kinds


@pytest.mark.slow
def test_planes_chosen_by_hand(tmp_path):
    """Those not chosen stand still, in training and in the weights that are kept; without a choice nothing is written of it."""
    chosen = replace(SMALL, planes=(1, 3))
    turning = chosen.rope()
    usual = rs.Rope(SMALL.width).frequencies
    assert turning is not None
    assert turning.frequencies[:4] == (usual[0], 0.0, usual[2], 0.0)
    train(chosen, tmp_path / "chosen")
    kept = load_gptj(tmp_path / "chosen" / "model")
    assert kept.config.ropes[0] == turning
    assert json.loads((tmp_path / "chosen" / "config.json").read_text())["planes"] == [1, 3]
    assert "planes" not in SMALL.settings()
    every = tuple(range(1, SMALL.width // 2 + 1))
    train(SMALL, tmp_path / "usual")
    train(replace(SMALL, planes=every), tmp_path / "every")
    one, other = (load_file(tmp_path / name / "history.safetensors") for name in ("usual", "every"))
    assert all(torch.equal(one[key], other[key]) for key in one)  # all planes are the usual rotation, bit for bit
    assert not torch.equal(one["loss"], load_file(tmp_path / "chosen" / "history.safetensors")["loss"])
    for planes, says in (((0,), "at least 1"), ((999,), "at most")):
        with pytest.raises(ValueError, match=says):
            replace(SMALL, planes=planes)
