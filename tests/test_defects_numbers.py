"""Numbers that once were wrong or missing: each test is named after the defect and compares with an independent result."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from precise import precise_scores
from transformers import AutoModelForCausalLM

import ropescope as rs
from ropescope.measures.registry import compute, measures
from ropescope.measures.view import LayerView
from ropescope.studies.conformance.families import WINDOW, tiny

ROPE = rs.Rope(head_dim=4)
DRAWS = torch.Generator().manual_seed(0)
QUERY, KEYS = torch.randn(4, generator=DRAWS), torch.randn(6, 4, generator=DRAWS)
M = rs.counterfactual_logits(QUERY, KEYS, ROPE)
HEADS = rs.Heads(torch.randn(1, 2, 6, 4, generator=DRAWS), torch.randn(1, 2, 6, 4, generator=DRAWS), ROPE, 0.5)


def diagonal_heads(logits, **settings):
    """One head whose real logits are these, whatever the positions."""
    logits = torch.tensor(logits, dtype=torch.float64)
    queries = torch.ones(1, 1, len(logits), 1, dtype=torch.float64)
    return rs.Heads(queries, logits.view(1, 1, -1, 1), rs.Rope(head_dim=1, rotary_dim=0), 1.0, **settings)


# One normalisation of entropy.

ENTROPIES = {
    "two of four keys": ([0.0, 0.0, -1000.0, -1000.0], {}, 0.5),
    "equal weights": ([3.0] * 5, {}, 1.0),
    "one key has all": ([0.0, -2000.0, -2000.0, -3000.0], {}, 0.0),
    "equal weights in a window": ([9.0, 9.0, 0.0, 0.0, 0.0], {"window": 3}, 1.0),
    "two of three keys in a window": ([9.0, 9.0, -1000.0, 0.0, 0.0], {"window": 3}, math.log(2) / math.log(3)),
    "equal weights beside a sink": ([1.0, 1.0, 1.0], {"sinks": torch.tensor([5.0])}, 1.0),
}


@pytest.mark.parametrize(("logits", "settings", "expected"), ENTROPIES.values(), ids=ENTROPIES)
@pytest.mark.parametrize("blocks", [None, [(0, 1), (1, 2)]], ids=["tokens", "blocks"])
def test_entropy_is_normalised_by_visible_keys_everywhere(logits, settings, expected, blocks):
    heads = diagonal_heads(logits, **settings)
    view = LayerView(heads, rs.layer_factors(heads), blocks)
    measured = compute(view, [measures()["entropy"]])["entropy"]
    torch.testing.assert_close(measured, torch.full((1, 1), expected, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(rs.entropy(rs.layer_logits(heads)), measured, atol=1e-12, rtol=0)


# Overflow.

HUGE = torch.zeros(6, 6, dtype=torch.float64)
HUGE[0, 1], HUGE[1, 0], HUGE[2, 2], HUGE[1, 1], HUGE[3, 0] = 1e308, -1e308, 1.7e308, -1.7e308, 1.2e308


def ranked(logits):
    """A matrix whose logits are far apart in the same order: cosines and weights are those of the limit of huge logits."""
    values = sorted(set(logits.flatten().tolist()))
    spread = {value: 1e4 * n * n for n, value in enumerate(values)}
    return torch.tensor([[spread[value] for value in row] for row in logits.tolist()], dtype=torch.float64)


def test_scores_of_huge_logits_are_those_of_the_limit():
    swaps = rs.swap_scores(HUGE), rs.swap_scores(ranked(HUGE))
    some = torch.tensor(list(itertools.permutations(range(5)))[1:])
    permuted = rs.permutation_scores(HUGE, some), rs.permutation_scores(ranked(HUGE), some)
    for huge, limit in (swaps, permuted):
        torch.testing.assert_close(torch.stack(huge), torch.stack(limit), atol=1e-9, rtol=0)
    assert float(rs.entropy(HUGE)) == 0


@pytest.mark.parametrize("unit", [2.0**-600, 1e-3, 1.0, 1e12, 2.0**600, 2.0**1000])
def test_shares_do_not_depend_on_the_unit_of_logits(unit):
    torch.testing.assert_close(
        torch.stack(rs.variance_shares(M * unit)), torch.stack(rs.variance_shares(M)), atol=1e-12, rtol=0
    )


def test_weights_that_overflow_single_precision_are_computed_in_double():
    large = rs.Heads(HEADS.queries.double() * 1e25, HEADS.keys.double() * 1e25, ROPE, 0.5)
    rows = torch.tensor([3, 5])
    torch.testing.assert_close(rs.attention_weights(large, rows, single=True), rs.attention_weights(large, rows))


BIG = torch.full((6, 4), 1e200, dtype=torch.float64)
OVERFLOWS = {
    "products of query and keys": lambda: rs.counterfactual_logits(BIG[0], BIG, ROPE),
    "planes": lambda: rs.counterfactual_logits(BIG[0], BIG, ROPE, by_plane=True),
    "scale": lambda: rs.counterfactual_logits(QUERY, KEYS, ROPE, scale=1e308),
    "bounded scores": lambda: rs.bounded_swap_scores(rs.logit_factors(BIG[0], BIG, ROPE)),
    "attention weights": lambda: rs.attention_weights(rs.Heads(BIG[None, None], BIG[None, None], ROPE, 1.0), torch.tensor([5])),
    "variance": lambda: rs.exclusion(HUGE),
    "gap": lambda: rs.gap(torch.tensor([1.7e308, -1.7e308], dtype=torch.float64)),
    "margin": lambda: rs.margin(torch.tensor([1.7e308, -1.7e308], dtype=torch.float64), 1),
}


@pytest.mark.parametrize("call", OVERFLOWS.values(), ids=OVERFLOWS)
def test_overflow_is_an_error_and_never_nan(call):
    with pytest.raises(ValueError, match="overflow") as caught:
        call()
    assert "\n" not in str(caught.value)


MEASURES = (rs.swap_scores, rs.permutation_scores, rs.variance_shares, rs.exclusion, rs.entropy)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [(1, 2), (3, 3)])
@pytest.mark.parametrize("measure", MEASURES)
def test_nan_and_infinite_logits_are_refused(measure, place, value):
    broken = M.clone()
    broken[place] = value
    with pytest.raises(ValueError, match="M holds NaN or infinite logits"):
        measure(broken)


@pytest.mark.parametrize("alibi", [math.inf, torch.tensor(math.nan), torch.tensor([0.5, -math.inf])])
def test_alibi_that_is_not_finite_is_refused(alibi):
    with pytest.raises(ValueError, match="alibi must be finite"):
        rs.counterfactual_logits(QUERY.expand(2, 4), KEYS.expand(2, 6, 4), ROPE, alibi=alibi)


# Fractions and truth values are not cut off to whole numbers.

NOT_WHOLE = [2.5, 2.0, np.float64(2.0), np.float32(2.5), True, np.True_, torch.tensor(2.0), torch.tensor(True), "2", None]
NUMBER = rs.NumberTask()


def model():
    return rs.GPTJ(rs.GPTJConfig(vocab_size=8, layers=1, width=8, mlp_width=8))


TAKES_ONE = {
    "query_position": lambda x: rs.counterfactual_logits(QUERY, KEYS, ROPE, query_position=x),
    "query_position of factors": lambda x: rs.logit_factors(QUERY, KEYS, ROPE, query_position=x),
    "query_position of a layer": lambda x: rs.layer_logits(HEADS, query_position=x),
    "window": lambda x: rs.counterfactual_logits(QUERY, KEYS, ROPE, window=x),
    "blocks": lambda x: rs.swap_scores(M, blocks=[(0, 1), (x, 4)]),
    "blocks of bounded scores": lambda x: rs.bounded_swap_scores(rs.logit_factors(QUERY, KEYS, ROPE), blocks=[(0, 1), (x, 4)]),
    "blocks of block_logits": lambda x: rs.block_logits(rs.logit_factors(QUERY, KEYS, ROPE), [(0, 1), (2, x)]),
    "blocks of shares": lambda x: rs.variance_shares(M, blocks=[(0, 1), (x, 4)]),
    "blocks of a prompt": lambda x: rs.Prompt(np.arange(6), ((0, 1), (x, 4)), tuple("abcdef")),
    "permutations": lambda x: rs.permutation_scores(M, x),
    "right": lambda x: rs.margin(M[0], x),
    "head_dim": lambda x: rs.Rope(head_dim=x, frequencies=[1.0]),
    "rotary_dim": lambda x: rs.Rope(head_dim=4, rotary_dim=x),
    "count of samples": lambda x: NUMBER.sample(x, seed=0),
    "head to remove": lambda x: rs.intervene(model(), rs.remove_heads([(0, x)])).__enter__(),
    "plane to stop": lambda x: rs.intervene(model(), {0: rs.LayerChange(stopped=(x,))}).__enter__(),
    "plane to drop": lambda x: rs.drop_planes(model(), {0: [x]}),
}
NONE_IS_DEFAULT = {
    "query_position",
    "query_position of factors",
    "query_position of a layer",
    "window",
    "rotary_dim",
    "head_dim",
}


@pytest.mark.parametrize("name", TAKES_ONE)
@pytest.mark.parametrize("value", NOT_WHOLE, ids=repr)
def test_what_is_no_whole_number_is_refused(name, value):
    if value is None and name in NONE_IS_DEFAULT:
        TAKES_ONE[name](None)
        return
    with pytest.raises(ValueError, match=r"whole number|must be a number") as caught:
        TAKES_ONE[name](value)
    assert "\n" not in str(caught.value)


IDS = [1, 2, 3, 4, 5, 6]
TAKES_MANY = {
    "query_position": lambda x: rs.counterfactual_logits(QUERY.expand(5, 4), KEYS, ROPE, query_position=torch.as_tensor(x)[:5]),
    "rows": lambda x: rs.attention_weights(HEADS, torch.as_tensor(x)[:5]),
    "ids of a prompt": lambda x: rs.Prompt(x, ((0, 1), (2, 4)), tuple("abcdef")),
    "ids of profile": lambda x: rs.profile(model(), [x], planes=False, sensitivity=False),
    "ids of a task": NUMBER.decode,
    "permutations": lambda x: rs.permutation_scores(M, torch.as_tensor([[0, 1, 2, 4, 3]]).to(torch.as_tensor(x).dtype)),
}


@pytest.mark.parametrize("name", TAKES_MANY)
def test_arrays_of_floats_are_not_cut_off_to_whole_numbers(name):
    TAKES_MANY[name](np.array(IDS))
    TAKES_MANY[name](torch.tensor(IDS))
    for values in (np.array(IDS) + 0.5, np.array(IDS, dtype=float), torch.tensor(IDS).float(), np.array(IDS) > 3):
        with pytest.raises(ValueError, match="must be whole numbers"):
            TAKES_MANY[name](values)


def test_a_truth_value_among_token_ids_is_refused():
    with pytest.raises(ValueError, match="must be whole numbers"):
        rs.profile(model(), [[1, True, 3, 4]])


@pytest.mark.parametrize("tau", [True, [True], "1", b"1", None, [1e-4, None], 1j, [[1e-4]], np.True_, torch.tensor(True)])
def test_tau_that_is_no_number_is_refused(tau):
    for call in (rs.swap_scores, lambda M, tau: rs.permutation_scores(M, 5, tau)):
        with pytest.raises(ValueError, match="tau must be"):
            call(M, tau=tau)
    with pytest.raises(ValueError, match="tau must be"):
        rs.bounded_swap_scores(rs.logit_factors(QUERY, KEYS, ROPE), tau=tau)


@pytest.mark.parametrize("tau", [np.float64(1e-2), np.array(1e-2), torch.tensor(1e-2, dtype=torch.float64)])
def test_one_tau_of_numpy_or_torch_is_one_tau(tau):
    assert rs.swap_scores(M, tau=tau) == rs.swap_scores(M, tau=1e-2)
    factors = rs.logit_factors(QUERY, KEYS, ROPE)
    assert rs.bounded_swap_scores(factors, tau=tau) == rs.bounded_swap_scores(factors, tau=1e-2)


# The certificate of bounded scores.

TAUS = [1.0, 1e-4, 1e-8, 1e-9, 1e-10, 1e-12, 1e-15]
SETTINGS = [{}, {"soft_cap": 2.0}, {"window": 8}, {"alibi": 0.3}]


@settings(max_examples=40)
@given(
    tokens=st.integers(3, 12),
    size=st.sampled_from([0.0, 1e-9, 1e-6, 1e-3, 0.5, 3.0, 200.0]),
    tau=st.sampled_from(TAUS),
    tolerance=st.sampled_from([0.0, 1e-12, 1e-6, 1e-2]),
    how=st.sampled_from(SETTINGS),
    seed=st.integers(0, 1000),
)
def test_bounded_scores_hold_their_certificate_at_every_tau(tokens, size, tau, tolerance, how, seed):
    draws = torch.Generator().manual_seed(seed)
    query, keys = torch.randn(4, generator=draws) * size, torch.randn(tokens, 4, generator=draws)
    factors = rs.logit_factors(query, keys, ROPE, **how)
    scores, exact = rs.bounded_swap_scores(factors, tau, tolerance=tolerance), precise_scores(factors, tau)
    bound = float(scores.omitted) + float(scores.rounding)
    for ours, right in zip(scores[:2], exact, strict=True):
        assert abs(float(ours) - right) <= bound
    assert float(scores.omitted) <= tolerance
    assert float(scores.rounding) < max(1e-12, 1e-11 / tau)  # no empty promise


def test_rounding_of_bounded_scores_does_not_grow_as_tau_shrinks():
    """The largest error was 1e-14 / tau: 3e-6 at tau = 1e-12. What rounds is the weights, not their quotients by tau."""
    draws = torch.Generator().manual_seed(3)
    factors = rs.logit_factors(torch.randn(4, generator=draws), torch.randn(14, 4, generator=draws), ROPE)
    for tau in TAUS:
        for ours, right in zip(rs.bounded_swap_scores(factors, tau, tolerance=0), precise_scores(factors, tau), strict=False):
            assert abs(float(ours) - right) < 1e-12


def test_bounded_scores_of_blocks_hold_their_certificate():
    draws = torch.Generator().manual_seed(1)
    factors = rs.logit_factors(torch.randn(4, generator=draws), torch.randn(13, 4, generator=draws), ROPE)
    blocks = [(0, 3), (3, 6), (7, 10)]
    for tau in TAUS:
        scores, exact = rs.bounded_swap_scores(factors, tau, blocks), precise_scores(factors, tau, blocks)
        bound = float(scores.omitted) + float(scores.rounding)
        assert all(abs(float(ours) - right) <= bound for ours, right in zip(scores, exact, strict=False))


# Chunked attention is no sliding window.


def read_all(model, ids, queries=None):
    reads = []
    rs.Adapter(model).read(ids, reads.append, queries=queries)
    return reads


@pytest.mark.parametrize("tokens", [WINDOW - 1, 2 * WINDOW, 4 * WINDOW - 1])
def test_llama_4_sees_its_own_chunk_at_every_query(tokens):
    model = tiny("llama4_text")
    model.set_attn_implementation("eager")
    ids = torch.randint(4, 12, (1, tokens), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        own = [weights.double() for weights in model(input_ids=ids, output_attentions=True, use_cache=False).attentions]
    rows = torch.arange(1, tokens)
    for read, weights in zip(read_all(model, ids), own, strict=True):
        torch.testing.assert_close(rs.attention_weights(read.heads, torch.arange(tokens)), weights, atol=1e-6, rtol=0)
        for at in range(tokens):  # M at every query: what is visible, and the weights that follow
            diagonal = rs.layer_factors(read.heads, at).diagonal()
            torch.testing.assert_close(diagonal.softmax(-1), weights[:, :, at, : at + 1], atol=1e-6, rtol=0)
        view = LayerView(read.heads, read.factors, None, ids)
        names = ("previous_token", "induction", "sink")
        found = compute(view, [measures()[name] for name in names])
        same = (ids[0, rows, None] == ids[0, :-1]) & (torch.arange(tokens - 1) < rows[:, None] - 1)
        followed = (weights[:, :, 1:, 1:] * same).sum(-1)[..., same.any(-1)].mean(-1)
        expected = weights[:, :, rows, rows - 1].mean(-1), followed, weights[:, :, 1:, 0].mean(-1)
        for name, right in zip(names, expected, strict=True):
            torch.testing.assert_close(found[name].double(), right, atol=1e-6, rtol=0, equal_nan=True)
    chunked = read_all(model, ids)[0].heads
    assert (chunked.window, chunked.chunk) == (None, WINDOW if tokens > WINDOW else None)


# Mixtures of experts in double precision.


@pytest.mark.parametrize("family", ["mixtral", "gpt_oss", "deepseek_v3", "deepseek_v2", "llama4_text"])
def test_experts_run_in_double_precision_for_users(family, tmp_path):
    tiny(family).save_pretrained(tmp_path)
    ids = torch.randint(4, 60, (1, 12), generator=torch.Generator().manual_seed(0))
    loaded = rs.load_model(str(tmp_path), dtype="float64").model
    plain = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64, trust_remote_code=False).eval()
    for model in (loaded, plain):
        assert max(read.error for read in read_all(model, ids)) < 1e-5
    with torch.inference_mode():
        torch.testing.assert_close(loaded(input_ids=ids).logits, tiny(family)(input_ids=ids).logits, atol=1e-5, rtol=0)
