"""Measures of blocks without the matrix of single tokens, sinks, and rotations as a model really applied them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ropescope as rs
from ropescope.models.adapter import own_weights

BLOCKS = {
    "equal": [(1, 3), (3, 5), (6, 8)],
    "unequal": [(1, 4), (4, 5), (6, 8)],
    "single": [(1, 2), (4, 5), (6, 7), (8, 9)],
    "every token": [(p, p + 1) for p in range(9)],
}


def make_heads(seed: int, **how) -> rs.Heads:
    generator = torch.Generator().manual_seed(seed)
    queries, keys = (torch.randn(2, h, 10, 8, generator=generator, dtype=torch.float64) * 1.5 for h in (4, 2))
    return rs.Heads(queries, keys, how.pop("rope", rs.Rope(8, rotary_dim=6)), scale=0.5, **how)


@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("how", [{}, {"soft_cap": 2.0}, {"alibi": torch.tensor([0.5, 0.2, 0.1, 0.0])}], ids=str)
def test_block_matrix_has_the_measures_of_blocks(blocks, how):
    heads = make_heads(1, **how)
    whole, reduced = rs.layer_logits(heads), rs.block_logits(rs.layer_factors(heads), blocks)
    assert reduced.shape == (2, 4, len(blocks) + 1, len(blocks) + 1)
    for tau in (1e-4, 1.0):
        torch.testing.assert_close(rs.swap_scores(reduced, tau), rs.swap_scores(whole, tau, blocks), atol=1e-10, rtol=0)
    torch.testing.assert_close(rs.variance_shares(reduced), rs.variance_shares(whole, blocks), atol=1e-10, rtol=0)
    torch.testing.assert_close(rs.exclusion(reduced), rs.exclusion(whole, blocks), atol=1e-10, rtol=0)


def test_block_matrix_within_a_window():
    heads, blocks = make_heads(2, window=8), [(2, 4), (4, 5), (6, 8)]
    reduced = rs.block_logits(rs.layer_factors(heads), blocks)
    torch.testing.assert_close(
        rs.swap_scores(reduced), rs.swap_scores(rs.layer_logits(heads), blocks=blocks), atol=1e-10, rtol=0
    )
    with pytest.raises(ValueError, match="must be a range of positions from 2"):
        rs.block_logits(rs.layer_factors(heads), [(1, 3), (4, 6)])


def test_block_matrix_by_plane():
    heads, blocks = make_heads(3), BLOCKS["unequal"]
    factors = rs.layer_factors(heads)
    planes = rs.block_logits(factors.by_plane(), blocks)
    assert planes.shape[0] == 4  # three that turn, and one for what does not
    expected = rs.swap_scores(rs.layer_logits(heads, by_plane=True), blocks=blocks)
    torch.testing.assert_close(rs.swap_scores(planes), expected, atol=1e-10, rtol=0)
    torch.testing.assert_close(
        rs.swap_scores(rs.block_logits(factors.by_plane().some(slice(1, 3)), blocks)).positional, expected.positional[1:3]
    )


def test_planes_kept_alone():
    heads = make_heads(4)
    factors, planes = rs.layer_factors(heads), rs.layer_logits(heads, by_plane=True)
    torch.testing.assert_close(factors.only_planes([0, 3]).matrix(), planes[0] + planes[3])
    torch.testing.assert_close(factors.only_planes(range(4)).matrix(), rs.layer_logits(heads))


@given(st.integers(0, 1000), st.floats(-5, 5))
def test_a_sink_takes_weight_and_moves_nothing(seed, sink):
    """It enters through the weighting of swaps alone: the cosine of each swap stays what it was."""
    heads, blocks = make_heads(seed), BLOCKS["equal"]
    factors = rs.layer_factors(heads)
    M = rs.block_logits(factors, blocks, sinks=torch.full((4,), sink, dtype=torch.float64))
    plain = rs.block_logits(factors, blocks)
    torch.testing.assert_close(M[..., :-1, :-1], plain[..., :-1, :-1])
    with_sink = rs.Heads(heads.queries, heads.keys, heads.rope, heads.scale, sinks=torch.full((4,), sink, dtype=torch.float64))
    weights = own_weights(with_sink, 9)
    block = torch.stack([weights[..., a:b].mean(-1) for a, b in blocks], -1)
    torch.testing.assert_close(M.diagonal(dim1=-2, dim2=-1).softmax(-1)[..., :-1], block)


@pytest.mark.parametrize("how", [{}, {"window": 4}, {"soft_cap": 1.5}, {"sinks": torch.tensor([0.0, 1.0, -1.0, 3.0])}], ids=str)
def test_attention_of_many_queries_is_that_of_each(how):
    heads = make_heads(5, **how)
    rows = torch.tensor([3, 7, 9])
    weights = rs.attention_weights(heads, rows)
    for n, at in enumerate(rows.tolist()):
        torch.testing.assert_close(weights[:, :, n, : at + 1], own_weights(heads, at))
        assert (weights[:, :, n, at + 1 :] == 0).all()


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_turns_are_the_rotation_really_applied(pairing):
    """A table in single precision, times a factor: as the models of `transformers` have it."""
    rope = rs.Rope(8, rotary_dim=6, pairing=pairing)
    angles = torch.arange(10)[:, None] * torch.tensor(rope.frequencies)
    turns = 1.3 * torch.polar(torch.ones_like(angles), angles).to(torch.complex128)
    heads = make_heads(6, rope=rope, turns=turns)

    def rotated(x):
        turning, still = rope.to_planes(x)
        return rope.from_planes(turning * turns, still)

    query, keys = rotated(heads.queries)[:, :, 7], rotated(heads.keys).repeat_interleave(2, 1)[:, :, :8]
    M = rs.layer_logits(heads, query_position=7)
    torch.testing.assert_close(M.diagonal(dim1=-2, dim2=-1), (query[:, :, None] @ keys.mT)[:, :, 0] * 0.5, atol=1e-12, rtol=0)
    exact = rs.layer_logits(make_heads(6, rope=rope), query_position=7)
    still = rs.layer_logits(make_heads(6, rope=rope), query_position=7, by_plane=True)[-1]
    # But for rounding of angles, turning planes count 1.3 squared times.
    torch.testing.assert_close(M - still, 1.69 * (exact - still), atol=1e-5, rtol=0)
    by_plane = rs.layer_logits(heads, query_position=7, by_plane=True)
    torch.testing.assert_close(by_plane.sum(0), M)
    np.testing.assert_allclose(rs.attention_weights(heads, torch.tensor([7]))[..., 0, :8], own_weights(heads, 7), atol=1e-12)
