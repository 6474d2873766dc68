"""A watcher sees what a profile sees, changes nothing, loses nothing, and never stands in the way of training."""

import json
import random
import shutil

import numpy as np
import pytest
import real
import torch
import transformers
from typer.testing import CliRunner
from watching import PROMPTS, VOCABULARY, drawn, events, llama, loop, means, same, weights

import ropescope as rs
from ropescope.cli import app
from ropescope.report.page import write_page
from ropescope.runs import HistoryFolder, find_runs, read_trajectory
from ropescope.tasks import LetterTask, split
from ropescope.training.head_watcher import HeadWatcher
from ropescope.training.measuring import task_measures, watched
from ropescope.training.probe import probe_row

# What it sees


@pytest.mark.parametrize(("layers", "at_once"), [(None, 4096), ([1], 4096), (None, 9)])
def test_scores_are_those_of_a_profile(layers, at_once, tmp_path, monkeypatch):
    monkeypatch.setattr("ropescope.training.head_watcher.AT_ONCE", at_once)
    model = llama(torch.float64)
    watcher = HeadWatcher(model, PROMPTS, tmp_path, layers=layers)
    expected, found = means(model), watcher.measure()
    assert watcher.layers == ([0, 1] if layers is None else [1])
    for name in watched():
        np.testing.assert_allclose(found[name], expected[name][watcher.layers], atol=1e-10, err_msg=name)
    row = watcher.look(0)
    assert all(np.array_equal(row[name], found[name].astype(np.float32)) for name in watched())
    assert read_trajectory(tmp_path).layers.tolist() == watcher.layers


def test_layers_with_a_window_lack_scores_where_a_profile_does(tmp_path):
    config = transformers.Gemma3TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=8,
        sliding_window=3,
        layer_types=["sliding_attention", "full_attention"],
    )
    torch.manual_seed(0)
    model = transformers.Gemma3ForCausalLM(config).double()
    prompts = [rs.Prompt(ids, ((1, 4), (4, 7), (7, 10)), ("x",) * 12) for ids in drawn(12, 12)]
    found, expected = HeadWatcher(model, prompts, tmp_path).measure(), means(model, prompts)
    assert np.isnan(found["positional"][0]).all()
    for name in watched():
        np.testing.assert_allclose(found[name], expected[name], atol=1e-10, err_msg=name)


def test_a_model_of_our_own_is_seen_as_its_trainer_sees_it(tmp_path):
    task = LetterTask(hops=2)
    samples = split(task, (8, 24, 8), 0)["validation"]
    torch.manual_seed(0)
    model = rs.GPTJ(rs.GPTJConfig(task.vocab_size, layers=3, heads=2, width=32, mlp_width=64)).train()
    blocks = tuple((p, p + 1) for p in range(task.length - 1))
    prompts = [rs.Prompt(ids, blocks, tuple(map(str, ids))) for ids in samples.tokens]
    found, own = HeadWatcher(model, prompts, tmp_path).look(0), probe_row(model, samples)
    for name in task_measures():
        np.testing.assert_allclose(found[name], own[name], atol=1e-6, err_msg=name)
    assert model.training


def test_half_precision_is_seen_through_a_copy_in_single(tmp_path):
    model = llama(torch.bfloat16)
    watcher = HeadWatcher(model, PROMPTS, tmp_path)
    before = watcher.measure()
    loop(model, 2)
    found, single = watcher.measure(), llama()
    single.load_state_dict({name: value.float() for name, value in model.state_dict().items()})
    expected = means(single)
    assert model.dtype == torch.bfloat16
    assert not np.allclose(found["positional"], before["positional"], atol=1e-3)
    for name in watched():  # in single precision, batches round otherwise than single prompts
        np.testing.assert_allclose(found[name], expected[name], atol=2e-3, err_msg=name)


# What it leaves alone


def test_training_takes_the_same_steps_with_and_without(tmp_path):
    plain, watched = llama(), llama()
    loop(plain, 4)
    watcher = HeadWatcher(watched, PROMPTS, tmp_path, every=1)
    loop(watched, 4, lambda step, loss: watcher.step(step, loss=loss, noise=lambda: torch.rand(()).item()))
    assert same(weights(plain), weights(watched))
    assert read_trajectory(tmp_path).steps.tolist() == [1, 2, 3, 4]
    assert not np.allclose(*read_trajectory(tmp_path).measures["positional"][[0, -1]], atol=1e-3)


def test_modes_random_numbers_gradients_and_hooks_stay(tmp_path):
    model = llama().train()
    frozen = model.model.layers[1].eval()
    newer = getattr(model, "activation_checkpointing_enable", None)  # its name in versions to come
    (newer or model.gradient_checkpointing_enable)()
    model.enable_input_require_grads()
    watcher = HeadWatcher(model, PROMPTS, tmp_path)
    ids = torch.from_numpy(np.stack(drawn(16)))
    model(input_ids=ids, labels=ids).loss.backward()

    def state():
        hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
        modes = [m.training for m in model.modules()]
        gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        numbers = [torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state()[1].tolist())]
        return [hooks, modes, numbers, json.loads(model.config.to_json_string())], gradients

    (before, gradients), _ = (
        state(),
        watcher.look(0, noise=lambda: random.random() + np.random.random() + float(torch.rand(()))),
    )
    after, gradients_after = state()
    assert before == after
    assert all(torch.equal(one, other) for one, other in zip(gradients, gradients_after, strict=True))
    assert not frozen.training
    assert model.training
    assert read_trajectory(tmp_path).measures["noise"].shape == (1,)
    model(input_ids=ids, labels=ids).loss.backward()  # nothing made while looking is in the way


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_wrapped_models(tmp_path):
    model = llama(torch.float64)
    expected = means(model)

    class Adapted(torch.nn.Module):
        """As PEFT wraps: the model itself, with adapters in it, is inside."""

        def __init__(self, inner):
            super().__init__()
            self.base_model, self.peft_config = inner, {}

        def get_base_model(self):
            return self.base_model

    with _one_process(tmp_path):
        wrapped = {
            "ddp": torch.nn.parallel.DistributedDataParallel(model),
            "compiled": torch.compile(model),
            "both": torch.nn.parallel.DistributedDataParallel(torch.compile(model)),
            "adapted": Adapted(model),
        }
        for name, outer in wrapped.items():
            found = HeadWatcher(outer, PROMPTS, tmp_path / name).measure()
            np.testing.assert_allclose(found["symbolic"], expected["symbolic"], atol=1e-10, err_msg=name)


class _one_process:  # noqa: N801
    """torch.distributed of one process."""

    def __init__(self, folder):
        self.file = folder / "meeting"

    def __enter__(self):
        torch.distributed.init_process_group("gloo", init_method=f"file://{self.file}", rank=0, world_size=1)

    def __exit__(self, *_):
        torch.distributed.destroy_process_group()


def test_only_the_first_process_looks(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    watcher = HeadWatcher(llama(), PROMPTS, tmp_path / "none", every=1)
    assert watcher.step(1, loss=1.0) is None
    watcher.close()
    assert not (tmp_path / "none").exists()


def test_sharded_models_are_refused(tmp_path):
    model = llama()
    model.lm_head.weight.ds_id = 3
    with pytest.raises(ValueError, match="sharded by DeepSpeed"):
        HeadWatcher(model, PROMPTS, tmp_path)


# The run folder


def test_a_loop_of_ones_own(tmp_path):
    model = llama()
    with HeadWatcher(model, PROMPTS, tmp_path, every=2, name="tiny", about={"seed": 3}) as watcher:
        watcher.step(0, accuracy=[0.0, 0.5])
        loop(model, 5, lambda step, loss: watcher.step(step, loss=loss, accuracy=lambda: [step / 10, 1.0]))
        assert find_runs([tmp_path])[0].results == {}
    run = read_trajectory(tmp_path)
    assert run.steps.tolist() == [0, 2, 4, 5]  # the last step too
    np.testing.assert_allclose(run.accuracy, [[0, 0.5], [0.2, 1], [0.4, 1], [0.5, 1]], atol=1e-6)
    assert np.isnan(run.loss[0])
    assert (run.loss[1:] > 0).all()
    assert find_runs([tmp_path])[0].config["training"] == {"seed": 3}
    results = find_runs([tmp_path])[0].results
    assert (results["looks"], results["last_step"], results["heads"]) == (4, 5, 8)
    page = write_page([tmp_path], tmp_path / "page.html").read_text()
    assert "tiny, measured 4 times up to step 5: " in page


def test_a_loop_that_breaks_has_not_ended(tmp_path):
    model = llama()

    def train():
        with HeadWatcher(model, PROMPTS, tmp_path, every=1) as watcher:
            watcher.step(0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train()
    assert find_runs([tmp_path])[0].results == {}
    assert read_trajectory(tmp_path).steps.tolist() == [0]


def test_training_that_goes_on(tmp_path):
    """Rows later than where it goes on from are dropped; a run that has ended is not replaced by one that begins anew."""
    model = llama()
    watcher = HeadWatcher(model, PROMPTS, tmp_path, every=1)
    for step in range(5):
        watcher.step(step)
    again = HeadWatcher(model, PROMPTS, tmp_path, every=1)
    again.step(3)
    assert read_trajectory(tmp_path).steps.tolist() == [0, 1, 2, 3]
    again.step(4)
    again.close()
    with pytest.raises(ValueError, match="holds a run that has ended, and training starts anew"):
        HeadWatcher(model, PROMPTS, tmp_path, every=1).step(0)
    assert read_trajectory(tmp_path).steps.tolist() == [0, 1, 2, 3, 4]
    more = HeadWatcher(model, PROMPTS, tmp_path, every=1)
    more.step(5)
    assert read_trajectory(tmp_path).steps.tolist() == [0, 1, 2, 3, 4, 5]
    assert find_runs([tmp_path])[0].results == {}


@pytest.mark.parametrize(
    "other",
    [
        lambda model, out: HeadWatcher(model, PROMPTS[:2], out),
        lambda model, out: HeadWatcher(llama(num_hidden_layers=1), PROMPTS, out),
        lambda model, out: HeadWatcher(model, PROMPTS, out, tau=1e-3),
        lambda model, out: HeadWatcher(model, PROMPTS, out, layers=[1]),
    ],
)
def test_a_folder_of_other_things_is_refused(other, tmp_path):
    model = llama()
    HeadWatcher(model, PROMPTS, tmp_path).step(0)
    with pytest.raises(ValueError, match="holds the history of another model, other inputs or other settings"):
        other(model, tmp_path)
    assert read_trajectory(tmp_path).steps.tolist() == [0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"every": 0}, "every must be a whole number of steps"),
        ({"every": True}, "every must be a whole number of steps"),
        ({"prompts": []}, "at least one prompt"),
        ({"prompts": [[1, 2]]}, "at least 4 token ids"),
        ({"prompts": [[1, 2, 3, VOCABULARY]]}, "beyond the model's vocabulary of 60"),
        ({"prompts": [rs.Prompt(np.arange(9), ((1, 4),), ("x",) * 9)]}, "has 1 blocks that may change places"),
        ({"layers": [2]}, "layers must be some of the model's attention layers 0, 1"),
        ({"layers": []}, "layers must be some"),
        ({"heads": [(1, 4)]}, "layer 1 has no head 4"),
        ({"tau": 0.0}, "tau must be a positive number"),
        ({"writer": 3}, "writer must have add_scalar"),
        ({"about": {"seed": {1}}}, "about must hold what JSON can hold"),
        ({"model": torch.nn.Linear(2, 2)}, "neither a model of transformers nor one of ours"),
    ],
)
def test_bad_arguments_are_told_at_once(changes, said, tmp_path):
    given = {"model": llama(), "prompts": PROMPTS, "out": tmp_path / "none"} | changes
    with pytest.raises(ValueError, match=said):
        HeadWatcher(**given)
    assert not (tmp_path / "none").exists()


# When something goes wrong


def test_weights_that_are_no_numbers(tmp_path):
    model = llama()
    watcher = HeadWatcher(model, PROMPTS, tmp_path, every=1)
    watcher.step(1)
    with torch.no_grad():
        model.model.layers[1].self_attn.q_proj.weight[0, 0] = torch.nan
    with pytest.warns(RuntimeWarning, match=r"measuring heads failed at step 2 \(.*NaN.*\); training continues"):
        row = watcher.step(2, loss=float("nan"))
    assert all(np.isnan(row[name]).all() for name in watched())
    assert not any(module._forward_pre_hooks for module in model.modules())
    with torch.no_grad():
        model.model.layers[1].self_attn.q_proj.weight[0, 0] = 0.1
    watcher.step(3)
    assert np.isfinite(read_trajectory(tmp_path).measures["positional"]).all((1, 2)).tolist() == [True, False, True]
    assert "measuring failed at 1 step" in write_page([tmp_path], tmp_path / "page.html").read_text()
    watcher.close()
    assert find_runs([tmp_path])[0].results["failed_looks"] == 1


def test_numbers_that_cannot_be_found(tmp_path):
    watcher = HeadWatcher(llama(), PROMPTS, tmp_path, every=1)
    for wrong in (lambda: 1 / 0, [[1.0]], "a"):
        with pytest.warns(RuntimeWarning, match="the numbers given at step 1 could not be computed"):
            row = watcher.step(1, accuracy=wrong)
        assert np.isfinite(row["positional"]).all()


def test_a_full_disk_loses_nothing_that_was_seen(tmp_path, monkeypatch):
    watcher = HeadWatcher(llama(), PROMPTS, tmp_path, every=1)
    watcher.step(1)
    with monkeypatch.context() as full:
        full.setattr("ropescope.runs.history.write_whole", _full)
        with pytest.warns(RuntimeWarning, match=r"the look at step 2 could not be stored \(.*No space left"):
            watcher.step(2)
        assert read_trajectory(tmp_path).steps.tolist() == [1]
    watcher.step(3)
    assert read_trajectory(tmp_path).steps.tolist() == [1, 2, 3]


def _full(path, data):
    raise OSError(28, "No space left on device")


# Loggers


def test_loggers_are_told_the_scores(tmp_path):
    told = {}
    watcher = HeadWatcher(llama(), PROMPTS, tmp_path, every=1, log=lambda numbers, step: told.update({step: numbers}))
    row = watcher.step(7)
    assert list(told) == [7]
    assert told[7]["heads/L1.H3/positional"] == row["positional"][1, 3]
    assert told[7]["heads/L0/symbolic"] == pytest.approx(row["symbolic"][0].mean())
    assert told[7]["heads/purity"] == pytest.approx(np.abs(row["positional"] - row["symbolic"]).mean())
    pure = rs.purity(row["positional"], row["symbolic"])
    assert told[7]["heads/pure_symbolic"] == (pure == -1).sum()


def test_of_many_heads_only_chosen_ones_are_told(tmp_path):
    model = llama(num_hidden_layers=5)
    row = HeadWatcher(model, PROMPTS, tmp_path / "a").look(0)
    few = HeadWatcher(model, PROMPTS, tmp_path / "b").scalars(row)
    assert not [name for name in few if ".H" in name]
    assert len(few) == 3 + len(watched()) + 2 * 5
    chosen = HeadWatcher(model, PROMPTS, tmp_path / "c", heads=[(4, 1)]).scalars(row)
    assert chosen.keys() - few.keys() == {f"heads/L4.H1/{name}" for name in watched()}


def test_a_writer_of_tensorboard(tmp_path):
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

    with SummaryWriter(str(tmp_path / "board")) as writer:
        row = HeadWatcher(llama(), PROMPTS, tmp_path / "run", every=1, writer=writer).step(3)
    assert events(tmp_path / "board")["heads/L0.H2/entropy"] == {3: pytest.approx(row["entropy"][0, 2])}


def test_a_folder_moved_elsewhere_goes_on(tmp_path):
    model = llama()
    HeadWatcher(model, PROMPTS, tmp_path / "a", every=1).step(1)
    shutil.move(tmp_path / "a", tmp_path / "b")
    watcher = HeadWatcher(model, PROMPTS, tmp_path / "b", every=1)
    watcher.step(2)
    assert HistoryFolder(tmp_path / "b", watcher.config, "ropescope.training.head_watcher").history.steps == [1, 2]


@pytest.mark.slow
def test_what_watching_costs(tmp_path):
    out = tmp_path / "bench"
    given = ["bench", "watch", "--model", str(real.folder("stories15M")), "--steps", "1", "--rounds", "1", "--out", str(out)]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    (run,) = find_runs([out])
    found = run.results
    assert found["look_share"] == pytest.approx(found["look_over_step"] / found["every"])
    assert found["look_over_step"] > 0
    assert found["measured_share"] == pytest.approx((found["with_over_without_in_blocks"] - 1) / found["every"])
    assert found["heads"] == 36
    assert f"{found['look_share']:.2%} of training time" in done.output
    assert (
        f"watching stories15M in fine-tuning takes {found['look_share']:.1%}"
        in write_page([out], out / "page.html").read_text()
    )
