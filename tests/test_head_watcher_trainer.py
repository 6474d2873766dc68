"""A watcher in `transformers.Trainer`: the same steps as without it, everything recorded, loggers informed."""

import numpy as np
import pytest
import torch
import transformers
from watching import PROMPTS, drawn, events, llama, means, same, weights

from ropescope.runs import find_runs, read_trajectory
from ropescope.training.head_watcher import HeadWatcher
from ropescope.training.measuring import watched

pytestmark = pytest.mark.slow


def trainer(folder, steps, model=None, **more):
    ids = np.stack(drawn(*[16] * 64, seed=5))
    data = [{"input_ids": row, "labels": row} for row in ids]
    settings = {
        "max_steps": steps,
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-2,
        "report_to": "none",
        "logging_steps": 2,
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 3,
    }
    arguments = transformers.TrainingArguments(str(folder), **settings | more)
    return transformers.Trainer(model or llama(), arguments, train_dataset=data)


def test_trainer_takes_the_same_steps_and_tells_tensorboard(tmp_path):
    plain = trainer(tmp_path / "plain", 5)
    plain.train()
    watched = trainer(tmp_path / "trainer", 5, report_to="tensorboard")
    watcher = HeadWatcher(watched.model, PROMPTS, tmp_path / "run", every=2)
    assert watcher.attach(watched) is watcher
    watcher.attach(watched)  # once more changes nothing
    watched.train()
    assert same(weights(plain.model), weights(watched.model))
    run = read_trajectory(tmp_path / "run")
    assert run.steps.tolist() == [0, 2, 4, 5]
    final = means(watched.model)
    np.testing.assert_allclose(run.measures["positional"][-1], final["positional"], atol=2e-3)
    board = events(tmp_path / "trainer")
    for (layer, head), values in {(1, 2): run.measures["symbolic"][:, 1, 2], (0, 0): run.measures["symbolic"][:, 0, 0]}.items():
        expected = dict(zip(run.steps.tolist(), values.tolist(), strict=True))
        assert board[f"train/heads/L{layer}.H{head}/symbolic"] == pytest.approx(expected)
    losses = board["train/loss"]
    assert run.loss[1:3].tolist() == pytest.approx([losses[2], losses[4]])
    summary = find_runs([tmp_path / "run"])[0]
    assert (summary.results["looks"], summary.results["last_step"]) == (4, 5)


def test_trainer_that_goes_on_from_a_checkpoint(tmp_path):
    """As one that was never interrupted, to the bit."""
    whole = trainer(tmp_path / "whole", 4)
    whole.add_callback(HeadWatcher(whole.model, PROMPTS, tmp_path / "seen-whole", every=1))
    whole.train()
    first = trainer(tmp_path / "parts", 4, save_strategy="steps", save_steps=2)
    first.add_callback(HeadWatcher(first.model, PROMPTS, tmp_path / "seen", every=1))
    first.add_callback(_StopAt(3))
    with pytest.raises(KeyboardInterrupt):
        first.train()
    assert read_trajectory(tmp_path / "seen").steps.tolist() == [0, 1, 2, 3]
    second = trainer(tmp_path / "parts", 4, save_strategy="steps", save_steps=2)
    watcher = HeadWatcher(second.model, PROMPTS, tmp_path / "seen", every=1)
    second.add_callback(watcher)
    second.add_callback(_StepsKept(tmp_path / "seen"))
    second.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-2"))
    assert _StepsKept.seen == [0, 1, 2]
    one, other = (read_trajectory(tmp_path / name) for name in ("seen-whole", "seen"))
    assert one.steps.tolist() == other.steps.tolist() == [0, 1, 2, 3, 4]
    assert all(np.array_equal(one.measures[name], other.measures[name]) for name in watched())


class _StopAt(transformers.TrainerCallback):
    def __init__(self, step):
        self.at = step

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.at:
            raise KeyboardInterrupt


class _StepsKept(transformers.TrainerCallback):
    """What is in the folder before the first step of training that goes on."""

    seen = None

    def __init__(self, folder):
        self.folder = folder

    def on_step_begin(self, args, state, control, **_):
        if type(self).seen is None:
            type(self).seen = read_trajectory(self.folder).steps.tolist()


def test_trainer_in_mixed_precision_is_seen_in_single(tmp_path):
    mixed = trainer(tmp_path / "trainer", 3, bf16=True)
    watcher = HeadWatcher(mixed.model, PROMPTS, tmp_path / "run", every=3)
    mixed.add_callback(watcher)
    mixed.train()
    run = read_trajectory(tmp_path / "run")
    assert run.steps.tolist() == [0, 3]
    clean = llama()
    clean.load_state_dict(mixed.model.state_dict())
    np.testing.assert_allclose(run.measures["positional"][-1], means(clean)["positional"], atol=2e-3)
    assert mixed.model(input_ids=torch.from_numpy(PROMPTS[0])[None]).logits.dtype == torch.float32
    assert "_original_forward" in vars(mixed.model)


def test_trainer_of_another_model_is_refused(tmp_path):
    other = trainer(tmp_path / "trainer", 2)
    other.add_callback(HeadWatcher(llama(), PROMPTS, tmp_path / "run"))
    with pytest.raises(ValueError, match="the Trainer trains another model than the watcher measures"):
        other.train()


def test_trainer_goes_on_when_a_logger_or_a_look_fails(tmp_path):
    class Broken(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):
            if "heads/purity" in logs:
                raise RuntimeError("no connection")

    watched = trainer(tmp_path / "trainer", 2)
    watched.add_callback(Broken())
    HeadWatcher(watched.model, PROMPTS, tmp_path / "run", every=1).attach(watched)
    with pytest.warns(RuntimeWarning, match=r"could not be logged \(no connection\); training continues"):
        watched.train()
    assert watched.state.global_step == 2
    assert read_trajectory(tmp_path / "run").steps.tolist() == [0, 1, 2]


def test_as_a_plain_callback_it_records_but_tells_no_logger(tmp_path):
    plain = trainer(tmp_path / "trainer", 2, report_to="tensorboard")
    plain.add_callback(HeadWatcher(plain.model, PROMPTS, tmp_path / "run", every=1))
    plain.train()
    assert read_trajectory(tmp_path / "run").steps.tolist() == [0, 1, 2]
    board = events(tmp_path / "trainer")
    assert "train/loss" in board
    assert not [name for name in board if "heads" in name]
