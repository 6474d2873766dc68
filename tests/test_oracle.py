"""The engine against really permuting the layer's input and really recomputing attention."""

from itertools import combinations, product

import numpy as np
import oracle
import pytest
import torch

import ropescope as rs

TOLERANCE = 1e-9
TAUS = [1e-4, 1e-2, 1.0]
TOKENS, WIDTH = 9, 12

ROPES = {
    "half": rs.Rope(head_dim=8),
    "interleaved": rs.Rope(head_dim=8, pairing="interleaved"),
    "half partial": rs.Rope(head_dim=8, rotary_dim=4, base=100.0),
    "interleaved partial": rs.Rope(head_dim=8, rotary_dim=4, base=100.0, pairing="interleaved"),
    "chosen planes": rs.Rope(frequencies=[1.0, 0.0, 0.3, 2.5]),
    "nope": rs.Rope(head_dim=8, rotary_dim=0),
}
HOW = {
    "plain": {},
    "soft-cap": {"soft_cap": 2.0},
    "alibi": {"alibi": np.array([0.5, 0.25, 0.1, 0.05])},
}
BLOCKS = {
    "tokens": None,
    "equal": [(0, 2), (2, 4), (5, 7)],
    "unequal": [(0, 3), (3, 4), (5, 7)],
    "unequal, one kept out": [(6, 7), (1, 4), (4, 6)],
}


def heads_of(layer: oracle.Layer, x: np.ndarray, rope: rs.Rope) -> rs.Heads:
    """The same layer as the package sees it: content queries and keys."""

    def project(weight: np.ndarray) -> torch.Tensor:
        return torch.tensor(np.einsum("hdw,tw->htd", weight, x))[None]

    alibi = None if layer.alibi is None else torch.tensor(layer.alibi)
    queries, keys = project(layer.query_weight), project(layer.key_weight)
    return rs.Heads(queries, keys, rope, layer.scale, layer.soft_cap, layer.window, alibi)


def assert_parity(layer: oracle.Layer, x: np.ndarray, rope: rs.Rope, n: int, blocks: list[tuple[int, int]] | None) -> None:
    M = rs.layer_logits(heads_of(layer, x, rope), query_position=n)
    weights = M.diagonal(dim1=-2, dim2=-1).softmax(-1)[0]
    np.testing.assert_allclose(weights, layer.attention(x, n), atol=1e-12)
    scores = rs.swap_scores(M, tau=TAUS, blocks=blocks)
    for k, tau in enumerate(TAUS):
        expected = oracle.swap_scores(layer, x, n, tau, blocks)
        np.testing.assert_allclose(scores.positional[k, 0], expected[:, 0], atol=TOLERANCE)
        np.testing.assert_allclose(scores.symbolic[k, 0], expected[:, 1], atol=TOLERANCE)


GROUPS = (1, 2, 4)
PAIRWISE = [
    (rope, list(HOW)[(r + b) % 3], blocks, GROUPS[(r + 2 * b) % 3])
    for r, rope in enumerate(ROPES)
    for b, blocks in enumerate(BLOCKS)
]
"""Every two of rotation, logits, blocks and number of key heads meet in every combination."""


def test_the_cases_are_pairwise():
    choices = (ROPES, HOW, BLOCKS, GROUPS)
    for i, j in combinations(range(4), 2):
        assert {(case[i], case[j]) for case in PAIRWISE} == set(product(choices[i], choices[j]))


@pytest.mark.parametrize(("rope", "how", "blocks", "groups"), PAIRWISE)
def test_scores_are_those_of_really_permuted_inputs(rope, how, blocks, groups):
    rng = np.random.default_rng(groups)
    layer = oracle.random_layer(rng, heads=4, groups=groups, width=WIDTH, rope=ROPES[rope], **HOW[how])
    assert_parity(layer, rng.normal(size=(TOKENS, WIDTH)), ROPES[rope], TOKENS - 1, BLOCKS[blocks])


@pytest.mark.parametrize("n", range(2, TOKENS))
@pytest.mark.parametrize("rope", ROPES.values(), ids=ROPES)
def test_every_query_position(rope, n):
    rng = np.random.default_rng(n)
    layer = oracle.random_layer(rng, heads=2, groups=1, width=WIDTH, rope=rope)
    assert_parity(layer, rng.normal(size=(TOKENS, WIDTH)), rope, n, None)


@pytest.mark.parametrize("n", range(2, TOKENS))
@pytest.mark.parametrize("window", [3, 4, 6, 100])
def test_sliding_window(n, window):
    """Only the keys in the window are the query's keys: those are swapped."""
    rng = np.random.default_rng(n)
    rope = ROPES["half"]
    layer = oracle.random_layer(rng, heads=2, groups=2, width=WIDTH, rope=rope, window=window)
    assert_parity(layer, rng.normal(size=(TOKENS, WIDTH)), rope, n, None)


def test_blocks_in_a_sliding_window():
    rng = np.random.default_rng(0)
    rope = ROPES["interleaved"]
    layer = oracle.random_layer(rng, heads=2, groups=1, width=WIDTH, rope=rope, window=7)
    assert_parity(layer, rng.normal(size=(TOKENS, WIDTH)), rope, TOKENS - 1, [(2, 5), (5, 6), (6, 8)])


def test_random_heads():
    """Many random heads of random shape: the largest error is far below the tolerance."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        planes = int(rng.integers(1, 5))
        pairing = ("half", "interleaved")[rng.integers(2)]
        rope = rs.Rope(2 * planes + int(rng.integers(3)), pairing=pairing, frequencies=rng.exponential(size=planes))
        how = {"soft_cap": 3.0 if rng.integers(2) else None, "window": int(rng.integers(3, 12)) if rng.integers(2) else None}
        layer = oracle.random_layer(rng, heads=2, groups=1, width=WIDTH, rope=rope, **how)
        tokens = int(rng.integers(3, 12))
        assert_parity(layer, 2 * rng.normal(size=(tokens, WIDTH)), rope, int(rng.integers(2, tokens)), None)


def test_queries_at_different_positions_in_one_batch():
    rng = np.random.default_rng(1)
    rope = ROPES["half"]
    layer = oracle.random_layer(rng, heads=2, groups=2, width=WIDTH, rope=rope, window=5)
    x = rng.normal(size=(TOKENS, WIDTH))
    heads = heads_of(layer, x, rope)
    at = torch.tensor([2, 7, 5, 3])
    queries = heads.queries[0][:, at]  # (head, query, d)
    M = rs.counterfactual_logits(
        queries, heads.keys[0][:, None], rope, scale=layer.scale, query_position=at, window=layer.window
    )
    assert M.shape == (2, 4, 8, 8)
    scores = rs.swap_scores(M, tau=1e-2)
    for k, n in enumerate(at.tolist()):
        expected = oracle.swap_scores(layer, x, n, 1e-2, None)
        np.testing.assert_allclose(scores.positional[:, k], expected[:, 0], atol=TOLERANCE)
        np.testing.assert_allclose(scores.symbolic[:, k], expected[:, 1], atol=TOLERANCE)
        alone = rs.layer_logits(heads, query_position=n)[0]
        for measure in (rs.variance_shares, rs.exclusion, rs.permutation_scores):
            for mine, lone in zip(measure(M), measure(alone), strict=True):
                torch.testing.assert_close(mine[:, k], lone, atol=1e-12, rtol=0)
        torch.testing.assert_close(rs.entropy(M)[:, k], rs.entropy(alone), atol=1e-12, rtol=0)


@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)
def test_permutations_are_really_made(blocks):
    """A full permutation of blocks: re-order the input by hand and compare the weights that `M` predicts."""
    rng = np.random.default_rng(3)
    rope = ROPES["half"]
    layer = oracle.random_layer(rng, heads=3, groups=3, width=WIDTH, rope=rope)
    x = rng.normal(size=(TOKENS, WIDTH))
    spans = [(p, p + 1) for p in range(TOKENS - 1)] if blocks is None else sorted(blocks)
    rows = np.stack([rng.permutation(len(spans)) for _ in range(20)])
    rows = rows[(rows != np.arange(len(spans))).any(-1)]
    real = layer.attention(x, TOKENS - 1)
    before = np.stack([real[:, a:b].mean(-1) for a, b in spans], -1)
    cosines, moved = [], []
    for row in rows:
        order, slots, end = [], [], 0
        for k, block in enumerate(row):
            order += range(end, spans[k][0])
            slots.append((len(order), len(order) + spans[block][1] - spans[block][0]))
            order += range(*spans[block])
            end = spans[k][1]
        order += range(end, TOKENS)
        weights = layer.attention(x[order], TOKENS - 1)
        changed = row != np.arange(len(spans))
        after = np.stack([weights[:, a:b].mean(-1) for a, b in slots], -1)[:, changed]
        follows = before[:, row]
        cosines.append((oracle.cosine(after, before[:, changed]), oracle.cosine(after, follows[:, changed])))
        moved.append(np.abs(follows - before).sum(-1) / 2)
    alpha = np.exp((np.stack(moved) - np.max(moved, 0)) / 1e-2)
    expected = (alpha[:, None] * np.array(cosines)).sum(0) / alpha.sum(0)
    M = rs.layer_logits(heads_of(layer, x, rope))
    scores = rs.permutation_scores(M, torch.tensor(rows), tau=1e-2, blocks=blocks)
    np.testing.assert_allclose(scores.positional[0], expected[0], atol=TOLERANCE)
    np.testing.assert_allclose(scores.symbolic[0], expected[1], atol=TOLERANCE)
