"""Long contexts: the bounded mode agrees with the exact one within its bound and needs no square matrix."""

import json
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ropescope as rs
from ropescope.measures import bounded


def head(tokens: int, sharpness: float, seed: int = 0, d: int = 64) -> tuple[torch.Tensor, torch.Tensor, rs.Rope]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(d, generator=generator) * sharpness, torch.randn(tokens, d, generator=generator), rs.Rope(head_dim=d)


def assert_agrees(factors: rs.LogitFactors, **how: object) -> rs.BoundedScores:
    ours, exact = (
        rs.bounded_swap_scores(factors, **how),
        rs.swap_scores(factors.matrix(), how.get("tau", 1e-4), how.get("blocks")),
    )
    slack = ours.omitted + ours.rounding + 1e-9
    assert ((ours.positional - exact.positional).abs() <= slack).all()
    assert ((ours.symbolic - exact.symbolic).abs() <= slack).all()
    assert (ours.omitted <= how.get("tolerance", 1e-6)).all()
    return ours


@pytest.mark.parametrize("sharpness", [0.0, 0.3, 1.0, 3.0, 100.0])
def test_agreement_with_exact_mode_at_2048_keys(sharpness):
    assert_agrees(rs.logit_factors(*head(2048, sharpness)))


@settings(max_examples=40)
@given(
    tokens=st.integers(3, 60),
    sharpness=st.sampled_from([0.0, 0.5, 2.0, 30.0, 1e4]),
    tau=st.sampled_from([1e-5, 1e-4, 1e-2, 1.0]),
    tolerance=st.sampled_from([0.0, 1e-6, 1e-2, 0.3]),
    tile=st.sampled_from([2, 5, 16, 256]),
    seed=st.integers(0, 1000),
)
def test_agreement_over_random_heads(tokens, sharpness, tau, tolerance, tile, seed):
    usual, bounded.TILE = bounded.TILE, tile
    try:
        assert_agrees(rs.logit_factors(*head(tokens, sharpness, seed, d=6)), tau=tau, tolerance=tolerance)
    finally:
        bounded.TILE = usual


@pytest.mark.parametrize("blocks", [[(1, 9), (9, 17), (20, 28), (40, 48)], [(0, 3), (3, 20), (21, 22), (30, 45), (45, 47)]])
def test_blocks(blocks):
    for sharpness in (0.5, 5.0):
        assert_agrees(rs.logit_factors(*head(60, sharpness)), blocks=blocks, tau=1e-3)


@pytest.mark.parametrize("how", [{"soft_cap": 2.0}, {"window": 30}, {"alibi": 0.1}, {"query_position": 40}])
def test_every_kind_of_logit(how):
    factors = rs.logit_factors(*head(60, 2.0), **how)
    assert_agrees(factors)
    if "window" in how:
        assert_agrees(factors, blocks=[(31, 40), (40, 44), (50, 59)])


def test_batches_of_heads():
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(2, 3, 8, generator=generator), torch.randn(2, 1, 50, 8, generator=generator)
    scores = assert_agrees(rs.logit_factors(queries, keys, rs.Rope(head_dim=8), window=33))
    assert scores.positional.shape == (2, 3)


def test_a_peaked_head_looks_at_few_swaps(monkeypatch):
    looked_at = []
    cosines = bounded.pair_cosines
    monkeypatch.setattr(bounded, "pair_cosines", lambda u, w: looked_at.append(u.numel()) or cosines(u, w))
    rs.bounded_swap_scores(rs.logit_factors(*head(4096, 5.0)))
    assert sum(looked_at) < 4096 * 4095 / 2 / 50


MEMORY = """
import json, resource, torch, ropescope as rs
def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
generator = torch.Generator().manual_seed(0)
def scores(tokens):
    query, keys = torch.randn(64, generator=generator) * 1.5, torch.randn(tokens, 64, generator=generator)
    return rs.bounded_swap_scores(rs.logit_factors(query, keys, rs.Rope(head_dim=64)))
scores(100)
before = megabytes()
result = scores(32768)
print(json.dumps([megabytes() - before, float(result.omitted)]))
"""


@pytest.mark.slow
def test_32768_keys_in_little_memory():
    out = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True).stdout
    extra, omitted = json.loads(out)
    assert extra < 1024
    assert omitted <= 1e-6
