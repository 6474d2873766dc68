"""Canonical tasks, models trained side by side, built heads on every small input, and the command."""

import contextlib
import io
import math
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

import ropescope as rs
from ropescope import cli
from ropescope.models.built import h_mix, h_pos, h_single, h_sym, heads_of
from ropescope.studies.canonical import Settings, built, findings, sweeps
from ropescope.studies.canonical import run as study
from ropescope.studies.canonical.built import CASES, LIMITS, answers_of, first_lead, random_head, wrong_answers
from ropescope.tasks import IndexTask, PartialInductionTask, RetrievalTask
from ropescope.tasks.canonical import order_blind_accuracy
from ropescope.theory import (
    aimed_gap,
    attribute_counterexample,
    index_weights,
    latest_gap,
    order_counterexample,
    place_counterexample,
    retrieval_weights,
    single_best,
    single_gap,
)
from ropescope.training.stacked import Stacked, Training, train

INDEX = IndexTask(items=6, symbols=4)
RETRIEVAL = RetrievalTask(items=5, symbols=6, attributes=3)
PARTIAL = PartialInductionTask(items=6, symbols=3, attributes=3)
TASKS = [INDEX, RETRIEVAL, PARTIAL]
tasks = pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)


# Tasks


def by_hand(task, names: list[str]) -> tuple[str, int]:
    """Answer and place from the names of tokens, step by step."""
    *items, query = names
    if isinstance(task, IndexTask):
        return items[int(query)], int(query)
    place = max(place for place, name in enumerate(items) if name[0] == query)
    return items[place][1:], place


@tasks
def test_samples_are_solved_by_the_rule(task):
    samples = task.sample(600, seed=3)
    solution = task.solve(samples.tokens)
    assert (solution.answer == samples.answer).all()
    assert (solution.path == samples.path).all()
    for tokens, answer, path in zip(samples.tokens, samples.answer, samples.path, strict=True):
        name, place = by_hand(task, [task.vocabulary[i] for i in tokens])
        expected = name if isinstance(task, IndexTask) else int(name) - 1
        assert expected == (task.vocabulary[answer] if isinstance(task, IndexTask) else answer)
        assert path.tolist() == [task.items, place]


@tasks
def test_answers_stand_everywhere_equally_often_and_seeds_repeat(task):
    samples = task.sample(1000, seed=1)
    counts = np.bincount(samples.path[:, 1], minlength=task.items)[task.first_place :]
    assert counts.max() - counts.min() <= 1
    assert (task.sample(1000, seed=1).tokens == samples.tokens).all()
    assert (task.sample(1000, seed=2).tokens != samples.tokens).any()


def test_every_sample_of_partial_induction_needs_the_order():
    samples = PARTIAL.sample(500, seed=0)
    match = samples.tokens[:, :-1] // PARTIAL.attributes == samples.tokens[:, -1:] - PARTIAL.item_tokens
    assert match.sum(1).min() >= 2
    chances = []
    for tokens, same in zip(samples.tokens, match, strict=True):
        found = (tokens[:-1] % PARTIAL.attributes)[same].tolist()
        chances.append(max(found.count(x) for x in found) / len(found))
    assert order_blind_accuracy(PARTIAL, samples) == pytest.approx(np.mean(chances))


def test_every_input_is_every_input():
    assert sum(map(len, IndexTask(items=3, symbols=2).every_input())) == 2**3 * 3
    assert sum(map(len, RetrievalTask(items=2, symbols=3, attributes=2).every_input())) == 3 * 2 * 2**2 * 2
    assert sum(map(len, PartialInductionTask(items=2, symbols=2, attributes=2).every_input())) == 2 * (4**2 - 2**2)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: IndexTask(items=1), "items must be at least 2, not 1"),
        (lambda: IndexTask(symbols=27), "symbols must be at most 26"),
        (lambda: RetrievalTask(items=5, symbols=4), "symbols must be at least items = 5, not 4"),
        (lambda: RetrievalTask(attributes=1), "attributes must be at least 2"),
        (lambda: INDEX.sample(0, seed=0), "count must be at least 1"),
        (lambda: INDEX.solve(np.zeros((1, 3), dtype=np.int64)), "rows of 7 tokens"),
        (lambda: INDEX.solve(np.zeros((1, 7), dtype=np.int64)), "then one query"),
        (lambda: PARTIAL.solve(np.array([[0] * 6 + [10]])), "row 0 of tokens has no answer"),
        (lambda: RETRIEVAL.solve(np.array([[0] * 5 + [18]])), "has a symbol twice"),
        (lambda: Training(steps=0), "steps must be at least 1"),
        (lambda: Training(rate=0), "rate and spread must be positive"),
        (lambda: Stacked(4, 2, 3, [[0.1], [0.1, 0.2]], 1.0, 0), "equally many"),
        (lambda: Stacked(4, 2, 3, [], 1.0, 0), "at least one model"),
        (lambda: Stacked(4, 2, 3, [[math.nan]], 1.0, 0), "finite"),
        (lambda: Settings(slowest=2.0), "slowest must be above 0 and below fastest"),
        (lambda: Settings(seeds=1), "seeds and scored at least 2"),
        (lambda: Settings(symbols=4), "symbols must be at least items"),
        (lambda: Settings(steps=0), "steps must be at least 1"),
        (lambda: h_pos(angle=0.0), "two places look alike"),
        (lambda: h_sym(angle=0.1), "a place would count as much as a symbol"),
        (lambda: h_mix(angle=0.3), "the latest place would not stand out"),
        (lambda: h_mix(angle=0.0), "the latest place would not stand out"),
        (lambda: h_single(angle=0.1), "a place would count as much as a symbol"),
        (lambda: h_single(items=1), "items must be at least"),
        (lambda: place_counterexample(1, 2), "items and symbols must be at least 2"),
        (lambda: order_counterexample(2, 2, 1), "must be at least 2"),
        (lambda: attribute_counterexample(lambda x: np.zeros(len(x)), 3, 2, 2), "symbols at least items"),
    ],
)
def test_bad_input_is_one_sentence(call, says):
    with pytest.raises(ValueError, match=says):
        call()


# Training


def alone(task, angles, how, seed) -> list[dict[str, torch.Tensor]]:
    """One model trained by itself, plainly: keys and query really rotated, one optimiser, weights after every step."""
    start, drawn, _ = np.random.SeedSequence(seed).spawn(3)
    first = torch.from_numpy(np.random.default_rng(start).normal(0, how.spread, size=(2, task.vocab_size, 2 * len(angles))))
    weights = {"query": first[0].clone(), "key": first[1].clone()}
    weights |= {name: torch.zeros(task.vocab_size, task.answers, dtype=torch.float64) for name in ("value", "residual")}
    for table in weights.values():
        table.requires_grad_()
    data, rope = task.sample(how.steps * how.batch, drawn), rs.Rope(frequencies=angles)
    optimiser = torch.optim.AdamW(weights.values(), lr=how.rate, weight_decay=how.weight_decay, foreach=False)
    history = []
    for step in range(how.steps):
        losses = []
        for row in range(step * how.batch, (step + 1) * how.batch):
            ids = torch.from_numpy(data.tokens[row])
            query = rope.rotate(weights["query"][ids[-1]], len(ids) - 1)
            keys = rope.rotate(weights["key"][ids], torch.arange(len(ids)))
            put_out = (keys @ query).softmax(0) @ weights["value"][ids] + weights["residual"][ids[-1]]
            losses.append(F.cross_entropy(put_out, torch.tensor(data.answer[row])))
        optimiser.param_groups[0]["lr"] = how.rate * (1 - step / how.steps)
        optimiser.zero_grad()
        torch.stack(losses).mean().backward()
        optimiser.step()
        history.append({name: table.detach().clone() for name, table in weights.items()})
    return history


@pytest.mark.parametrize(
    ("task", "planes"),
    [(INDEX, [[0.0], [0.3], [1.5]]), (RETRIEVAL, [[0.0], [0.7]]), (PARTIAL, [[0.0, 0.2], [0.5, 0.01]])],
    ids=["index", "retrieval", "partial"],
)
def test_a_model_among_others_takes_the_steps_it_takes_alone(task, planes):
    how = Training(steps=8, batch=8, rate=0.05, weight_decay=0.01, spread=0.5, checks=2, tested=10)
    seen: list[dict[str, torch.Tensor]] = []

    def keep(step: int, models: Stacked) -> None:
        seen.append({name: table.detach().clone() for name, table in models.named_parameters()})

    train(task, planes, how, seed=4, dtype=torch.float64, on_step=keep)
    for model, angles in enumerate(planes):
        for together, single in zip(seen, alone(task, angles, how, seed=4), strict=True):
            for name, table in single.items():
                torch.testing.assert_close(together[name][model], table, rtol=0, atol=1e-9)
    assert not torch.allclose(seen[-1]["key"][0], seen[-1]["key"][1])  # angles do tell them apart


def test_one_of_the_models_is_the_engines_head():
    how = Training(steps=10, batch=16, rate=0.05, spread=0.5, checks=1, tested=50)
    models, seen = train(PARTIAL, [[0.0, 0.4], [0.1, 0.9]], how, seed=0, dtype=torch.float64)
    ids = torch.from_numpy(PARTIAL.sample(40, seed=1).tokens)
    put_out, weights = models(ids)
    for model in (0, 1):
        head = models.one(model)
        torch.testing.assert_close(head(ids)[:, -1], put_out[:, model].detach())
        real = rs.layer_logits(heads_of(head, ids.numpy()))[:, 0].diagonal(dim1=-2, dim2=-1).softmax(-1)
        torch.testing.assert_close(real, weights[:, model].detach())
    assert seen.steps.tolist() == [0, 10]
    assert np.isnan(seen.place[:, 0]).all()
    assert np.isfinite(seen.place[:, 1:]).all()
    torch.testing.assert_close(torch.from_numpy(seen.keys[-1]), models.key.detach().float())


@pytest.mark.slow
def test_training_learns_what_the_angle_allows():
    """A fast plane learns Index and not Retrieval, a still one the reverse; nothing is known beforehand."""
    how = Training(steps=400, batch=64, rate=0.05, spread=0.1, checks=1, tested=500)
    accuracy = [train(task, [[0.0], [1.0]], how, seed=0)[1].accuracy[-1] for task in (INDEX, RETRIEVAL)]
    assert min(accuracy[0][1], accuracy[1][0]) > 0.99
    assert max(accuracy[0][0], accuracy[1][1]) < 0.8


# Built heads


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.head}-{case.task.items}-{case.task.symbols}-{case.angle}")
def test_built_heads_are_right_on_every_input(case):
    inputs, wrong = wrong_answers(case.build(), case.task)
    assert inputs >= 8
    assert wrong == 0


def test_a_wrong_head_is_found_wrong():
    """H_SYM takes no notice of the order, H_MIX without its second plane neither."""
    task = PartialInductionTask(items=4, symbols=3, attributes=2)
    assert wrong_answers(h_sym(4, 3, 2), task)[1] > 100
    head = h_mix(4, 3, 2)
    head.get_buffer("key")[:, 1] = 0
    assert wrong_answers(head, task)[1] > 100


@pytest.mark.parametrize(
    ("head", "task", "gap"),
    [
        (h_sym(4, 4, 2, 0.3), RetrievalTask(items=4, symbols=4, attributes=2), aimed_gap(4, 4, 0.3)),
        (h_sym(3, 5, 2), RetrievalTask(items=3, symbols=5, attributes=2), aimed_gap(3, 5, 0.0)),
        (h_mix(5, 3, 2), PartialInductionTask(items=5, symbols=3, attributes=2), latest_gap(5, math.pi / 10)),
        (
            h_single(4, 4, 2, 0.1, 0.3),
            PartialInductionTask(items=4, symbols=4, attributes=2),
            single_gap(4, 4, 0.1, 0.3),
        ),
    ],
    ids=["H_SYM turning", "H_SYM", "H_MIX", "one plane"],
)
def test_leads_by_formula_are_those_of_the_heads(head, task, gap):
    """Over every input: the right key's logit minus the largest other."""
    least = math.inf
    for tokens in task.every_input():
        place = task.solve(tokens).path[:, 1]
        logits = rs.layer_logits(heads_of(head, tokens))[:, 0].diagonal(dim1=-2, dim2=-1).numpy() / head.beta
        right = logits[np.arange(len(tokens)), place]
        logits[np.arange(len(tokens)), place] = -np.inf
        least = min(least, float((right - logits.max(1)).min()))
    assert least == pytest.approx(gap, abs=1e-12)


def test_the_best_single_plane_is_no_worse_than_a_random_one():
    best, rng = single_best(6, 4), np.random.default_rng(0)
    for _ in range(2000):
        aim, angle = rng.uniform(0, math.pi / 4), rng.uniform(0, math.pi / 2 / 9)
        assert single_gap(6, 4, angle, aim) <= best.gap * 1.03  # what a grid may miss
    assert best.gap == single_gap(6, 4, best.angle, best.aim) > 0


def test_the_engine_sees_what_built_heads_are():
    scores = built.built_scores(Settings(), inputs=100)
    for name, kind in (
        ("H_POS, whole", "positional"),
        ("H_SYM, whole", "symbolic"),
        ("H_MIX, plane 0", "symbolic"),
        ("H_MIX, plane 0.0982", "positional"),
    ):
        other = {"positional": "symbolic", "symbolic": "positional"}[kind]
        assert scores[name][f"{kind}_range"][0] > 1 - 1e-9
        assert scores[name][f"{other}_range"][1] < 0.01
    assert all(row["accuracy"] in (None, 1.0) for row in scores.values())


# What pure heads cannot do


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(2, 4), st.integers(2, 4))
def test_symbolic_heads_put_out_the_same_where_answers_differ(seed, items, symbols, attributes):
    rng = torch.Generator().manual_seed(seed)
    for task, pair in (
        (IndexTask(items=items, symbols=symbols), place_counterexample(items, symbols, seed % items)),
        (
            PartialInductionTask(items=items, symbols=symbols, attributes=attributes),
            order_counterexample(items, symbols, attributes),
        ),
    ):
        first, second = task.solve(pair).answer
        assert first != second
        one, other = random_head(rng, task, positional=False)(torch.from_numpy(pair))[:, -1]
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(2, 4), st.booleans())
def test_positional_heads_with_a_linear_read_out_miss_one_of_two_inputs(seed, items, attributes, hard):
    task = RetrievalTask(items=items, symbols=items + seed % 2, attributes=attributes)
    head = random_head(torch.Generator().manual_seed(seed), task, positional=True)
    head.beta = 1e4 if hard else 1.0
    pair = attribute_counterexample(partial(first_lead, head), items, task.symbols, attributes)
    answers = task.solve(pair).answer
    assert sorted(answers.tolist()) == [0, 1]
    lead, lag = first_lead(head, pair) * (1 if answers[0] == 0 else -1)
    assert lead <= lag + 1e-12
    assert (answers_of(head, pair) != answers).any()
    also = PartialInductionTask(items=items, symbols=task.symbols, attributes=attributes)
    assert (also.solve(pair).answer == answers).all()


def test_heads_that_are_not_pure_escape():
    with pytest.raises(ValueError, match="not positional with a linear read-out"):
        attribute_counterexample(partial(first_lead, h_sym(**LIMITS)), **LIMITS)
    pair = place_counterexample(5, 3, 2)
    assert (answers_of(h_pos(5, 3, 0.8), pair) == IndexTask(items=5, symbols=3).solve(pair).answer).all()
    pair, task = order_counterexample(5, 3, 2), PartialInductionTask(items=5, symbols=3, attributes=2)
    for head in (h_mix(5, 3, 2), h_single(5, 3, 2)):
        assert (answers_of(head, pair) == task.solve(pair).answer).all()


def test_uniform_attention_does_retrieval_if_the_read_out_multiplies():
    inputs, wrong = built.bilinear_wrong(RetrievalTask(items=3, symbols=4, attributes=2))
    assert (inputs, wrong) == (4 * 3 * 2 * 2**3 * 3, 0)


# Theorem 7


@given(st.integers(3, 24), st.floats(0.01, 1), st.floats(0.1, 30))
def test_largest_weights_are_bent_as_the_theorem_says(items, share, beta):
    slow, half = share * math.pi / (items - 1), (items - 1) // 2
    for weights, sign in ((index_weights(items, slow, beta), 1), (retrieval_weights(items, slow, beta), -1)):
        np.testing.assert_allclose(weights, weights[::-1], rtol=1e-9)
        assert (sign * np.diff(weights)[:half] <= 1e-15).all()


def test_weights_by_formula_are_those_of_the_modules():
    shapes = built.weight_shapes(Settings(), inputs=2000)
    assert shapes["H_POS"]["largest_difference"] < 1e-12
    assert shapes["H_SYM"]["largest_difference"] < 1e-12
    assert shapes["H_POS"]["falls_then_rises"]
    assert shapes["H_SYM"]["rises_then_falls"]


# What the sweeps say


def test_crossings_are_found_where_they_are():
    angles = np.array([0.0, 0.01, 0.1, 1.0])
    assert findings.crossing(angles, np.array([0, 0, 0.5, 1]), np.array([1, 1, 0.5, 0])) == pytest.approx(0.1)
    assert findings.crossing(angles, np.array([0, 0, 0, 1]), np.array([1, 1, 1, 0])) == pytest.approx(math.sqrt(0.1))
    assert findings.crossing(angles, np.array([0, 0, 0, 0]), np.array([1, 1, 1, 1])) is None
    assert findings.crossing(angles, np.array([0, 0, 1, 0]), np.array([1, 1, 0, 1])) is None


def test_shapes_tell_a_u_from_chance():
    rng, x = np.random.default_rng(0), np.linspace(-1, 1, 12)
    noise, angles = rng.normal(0, 0.05, size=(6, 3, 12)), np.array([0.0, 0.1, 1.0])
    final = np.tile([0.0, 0.5, 1.0], (6, 1))
    bent, flat = (findings.shape(noise + c * x**2, final, angles) for c in (0.5, 0.0))
    assert bent["angle"] == flat["angle"] == 0.1
    assert bent["bend"] == pytest.approx(0.5, abs=0.1)
    assert bent["bend_p"] < 1e-3
    assert flat["bend_p"] > 0.05
    assert bent["ends"] > bent["middle"]


TINY = {
    "items": 4, "letters": 3, "symbols": 4, "repeated": 3, "few": 2, "attributes": 2, "angles": 3, "seeds": 2, "scored": 10,
    "steps": 12, "seed": 7,
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of the command on tiny sizes, and what it printed."""
    out = tmp_path_factory.mktemp("canonical") / "run"
    given = [text for name, value in TINY.items() for text in (f"--{name}", str(value))]
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setattr(built, "limits", partial(built.limits, heads=20))
        patch.setattr(study, "speed", partial(study.speed, steps=5))
        cli.app(["canonical", *given, "--out", str(out)], standalone_mode=False)
    return out, printed.getvalue()


@pytest.mark.slow
def test_the_command(finished):
    out, printed = finished
    result = rs.open_run(out)
    assert result.summary["command"] == "canonical"
    assert result.run.config["preset"] is None
    assert result.run.config["training"]["steps"] == 12
    assert result.run.results["built"]["every_input"]["wrong"] == 0
    for name in ("angles", "learning", "places", "trajectories"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    for part in ("A-2B-one-plane", "ours-4-single-angle", "as fast as one after the other"):
        assert part in printed
    assert "Index is solved" in result.headline
    assert {row.claim for row in result.claims()} >= {"A-T2", "A-C1-single-angle", "A-3B-keys", "A-5-knob-training"}
    data = result.dataset
    assert data["accuracy"].dims == ("sweep", "seed", "step", "angle")
    assert data["seed"].values.tolist() == [7, 8]
    means = data["accuracy"].isel(step=-1).mean("seed").sel(sweep="index")
    assert means.values.tolist() == pytest.approx(result.run.results["trained"]["sweeps"]["index"]["mean"], abs=1e-6)


@pytest.mark.slow
def test_a_run_is_resumed(finished, tmp_path, monkeypatch):
    """One unit lost and one cut short: these two are made again, the same, and no other is touched."""
    out = shutil.copytree(finished[0], tmp_path / "run")
    units = sorted((out / "units").iterdir())
    assert len(units) == 10
    before = {path.name: path.read_bytes() for path in units}
    units[0].unlink()
    units[3].write_bytes(before[units[3].name][:100])
    made, run_unit, results = [], sweeps.run_unit, rs.open_run(out).run.results
    monkeypatch.setattr(sweeps, "run_unit", lambda settings, unit: made.append(unit) or run_unit(settings, unit))
    monkeypatch.setattr(study, "built", lambda _: results["built"])  # neither stored nor changed
    monkeypatch.setattr(study, "speed", lambda _: results["speed"])
    monkeypatch.setattr("ropescope.studies.runner.write_chart", lambda *_: [])
    again = rs.run("canonical", out=out, **TINY)
    assert len(made) == 2
    assert again.run.results == results
    assert {path.name: path.read_bytes() for path in (out / "units").iterdir()} == before
    assert (out / "curves.json").read_bytes() == (finished[0] / "curves.json").read_bytes()


@pytest.mark.slow
def test_folders_of_something_else_and_unknown_presets_are_refused(finished, tmp_path):
    with pytest.raises(ValueError, match="holds a run with other settings"):
        rs.run("canonical", out=finished[0], **{**TINY, "seed": 8})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "note").write_text("")
    with pytest.raises(ValueError, match="holds other files but no run of canonical"):
        rs.run("canonical", out=tmp_path / "other", **TINY)
    with pytest.raises(ValueError, match="preset must be one of full, quick, not 'huge'"):
        cli.app(["canonical", "--preset", "huge", "--out", str(tmp_path / "new")], standalone_mode=False)
    with pytest.raises(ValueError, match="symbols must be at least items"):
        rs.run("canonical", symbols=3, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_presets_are_known_by_their_sizes():
    assert study.preset_of(Settings(seed=3)) == "full"
    assert study.preset_of(Settings(items=8, symbols=8)) is None
