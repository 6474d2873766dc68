"""Scores of planes over blocks by interpolation are within their bound of the exact ones."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ropescope as rs
from ropescope.measures import angles
from ropescope.measures.angles import angle_scores
from ropescope.measures.blocks import block_logits
from ropescope.measures.registry import compute, measures
from ropescope.measures.view import LayerView

BLOCKS = {
    "equal": [(start, start + 3) for start in range(1, 46, 3)],
    "unequal": [(1, 4), (4, 5), (7, 15), (15, 17), (20, 29), (30, 44)],
    "tokens": [(p, p + 1) for p in range(30, 47)],
}


def layer(sharpness: float, seed: int, window: int | None = None, turns: torch.Tensor | None = None) -> rs.Heads:
    """Four heads in two groups of keys, two planes that rotate and one that does not; logits of very different sizes."""
    draw = torch.Generator().manual_seed(seed)
    queries = torch.randn(1, 4, 48, 6, generator=draw) * sharpness * torch.tensor([0.03, 0.3, 1.0, 3.0]).view(1, 4, 1, 1)
    keys = torch.randn(1, 2, 48, 6, generator=draw) + torch.randn(1, 2, 1, 6, generator=draw)
    rope = rs.Rope(head_dim=6, rotary_dim=4, base=500.0)
    return rs.Heads(queries, keys, rope, scale=6**-0.5, window=window, turns=turns)


def compare(heads: rs.Heads, blocks: list[tuple[int, int]], tau: float, tolerance: float) -> torch.Tensor:
    """Errors that were stated, after a check that the true ones are not larger."""
    factors = rs.layer_factors(heads).by_plane()
    frequencies = torch.tensor(heads.rope.plane_frequencies, dtype=torch.float64)
    *scores, error = angle_scores(factors, frequencies, blocks, tau, tolerance)
    exact = rs.swap_scores(block_logits(factors, blocks), tau)
    for ours, expected in zip(scores, exact, strict=True):
        assert ((ours - expected).abs() <= error + 1e-9).all()
    assert (error <= tolerance).all()
    return error


@settings(max_examples=60, deadline=None)
@given(
    blocks=st.sampled_from(sorted(BLOCKS)),
    sharpness=st.sampled_from([0.0, 0.1, 1.0, 5.0, 100.0]),
    tau=st.sampled_from([1e-5, 1e-4, 1e-2, 1.0]),
    tolerance=st.sampled_from([1e-9, 1e-4, 1e-3, 0.1]),
    seed=st.integers(0, 1000),
)
def test_no_score_of_a_plane_is_further_from_the_exact_one_than_its_bound(blocks, sharpness, tau, tolerance, seed):
    compare(layer(sharpness, seed), BLOCKS[blocks], tau, tolerance)


def test_windows_leave_planes_within_their_bound():
    compare(layer(1.0, 0, window=20), [(28, 31), (31, 34), (35, 38), (40, 43)], 1e-4, 1e-3)


@pytest.mark.parametrize("rounding", [0.0, 1e-5, 1e-3, 0.1])
def test_rotations_that_do_not_turn_evenly_are_measured(rounding):
    """The error that is stated grows with the model's own rounding of angles, and planes that are too far off are exact."""
    draw = torch.Generator().manual_seed(0)
    frequencies = torch.tensor(layer(1.0, 0).rope.frequencies, dtype=torch.float64)
    angle = torch.arange(48)[:, None] * frequencies + rounding * torch.randn(48, 2, generator=draw, dtype=torch.float64)
    error = compare(layer(1.0, 0, turns=torch.polar(torch.ones_like(angle), angle)), BLOCKS["equal"], 1e-4, 1e-3)[:2]
    assert ((error == 0) == (rounding == 0.1)).any()
    if rounding == 1e-3:
        assert (error[error > 0] > 1e-6).all()


def test_planes_of_large_logits_are_exact_and_others_mostly_in_single_precision(monkeypatch):
    used = []
    bound = angles._scores
    monkeypatch.setattr(angles, "_scores", lambda *given: used.append(given[-1]) or bound(*given))
    error = compare(layer(100.0, 1), BLOCKS["equal"], 1e-4, 1e-3)
    assert (error == 0).any()
    compare(layer(0.3, 1), BLOCKS["equal"], 1e-4, 1e-3)
    assert torch.float32 in used


@pytest.mark.parametrize("window", [None, 30])
def test_registered_planes_are_the_same_with_and_without_tolerance(window):
    heads, ids = layer(1.0, 2, window=window), torch.arange(48)[None] % 5
    chosen = list(measures("planes").values())
    exact, quick = (
        compute(LayerView(heads, rs.layer_factors(heads), BLOCKS["unequal"], ids, tolerance=tolerance), chosen)
        for tolerance in (0.0, 1e-3)
    )
    assert (exact["plane_error"] == 0).all()
    assert (quick["plane_error"] > 0).any()
    for name in exact.keys() - {"plane_error"}:
        torch.testing.assert_close(quick[name], exact[name], rtol=0, atol=1e-3)
