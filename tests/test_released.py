"""Preset `released` trains as the script that came with the paper does."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import chisquare
from torch.nn import functional as F
from transformers import GPTJForCausalLM, Trainer

import ropescope as rs
from ropescope.models import gptj_steps
from ropescope.models.gptj import load_gptj, save_gptj
from ropescope.studies.by_recipe import RELEASED_BETAS
from ropescope.tasks import LetterTask
from ropescope.training import trainer
from ropescope.training.trainer import Recipe, recipe, train, train_step

SIZES = {"targets": 3, "stops": 3, "hops": 2, "alphabet": 6, "digits": 3, "share_query": True}
SMALL = replace(
    recipe("letter", "released", seed=2), task_sizes=SIZES, samples=(2_000, 60, 200), layers=2, width=16, mlp_width=32,
    batch=16, steps=60, warm_up=6, rate=1e-2, watch_every=20, probe=20, checkpoint_every=5,
)  # fmt: skip


# The recipe


def test_the_preset_is_the_released_script() -> None:
    for task, sizes in (("number", {}), ("letter", {"share_query": True})):
        settings = recipe(task, "released", seed=3).settings()
        changed = {name: value for name, value in settings.items() if value != recipe(task, seed=3).settings().get(name)}
        assert changed.pop("task_sizes", {}) == sizes
        assert changed == {"betas": (0.95, 0.999), "activation": "gelu", "clip": 1.0, "decay_all": False, "keep_best": True}
        assert list(settings["betas"]) == RELEASED_BETAS  # by which recorded runs are known
        assert (settings["rate"], settings["warm_up"], settings["steps"], settings["weight_decay"]) == (1e-4, 750, 6_750, 1e-4)
    fewer = recipe("letter", "released", changes=['task_sizes={"hops": 2}']).task_sizes
    assert fewer == {"share_query": True, "hops": 2}  # a change of sizes keeps the rule


@pytest.mark.parametrize("task", ["number", "letter"])
def test_settings_of_earlier_runs_are_as_they_were(task: str) -> None:
    stored = Path(__file__).parents[1] / "results" / f"{task}-1" / "config.json"
    assert json.dumps(recipe(task, "paper", seed=1).settings(), indent=2) + "\n" == stored.read_text()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"activation": "relu"}, "activation must be one of gelu_new, gelu, not 'relu'"),
        ({"clip": 0}, "clip must be above 0"),
        ({"clip": -1.0}, "clip must be a number, at least 0 and finite"),
        ({"task_sizes": {"share_query": 2}}, "task_sizes 'share_query' must be true or false, not 2"),
        ({"task_sizes": {"hops": True}}, "task_sizes 'hops' must be a whole number, not True"),
    ],
)
def test_entries_that_are_not_allowed_are_refused(change: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        replace(SMALL, **change)


def reference_steps(model: rs.GPTJ, batches: list, how: Recipe) -> dict[str, torch.Tensor]:
    """Weights after AdamW written out: clipping by the norm of all gradients, decay of weights that are no bias or norm."""
    weights = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
    first, second = ({name: torch.zeros_like(value) for name, value in weights.items()} for _ in range(2))
    for step, (ids, answer) in enumerate(batches):
        loss = F.cross_entropy(torch.func.functional_call(model, weights, (ids,))[:, -1], answer)
        gradients = dict(zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True))
        norm = torch.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
        assert norm > how.clip  # else clipping is not tested
        for name, value in weights.items():
            gradient = gradients[name] * (how.clip / (norm + 1e-6))  # the small number is that of torch
            rate, (b1, b2) = how.rate_at(step), how.betas
            first[name] = b1 * first[name] + (1 - b1) * gradient
            second[name] = b2 * second[name] + (1 - b2) * gradient**2
            decay = 0 if name.endswith("bias") or "norm" in name else how.weight_decay
            moved = first[name] / (1 - b1 ** (step + 1)) / ((second[name] / (1 - b2 ** (step + 1))).sqrt() + 1e-8)
            weights[name] = (value * (1 - rate * decay) - rate * moved).detach().requires_grad_()
    return weights


def test_steps_are_those_of_clipping_and_decay_written_out() -> None:
    torch.manual_seed(0)
    how = replace(SMALL, dropout=0.0, clip=0.05, weight_decay=0.5, warm_up=0)
    model = how.make_model().double()
    samples = how.make_task().sample(16 * 6, seed=0)
    batches = [(torch.from_numpy(samples.tokens[n::6]), torch.from_numpy(samples.answer[n::6])) for n in range(6)]
    expected = reference_steps(model, batches, how)
    optimiser = how.optimiser(model)
    for step, (ids, answer) in enumerate(batches):
        train_step(how, step, ids, answer, model, optimiser)
    for name, value in model.named_parameters():
        torch.testing.assert_close(value, expected[name], rtol=1e-7, atol=1e-9)


def test_what_decays_is_what_decays_in_transformers(tmp_path: Path) -> None:
    model = SMALL.make_model()
    decaying = {id(parameter) for parameter in SMALL.optimiser(model).param_groups[0]["params"]}
    assert [group["weight_decay"] for group in SMALL.optimiser(model).param_groups] == [SMALL.weight_decay, 0.0]
    save_gptj(model, tmp_path)
    theirs = GPTJForCausalLM.from_pretrained(tmp_path)
    names = Trainer.get_decay_parameter_names(Trainer.__new__(Trainer), theirs)
    shapes = Counter(tuple(dict(theirs.named_parameters())[name].shape) for name in names)
    assert shapes == Counter(tuple(value.shape) for value in model.parameters() if id(value) in decaying)
    assert len(decaying) == len(names) == 2 + 6 * SMALL.layers


# The activation


@pytest.mark.parametrize("tokens", [17, 300])
def test_exact_gelu_is_that_of_transformers(tokens: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = rs.GPTJ(rs.GPTJConfig(136, layers=4, heads=2, width=64, mlp_width=128, activation="gelu")).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    save_gptj(model, tmp_path / "ours")
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["activation_function"] == "gelu"
    theirs = GPTJForCausalLM.from_pretrained(tmp_path / "ours", dtype=torch.float64).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    back = load_gptj(tmp_path / "theirs")
    assert back.config == model.config
    ids = torch.randint(136, (2, tokens), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected, ours = theirs(ids).logits, model(ids)
        assert (ours - expected).abs().max() / expected.abs().max() <= 1e-6
        assert torch.equal(back(ids), ours)
        torch.testing.assert_close(gptj_steps.run(model, ids), ours[:, -1])
        tanh = rs.GPTJ(replace(model.config, activation="gelu_new")).double().eval()
        tanh.load_state_dict(model.state_dict())
        assert (tanh(ids) - expected).abs().max() / expected.abs().max() > 1e-5  # the two can be told apart


def test_other_activations_are_refused(tmp_path: Path) -> None:
    save_gptj(SMALL.make_model(), tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    for name in ("relu", ["gelu"]):
        (tmp_path / "config.json").write_text(json.dumps(settings | {"activation_function": name}))
        with pytest.raises(ValueError, match="another activation function"):
            load_gptj(tmp_path)


# Fillers of the letter task


def solved(names: list[str]) -> list[int]:
    """Positions of the path, by trying every earlier token at every hop; fails unless exactly one fits."""
    path = [len(names) - 1]
    while not names[path[-1]][1].isdigit():
        fitting = [place for place in range(path[-1]) if names[place][0] == names[path[-1]][1]]
        assert len(fitting) == 1, names
        path += fitting
    return path


@pytest.mark.parametrize("extra", [0, 20])
def test_released_fillers_leave_one_path_and_are_uniform(extra: int) -> None:
    task = LetterTask(share_query=True)
    samples = task.sample(10_000, seed=20, extra=extra)
    digits, letters, query_meets = Counter(), {h: Counter() for h in range(1, 5)}, {h: Counter() for h in range(1, 5)}
    for ids, answer, hops, path in zip(samples.tokens, samples.answer, samples.hops.tolist(), samples.path, strict=True):
        names = task.decode(ids)
        found = solved(names)
        assert found == path[path >= 0].tolist()
        assert len(found) == hops + 1
        assert names[found[-1]] == task.vocabulary[answer]
        taken = {names[place][0] for place in found[1:]}
        pool = sorted(set("abcdefgh") - taken)
        assert len(pool) == 8 - hops
        query = names[-1][0]
        letters[hops]["query", pool.index(query)] += 1
        for place, (one, other) in enumerate(names[:-1]):
            if place in found:
                continue
            letters[hops]["target" if other.isdigit() else "first", pool.index(one)] += 1
            query_meets[hops][one == query] += 1
            if other.isdigit():
                digits[other] += 1
            else:
                letters[hops]["second", pool.index(other)] += 1
    assert len(digits) == 8
    assert chisquare(list(digits.values())).pvalue > 1e-3
    for hops, counts in letters.items():
        for side in ("query", "target", "first", "second"):
            drawn = [counts[side, rank] for rank in range(8 - hops)]
            assert chisquare(drawn).pvalue > 1e-3, (hops, side)
        met, total = query_meets[hops][True], sum(query_meets[hops].values())
        share = 1 / (8 - hops)  # fillers do not know the query
        assert chisquare([met, total - met], [total * share, total * (1 - share)]).pvalue > 1e-3


def test_released_groups_behind_one_front_have_one_path() -> None:
    task = LetterTask(share_query=True)
    shared = 0
    for group in task.behind_one_front(task.sample(400, seed=3, extra=30), 16):
        assert (group.tokens[:, :30] == group.tokens[0, :30]).all()
        for ids, path in zip(group.tokens, group.path, strict=True):
            names = task.decode(ids)
            assert solved(names) == path[path >= 0].tolist()
            shared += any(name[0] == names[-1][0] for name in names[:30])
    assert shared > 200  # the query's letter is one of the fillers'


def test_the_rule_needs_one_letter_less_and_is_off_unless_asked_for() -> None:
    task = LetterTask(alphabet=5, share_query=True)
    assert (task.solve(task.sample(500, seed=0).tokens).answer == task.sample(500, seed=0).answer).all()
    with pytest.raises(
        ValueError, match=r"alphabet is 4 but the tokens of 4 hops begin with 4 different letters .* at least 5"
    ):
        LetterTask(alphabet=4, share_query=True)
    usual = LetterTask().sample(500, seed=0)
    names = [LetterTask().decode(ids) for ids in usual.tokens]
    assert not any(name[0] == row[-1][0] for row in names for name in row[:-1])


# The best checkpoint


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("released")
    train(SMALL, folder, snapshots=True)
    return folder


def test_the_model_is_the_earliest_of_the_best_checkpoints(finished: Path) -> None:
    data = trainer.split(SMALL.make_task(), SMALL.samples, SMALL.seed)
    right = {}
    for folder in sorted((finished / "snapshots").iterdir()):
        with torch.inference_mode():
            logits = load_gptj(folder)(torch.from_numpy(data["validation"].tokens))[:, -1]
        right[folder] = int((logits.argmax(-1).numpy() == data["validation"].answer).sum())
    most = [folder for folder, count in right.items() if count == max(right.values())]
    assert most[0] != list(right)[-1]  # best and last are not the same here
    assert len(most) > 1  # and there is a tie
    model, last = (finished / name / "model.safetensors" for name in ("model", "last"))
    assert model.read_bytes() == (most[0] / "model.safetensors").read_bytes()
    assert last.read_bytes() == (list(right)[-1] / "model.safetensors").read_bytes()
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["results"]["best_step"] == int(most[0].name.removeprefix("step-"))
    assert summary["results"]["best_validation_accuracy"] == max(right.values()) / 60
    for name, folder in (("test_accuracy", "model"), ("last_test_accuracy", "last")):
        again = trainer.evaluate(load_gptj(finished / folder), data["test"])
        assert again.tolist() == pytest.approx(list(summary["results"][name].values()), abs=1e-6)
    assert {"model/model.safetensors", "last/model.safetensors"} <= set(summary["sha256"])


class StoppedError(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize("moments", [(7,), (11, 31, 52), tuple(range(4, 60, 9)), (59, 60)])
@pytest.mark.slow
def test_stopped_at_any_step_and_resumed_is_the_same_run(moments: tuple[int, ...], finished: Path, tmp_path: Path) -> None:
    for moment in moments:

        def stop(step: int, *_: object, moment: int = moment) -> None:
            if step == moment:
                raise StoppedError

        with pytest.raises(StoppedError):
            train(SMALL, tmp_path, resume=True, on_step=stop)
        assert not (tmp_path / "model").exists()
    train(SMALL, tmp_path, resume=True)
    for name in ("model/model.safetensors", "last/model.safetensors", "history.safetensors", "checkpoint.safetensors"):
        assert (tmp_path / name).read_bytes() == (finished / name).read_bytes(), name
    one, other = (json.loads((folder / "summary.json").read_text())["results"] for folder in (tmp_path, finished))
    assert {**one, "seconds": 0, "steps_timed": 0} == {**other, "seconds": 0, "steps_timed": 0}


def test_a_checkpoint_without_its_best_weights_is_not_used(finished: Path, tmp_path: Path) -> None:
    arrays = load_file(finished / "checkpoint.safetensors")
    rest = {name: value.numpy() for name, value in arrays.items() if not name.startswith("best.model.readout")}
    for name in ("config.json", "history.safetensors"):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    (tmp_path / "checkpoint.safetensors").write_bytes(rs.runs.packed_arrays(rest))
    with pytest.raises(ValueError, match="damaged checkpoint"):
        train(SMALL, tmp_path, resume=True)


def test_watching_for_the_best_changes_no_step(finished: Path, tmp_path: Path) -> None:
    train(replace(SMALL, keep_best=False), tmp_path)
    assert (tmp_path / "model/model.safetensors").read_bytes() == (finished / "last/model.safetensors").read_bytes()
    assert np.array_equal(*(load_file(folder / "history.safetensors")["positional"].numpy() for folder in (tmp_path, finished)))
