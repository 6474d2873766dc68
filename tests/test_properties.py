"""The theory, stated as properties of every head."""

from itertools import permutations
from math import factorial

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import ropescope as rs
from ropescope.measures import scores

CLOSE = {"atol": 1e-9, "rtol": 0}


@st.composite
def heads(draw, min_tokens=3, max_tokens=9, nope=False, equal_keys=False):
    """(query, keys, rope): a random head; logits from negligible to thousands."""
    planes = draw(st.integers(1, 4))
    still = draw(st.integers(0, 2))
    frequency = st.just(0.0) if nope else st.floats(0, 3, allow_subnormal=False)
    frequencies = draw(st.lists(frequency, min_size=planes, max_size=planes))
    rope = rs.Rope(2 * planes + still, pairing=draw(st.sampled_from(["half", "interleaved"])), frequencies=frequencies)
    tokens = draw(st.integers(min_tokens, max_tokens))
    size = draw(st.sampled_from([1e-3, 1.0, 5.0, 50.0]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    query, keys = torch.tensor(rng.normal(size=rope.head_dim)), torch.tensor(size * rng.normal(size=(tokens, rope.head_dim)))
    if equal_keys:
        keys = keys[:1].expand(tokens, -1)
    return query, keys, rope


def matrices(**how):
    return heads(**how).map(lambda head: rs.counterfactual_logits(*head))


def test_shapes_in_signatures_are_checked_where_they_should_be(request):
    """With `--shape-checks` the signature refuses a wrong shape; else the function does."""
    checked = request.config.getoption("--shape-checks")
    with pytest.raises(jaxtyping.TypeCheckError if checked else ValueError, match="exclusion" if checked else "as many"):
        rs.exclusion(torch.zeros(3, 4))


@given(matrices(nope=True), st.sampled_from([1e-4, 1e-2, 1.0]))
def test_a_head_without_positions_is_symbolic(M, tau):
    torch.testing.assert_close(rs.swap_scores(M, tau).symbolic, torch.tensor(1.0).double(), **CLOSE)
    torch.testing.assert_close(rs.permutation_scores(M, 50, tau).symbolic, torch.tensor(1.0).double(), **CLOSE)
    torch.testing.assert_close(rs.variance_shares(M).symbol, torch.tensor(1.0).double(), **CLOSE)
    assert rs.exclusion(M).bound >= rs.exclusion(M).variance


@given(matrices(equal_keys=True), st.sampled_from([1e-4, 1e-2, 1.0]))
def test_a_head_of_equal_keys_is_positional(M, tau):
    torch.testing.assert_close(rs.swap_scores(M, tau).positional, torch.tensor(1.0).double(), **CLOSE)
    torch.testing.assert_close(rs.permutation_scores(M, 50, tau).positional, torch.tensor(1.0).double(), **CLOSE)
    square = M[:-1, :-1]
    assume(square.std() > 1e-9 * square.abs().max())  # equal keys that never turn have no variance to share
    torch.testing.assert_close(rs.variance_shares(M).position, torch.tensor(1.0).double(), **CLOSE)


@given(heads())
def test_planes_add_up(head):
    query, keys, rope = head
    planes = rs.counterfactual_logits(query, keys, rope, by_plane=True)
    M = rs.counterfactual_logits(query, keys, rope)
    assert len(planes) == len(rope.plane_frequencies)
    torch.testing.assert_close(planes.sum(0), M, atol=1e-12 * float(M.abs().max()), rtol=0)


@given(heads())
def test_each_plane_is_a_head_of_its_own(head):
    """Plane f alone: keep its two dimensions (the still ones for the last plane) and drop the others."""
    query, keys, rope = head
    planes = rs.counterfactual_logits(query, keys, rope, by_plane=True, scale=1.0)
    pairs = len(rope.frequencies)
    for f, frequency in enumerate(rope.plane_frequencies):
        if f == pairs:
            dimensions, alone = list(range(2 * pairs, rope.head_dim)), rs.Rope(rope.head_dim - 2 * pairs, rotary_dim=0)
        else:
            dimensions = [f, pairs + f] if rope.pairing == "half" else [2 * f, 2 * f + 1]
            alone = rs.Rope(frequencies=[frequency])
        M = rs.counterfactual_logits(query[dimensions], keys[:, dimensions], alone, scale=1.0)
        torch.testing.assert_close(planes[f], M, atol=1e-9, rtol=1e-9)


@given(matrices(), st.sampled_from([1e-4, 1e-2, 1.0]))
def test_scores_lie_between_0_and_1_and_shares_sum_to_1(M, tau):
    for score in (*rs.swap_scores(M, tau), *rs.permutation_scores(M, 20, tau), rs.entropy(M)):
        assert 0 <= score <= 1
    shares = rs.variance_shares(M)
    assert all(share >= 0 for share in shares)
    torch.testing.assert_close(sum(shares), torch.tensor(1.0).double(), **CLOSE)


@given(matrices(), st.sampled_from([1e-4, 1e-2, 1.0]))
def test_scores_are_never_both_low(M, tau):
    """With angles f and g of a pair of weights before and after a swap, squares of its cosines sum to 1 + sin 2f sin 2g."""
    positional, symbolic = rs.swap_scores(M, tau)
    assert positional + symbolic >= 1 - 1e-9
    before, after = M.diagonal()[:2], torch.stack((M[1, 0], M[0, 1]))  # of the first two keys
    f, g = (torch.atan2(*(pair - pair.max()).exp().flip(0)) for pair in (before, after))
    cosines = scores.pair_cosines(before[0] - before[1], after[0] - after[1])
    squares = sum(cosine**2 for cosine in cosines)
    torch.testing.assert_close(squares, 1 + (2 * f).sin() * (2 * g).sin(), **CLOSE)


@given(matrices())
def test_the_exclusion_bound_holds(M):
    variance, bound = rs.exclusion(M)
    assert variance <= bound * (1 + 1e-12) + 1e-12


@given(matrices(max_tokens=7))
def test_the_exclusion_bound_is_the_sum_over_all_permutations(M):
    m = len(M) - 1
    square = M[:m, :m].numpy()
    real = square.diagonal()
    places = np.arange(m)
    from_positional = from_symbolic = 0.0
    for row in permutations(range(m)):
        moved = square[list(row), places]
        from_positional += ((moved - real) ** 2).sum()
        from_symbolic += ((moved - real[list(row)]) ** 2).sum()
    expected = (from_positional + from_symbolic) / (factorial(m) * m)
    variance, bound = rs.exclusion(M)
    assert float(bound) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert float(variance) == pytest.approx(real.var(), rel=1e-9, abs=1e-12)


def test_the_exclusion_bound_is_reached():
    """Half-way between positional and symbolic in every cell: M[c, p] is the mean of the two real logits."""
    real = torch.randn(6, dtype=torch.float64)
    M = torch.zeros(7, 7, dtype=torch.float64)
    M[:6, :6] = (real[:, None] + real) / 2
    torch.testing.assert_close(*rs.exclusion(M))


@given(matrices(), st.floats(-1e3, 1e3))
def test_a_constant_on_all_logits_changes_nothing(M, constant):
    for measure in (rs.swap_scores, rs.permutation_scores, rs.exclusion):
        for one, other in zip(measure(M), measure(M + constant), strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-6)  # adding loses digits of M
    torch.testing.assert_close(rs.entropy(M), rs.entropy(M + constant), atol=1e-9, rtol=0)


@given(heads(), st.randoms(use_true_random=False))
def test_permuting_inputs_permutes_results(head, random):
    """Inputs of a batch do not see each other, whatever their order and however they are stacked."""
    query, keys, rope = head
    batch = torch.stack([keys * (1 + n / 3) for n in range(6)])
    order = random.sample(range(6), 6)
    M = rs.counterfactual_logits(query, batch, rope)
    for measure in (rs.swap_scores, rs.permutation_scores, rs.variance_shares, rs.exclusion):
        for one, other in zip(measure(M), measure(M[order].view(2, 3, *M.shape[1:])), strict=True):
            torch.testing.assert_close(one[order], other.flatten(), **CLOSE)


@given(matrices(), st.randoms(use_true_random=False))
def test_relabelling_places_and_contents_together_changes_nothing(M, random):
    """Read off M alone, no measure knows which place comes first."""
    m = len(M) - 1
    order = [*random.sample(range(m), m), m]
    again = M[order][:, order]
    for measure in (rs.swap_scores, rs.variance_shares, rs.exclusion):
        for one, other in zip(measure(M), measure(again), strict=True):
            torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)


@given(matrices(min_tokens=4))
def test_all_swaps_as_permutations_are_the_swap_scores(M):
    m = len(M) - 1
    i, j = torch.triu_indices(m, m, 1)
    rows = torch.arange(m).repeat(len(i), 1)
    each = torch.arange(len(i))
    rows[each, i], rows[each, j] = j, i
    for one, other in zip(rs.permutation_scores(M, rows), rs.swap_scores(M), strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


@given(matrices(min_tokens=6, max_tokens=12))
def test_single_token_blocks_are_single_tokens(M):
    m = len(M) - 1
    blocks = [(p, p + 1) for p in range(m)]
    for measure in (rs.swap_scores, rs.variance_shares, rs.exclusion, rs.permutation_scores):
        for one, other in zip(measure(M), measure(M, blocks=blocks), strict=True):
            torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


@given(heads(min_tokens=6, max_tokens=12), st.sampled_from([1e-4, 1e-2, 1.0]))
def test_chunks_do_not_show(head, tau):
    """The same scores whether pairs are worked on all at once, by rows, or one input at a time."""
    query, keys, rope = head
    M = rs.counterfactual_logits(query, torch.stack([keys, keys.flip(0), -keys]), rope)
    whole = rs.swap_scores(M, tau)
    usual = scores.CHUNK
    try:
        for scores.CHUNK in (1, 7, 40):
            for one, other in zip(whole, rs.swap_scores(M, tau), strict=True):
                torch.testing.assert_close(one, other, **CLOSE)
    finally:
        scores.CHUNK = usual


@given(heads())
def test_single_precision_input_is_scored_as_given(head):
    """Queries and keys in float32 or bfloat16 give the scores of those very numbers, not of rounded logits."""
    query, keys, rope = head
    for dtype in (torch.float32, torch.bfloat16):
        low, exact = (query.to(dtype), keys.to(dtype)), (query.to(dtype).double(), keys.to(dtype).double())
        ours = rs.counterfactual_logits(*low, rope)
        assert ours.dtype == torch.float64
        torch.testing.assert_close(ours, rs.counterfactual_logits(*exact, rope), atol=0, rtol=0)


@given(heads(min_tokens=5), st.integers(2, 4))
def test_an_earlier_query_sees_only_what_is_before_it(head, n):
    query, keys, rope = head
    M = rs.counterfactual_logits(query, keys, rope, query_position=n)
    torch.testing.assert_close(M, rs.counterfactual_logits(query, keys[: n + 1], rope), atol=0, rtol=0)


@given(heads(), st.integers(1, 50))
def test_only_distance_counts(head, shift):
    """Moving a query and all its keys by the same distance leaves every logit as it was."""
    query, keys, rope = head
    tokens = len(keys)
    turned_query = rope.rotate(query, tokens - 1 + shift)
    turned_keys = rope.rotate(keys, torch.arange(tokens) + shift)
    real = turned_keys @ turned_query / np.sqrt(rope.head_dim)
    M = rs.counterfactual_logits(query, keys, rope)
    torch.testing.assert_close(M.diagonal(), real, atol=1e-9 * float(1 + real.abs().max()), rtol=0)
