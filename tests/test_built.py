"""The built models do what their arguments say, and the engine sees them for what they are."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ropescope as rs
from ropescope.models.built import OneHead, heads_of, sufficient_beta, uniform_retrieval
from ropescope.studies.theory.run import CASES, last_answers, last_weights, output_distance, random_head
from ropescope.tasks import LetterTask, NumberTask
from ropescope.tasks.functions import index, retrieval
from ropescope.theory import index_counterexample, index_gaps, retrieval_counterexample, retrieval_least

NUMBER, LETTER = NumberTask(), LetterTask()
ALPHABET, DIGITS, LETTERS, INTEGERS = 3, 2, 11, 4  # 15 tokens either way, so that one head reads both tasks


def case_name(case) -> str:
    return f"{case.function}-{case.symbols}-{case.others}-{case.longest}-{case.angle:.2f}"


cases = pytest.mark.parametrize("case", CASES, ids=case_name)


# The ideal functions


def test_index_by_hand():
    ids = NUMBER.encode("b a 2 2 1 4 9")[None]
    hop = index(NUMBER, ids)
    assert NUMBER.decode(hop.holds[0, :-1]) == ["b", "a", "b", "a", "1", "a"]  # the integer 1 finds an integer and stays
    assert hop.looks_at.tolist() == [[0, 1, 0, 1, 3, 1, -1]]
    assert hop.holds[0, -1] == -1
    assert hop.places.tolist() == [[1, 1, 1, 1, 1, 1, 0]]


def test_retrieval_by_hand():
    ids = LETTER.encode("c2 b1 c3 fa bb ec db")[None]
    hop = retrieval(LETTER, ids)
    assert hop.looks_at.tolist() == [[0, 1, 2, -1, 4, 2, 4]]  # the nearest; bb is its own
    assert hop.places.tolist() == [[1, 1, 2, 0, 2, 2, 2]]
    assert hop.holds[0, 3] == -1
    assert LETTER.decode(hop.holds[0, [0, 2, 5, 6]]) == ["c2", "c3", "c3", "bb"]


@pytest.mark.parametrize(("task", "function"), [(NUMBER, index), (LETTER, retrieval)], ids=["number", "letter"])
def test_the_first_hop_of_every_sample_is_that_of_the_solver(task, function):
    samples = task.sample(500, seed=1)
    hop = function(task, samples.tokens)
    assert (hop.looks_at[:, -1] == samples.path[:, 1]).all()
    assert (hop.places[:, -1] == 1).all()
    arrived = samples.hops == 1
    assert (hop.holds[arrived, -1] == samples.answer[arrived]).all()


# The constructions


@cases
def test_right_on_every_input(case):
    model, valid = case.build(), 0
    for tokens in case.inputs():
        defined, wrong = last_answers(model, case.ideal(tokens), tokens)
        assert wrong == 0, tokens.shape
        valid += defined
    assert valid > 1000


@cases
@pytest.mark.slow
def test_the_gap_for_which_beta_is_chosen_is_the_smallest_there_is(case):
    """lambda by formula is that of the model's own logits, over every input with one right answer; so it is exact."""
    model, smallest = case.build(), math.inf
    for tokens in list(case.inputs())[1:]:
        hop = case.ideal(tokens)
        valid = hop.places[:, -1] == 1
        M = rs.layer_logits(heads_of(model, tokens[valid]))[:, 0]
        right = torch.from_numpy(hop.looks_at[valid, -1])
        logits = M.diagonal(dim1=-2, dim2=-1) / model.beta
        assert (logits.argmax(-1) == right).all()
        torch.testing.assert_close(rs.gap(logits), rs.margin(logits, right))
        smallest = min(smallest, float(rs.gap(logits).min()))
    if case.function == "index":
        stated = index_gaps(case.longest - 1, case.angle)[-1]
    else:
        stated = retrieval_least(case.longest, case.angle, case.symbols)
    assert smallest == pytest.approx(stated, rel=1e-9)


@pytest.mark.parametrize(
    ("model", "task", "function"),
    [
        (rs.t_index(), NUMBER, index),
        (rs.t_retrieval(), LETTER, retrieval),
        (rs.t_retrieval(angle=0.0), LETTER, retrieval),
        (uniform_retrieval(), LETTER, retrieval),
    ],
    ids=["index", "retrieval", "retrieval without turning", "uniform"],
)
def test_right_on_random_inputs_of_the_papers_size(model, task, function):
    tokens = task.sample(2000, seed=3).tokens
    hop = function(task, tokens)
    answers = model(torch.from_numpy(tokens)).argmax(-1).numpy()
    valid = hop.places == 1
    assert valid[:, -1].all()
    assert (answers == hop.holds)[valid].all()


def test_too_warm_a_softmax_is_wrong():
    """So the temperature does matter, and the tests above can fail."""
    tokens = NUMBER.sample(500, seed=0).tokens
    warm = rs.t_index(beta=rs.t_index().beta / 20)
    answers = warm(torch.from_numpy(tokens))[:, -1].argmax(-1).numpy()
    assert (answers != index(NUMBER, tokens).holds[:, -1]).any()


@given(st.integers(2, 40), st.floats(1e-3, 2), st.floats(0.1, 10), st.floats(0.01, 5), st.integers(0, 2**32 - 1))
def test_the_sufficient_beta_suffices(keys, logit_gap, value_norm, readout_gap, seed):
    """Any values of that norm with that lead, in the worst case of logits: all others just below the best one."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(keys, 6))
    values *= value_norm / np.linalg.norm(values, axis=1, keepdims=True)
    residual = np.where(np.arange(6) == 2, 0, -(values[0] - values[0, 2]).max() - readout_gap)  # coordinate 2 leads by that
    beta = sufficient_beta(keys, logit_gap, value_norm, readout_gap)
    weights = np.exp(-beta * logit_gap * (np.arange(keys) > 0))
    hard, soft = residual + values[0], residual + weights @ values / weights.sum()
    assert np.delete(hard[2] - hard, 2).min() >= readout_gap * (1 - 1e-9)
    assert soft.argmax() == 2


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: rs.t_index(angle=0.0), "angle 0.0 turns some distance"),
        (lambda: rs.t_index(angle=2 * math.pi / 16), "by a multiple of 2 pi"),
        (lambda: rs.t_index(angle=2 * math.pi * 3 / 7), "by a multiple of 2 pi"),
        (lambda: rs.t_retrieval(angle=-0.001), "angle must be at least 0"),
        (lambda: rs.t_retrieval(angle=2 * math.pi / 8 / 34), "a place would count as much as a letter"),
        (lambda: rs.t_retrieval(longest=146), "below 2 pi / alphabet"),
        (lambda: rs.t_index(letters=0), "letters must be at least 1, not 0"),
        (lambda: rs.t_retrieval(alphabet=1), "alphabet must be at least 2, not 1"),
        (lambda: rs.t_index(longest=0), "longest must be at least 1"),
        (lambda: rs.t_index(beta=0.0), "beta must be a positive number"),
    ],
)
def test_sizes_and_angles_that_cannot_work_are_refused(build, says):
    with pytest.raises(ValueError, match=says):
        build()


def test_sizes_and_angles_at_the_edge_are_accepted():
    rs.t_index(angle=2 * math.pi / 17)  # 17 tokens are at most 16 apart
    rs.t_retrieval(angle=0.999 * 2 * math.pi / 8 / 34)
    assert rs.t_index(longest=1).beta > 0


# What the engine says of them


def scores(model: OneHead, task):
    M = rs.layer_logits(heads_of(model, task.sample(200, seed=5).tokens))[:, 0]
    return rs.swap_scores(M), rs.variance_shares(M)


def test_t_index_is_positional():
    score, share = scores(rs.t_index(), NUMBER)
    assert score.positional.min() > 1 - 1e-12
    assert score.symbolic.max() < 1e-9
    assert share.position.min() > 1 - 1e-12


def test_t_retrieval_without_turning_is_exactly_symbolic():
    score, share = scores(rs.t_retrieval(angle=0.0), LETTER)
    assert score.symbolic.min() > 1 - 1e-12
    assert score.positional.max() < 1e-4
    assert share.symbol.min() > 1 - 1e-12


def test_t_retrieval_is_symbolic_but_for_its_slow_turning():
    score, share = scores(rs.t_retrieval(), LETTER)
    assert score.symbolic.min() > 0.999
    assert score.positional.max() < 1e-4
    assert 0.99 < share.symbol.min() < 1 - 1e-6


def test_the_heads_handed_over_are_those_that_ran():
    model, ids = rs.t_index(), torch.from_numpy(NUMBER.sample(50, seed=0).tokens)
    weights = rs.layer_logits(heads_of(model, ids.numpy()))[:, 0].diagonal(dim1=-2, dim2=-1).softmax(-1)
    values, own = model.get_buffer("value")[ids], model.get_buffer("residual")[ids[:, -1]]
    torch.testing.assert_close(model(ids)[:, -1], own + (weights[:, None] @ values)[:, 0])


# Remark 3.1


@given(st.integers(0, 2**32 - 1), st.integers(3, 8), st.data())
def test_no_symbolic_head_computes_index(seed, length, data):
    back = data.draw(st.integers(1, min(INTEGERS, length - 1)))
    pair = index_counterexample(LETTERS, length, back)
    task = NumberTask(targets=1, stops=0, hops=1, letters=LETTERS, integers=INTEGERS)
    first, second = index(task, pair).holds[:, -1]
    assert first != second
    random = random_head(torch.Generator().manual_seed(seed), positional=False)
    for head in (random, rs.t_retrieval(ALPHABET, DIGITS, 0.0, length)):
        assert output_distance(head, pair) < 1e-12
    assert output_distance(rs.t_index(LETTERS, INTEGERS, 0.8, length), pair) > 0.5  # which is not symbolic


@given(st.integers(0, 2**32 - 1), st.integers(3, 8))
def test_positional_heads_hardly_tell_the_inputs_of_retrieval_apart(seed, length):
    head = random_head(torch.Generator().manual_seed(seed), positional=True)
    pair = retrieval_counterexample(lambda tokens: last_weights(head, tokens), ALPHABET, DIGITS, length)
    task = LetterTask(targets=1, stops=0, hops=1, alphabet=ALPHABET, digits=DIGITS)
    hop = retrieval(task, pair)
    assert hop.places[:, -1].tolist() == [1, 1]
    assert hop.holds[0, -1] != hop.holds[1, -1]
    weights = last_weights(head, pair[:1])
    np.testing.assert_allclose(weights, last_weights(head, pair[1:]), atol=1e-12)
    place = int(hop.looks_at[0, -1])
    assert weights[place] <= 1 / (length - 1)
    one, other = head.get_buffer("value")[torch.from_numpy(pair[:, place])]
    assert output_distance(head, pair) == pytest.approx(weights[place] * float((one - other).norm()), abs=1e-12)


def test_t_index_does_not_compute_retrieval():
    head = rs.t_index(LETTERS, INTEGERS, 0.8, 5)
    pair = retrieval_counterexample(lambda tokens: last_weights(head, tokens), ALPHABET, DIGITS, 5)
    assert output_distance(head, pair) < 1e-6
    same = head(torch.from_numpy(pair))[:, -1].argmax(-1)
    assert same[0] == same[1]


@pytest.mark.parametrize("case", [case for case in CASES if case.function == "retrieval"], ids=case_name)
def test_uniform_attention_computes_retrieval_by_its_read_out(case):
    """Hence the assumption of hard attention in the remark: softmax heads can be told to look nowhere."""
    model = uniform_retrieval(case.symbols, case.others)
    for tokens in case.inputs():
        assert last_answers(model, case.ideal(tokens), tokens)[1] == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: index_counterexample(1),
        lambda: index_counterexample(5, length=2),
        lambda: index_counterexample(5, length=4, back=4),
        lambda: retrieval_counterexample(lambda tokens: np.ones(3), 1, 2),
    ],
)
def test_counterexamples_need_room(call):
    with pytest.raises(ValueError, match="at least 2"):
        call()
