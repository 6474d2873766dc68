"""Many single tokens: scores without the square matrix are within their bound of the exact ones, shares exactly equal."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ropescope as rs
from ropescope.measures import tiles, view
from ropescope.measures.factored import factored_exclusion, factored_shares, moments
from ropescope.measures.registry import compute, measures
from ropescope.measures.tiles import tile_scores
from ropescope.measures.view import LayerView
from ropescope.studies.conformance.families import tiny
from ropescope.studies.head_scores import Scoring
from ropescope.studies.profile.run import _cost_line
from ropescope.tasks.prompts import as_prompt

KINDS = {
    "plain": {},
    "soft cap": {"soft_cap": 3.0},
    "window": {"window": 37},
    "alibi": {"alibi": torch.tensor([0.0, 0.05, 0.4, 2.0])},
    "sinks": {"sinks": torch.tensor([0.0, 8.0, -3.0, 40.0], dtype=torch.float64)},
}


def layer(tokens: int, sharpness: float, seed: int = 0, queries: int = 1, **how: object) -> rs.Heads:
    """Four heads in two groups of keys: diffuse if `sharpness` is small, peaked if it is large; keys with a common part."""
    draw = torch.Generator().manual_seed(seed)
    asked = torch.randn(1, 4, queries, 8, generator=draw) * sharpness * torch.tensor([0.01, 0.3, 1.0, 3.0]).view(1, 4, 1, 1)
    keys = torch.randn(1, 2, tokens, 8, generator=draw) + torch.randn(1, 2, 1, 8, generator=draw)
    return rs.Heads(asked, keys, rs.Rope(head_dim=8, rotary_dim=6), scale=8**-0.5, **how)


def exact(of: LayerView, taus: list[float]) -> torch.Tensor:
    return torch.stack(rs.swap_scores(of.token_logits(), taus, of.visible_blocks))


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.integers(45, 90),
    sharpness=st.sampled_from([0.0, 0.3, 3.0, 30.0, 1e3]),
    taus=st.sampled_from([[1e-4], [1e-6], [1e-4, 1e-2, 1.0]]),
    tolerance=st.sampled_from([0.0, 1e-4, 1e-3, 0.3]),
    kind=st.sampled_from(sorted(KINDS)),
    sides=st.sampled_from([(4, 9), (16, 40), (128, 1024)]),
    seed=st.integers(0, 1000),
)
def test_no_score_is_further_from_the_exact_one_than_its_bound(tokens, sharpness, taus, tolerance, kind, sides, seed):
    heads = layer(tokens, sharpness, seed, **KINDS[kind])
    first = 1 if heads.window is None else tokens - heads.window
    of = LayerView(heads, rs.layer_factors(heads), [(p, p + 1) for p in range(first, tokens - 1)])
    usual = tiles.ROWS, tiles.COLUMNS
    tiles.ROWS, tiles.COLUMNS = sides
    try:
        scores, error = tile_scores(of.factors, torch.arange(first, tokens - 1), of.log_total, taus, tolerance)
    finally:
        tiles.ROWS, tiles.COLUMNS = usual
    slack = 1e-9 if tolerance == 0 else error + 1e-9
    assert ((scores - exact(of, taus)).abs() <= slack).all()
    assert (error <= max(tolerance, 1e-4)).all()  # logits of 1e3 and a tau of 1e-6: what double precision knows of weights


@pytest.mark.parametrize("kind", KINDS)
def test_shares_and_exclusion_need_no_matrix(kind, monkeypatch):
    monkeypatch.setattr("ropescope.measures.factored.AT_ONCE", 1000)  # several parts with a soft cap
    heads = layer(70, 3.0, **KINDS[kind])
    first = 1 if heads.window is None else 70 - heads.window
    of = LayerView(heads, rs.layer_factors(heads), [(p, p + 1) for p in range(first, 69)])
    keys = torch.arange(first, 69)
    parts = moments(of.factors.select(keys))
    for ours, expected in (
        (factored_shares(parts), rs.variance_shares(of.M)),
        (factored_exclusion(parts, of.factors.diagonal()[..., keys]), rs.exclusion(of.M)),
    ):
        for one, other in zip(ours, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_a_head_without_content_is_half_symbol_and_half_position_without_the_matrix():
    parts = moments(rs.logit_factors(torch.zeros(8), torch.randn(50, 8), rs.Rope(head_dim=8)))
    assert factored_shares(parts) == (0.5, 0.5, 0)


@pytest.mark.parametrize("window", [None, 61])
def test_every_measure_of_many_tokens_is_that_of_few(monkeypatch, window):
    """All registered measures, with the limit above and below the number of tokens."""
    heads = layer(80, 2.0, queries=64, window=window)
    ids, blocks = torch.arange(80)[None] % 7, [(p, p + 1) for p in range(1, 79)]
    chosen = list(measures().values())
    few = compute(LayerView(heads, rs.layer_factors(heads), blocks, ids, permutations=5), chosen)
    monkeypatch.setattr(view, "MANY_TOKENS", 20)
    monkeypatch.setattr("ropescope.measures.sensitivity.MANY_TOKENS", 20)
    for tolerance in (0.0, 1e-2):
        of = LayerView(heads, rs.layer_factors(heads), blocks, ids, permutations=5, tolerance=tolerance)
        many = compute(of, chosen)
        assert bool((many["score_error"] > 0).any()) == (tolerance > 0)
        for name, value in few.items():
            if not name.endswith("_error"):
                torch.testing.assert_close(many[name], value, rtol=1e-9, atol=max(tolerance, 1e-9), equal_nan=True)


def test_a_model_that_lowers_the_precision_of_products_gets_double(monkeypatch):
    heads = layer(300, 1.0)
    factors = rs.layer_factors(heads)
    total, keys = factors.diagonal().logsumexp(-1), torch.arange(1, 299)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    scores, error = tile_scores(factors, keys, total, [1.0], 1e-3)
    of = LayerView(heads, factors, [(p, p + 1) for p in range(1, 299)])
    assert ((scores - exact(of, [1.0])).abs() <= error + 1e-12).all()


def test_a_peaked_head_computes_few_swaps(monkeypatch):
    looked_at = []
    rectangles = tiles._rectangles
    monkeypatch.setattr(
        tiles,
        "_rectangles",
        lambda *given: (looked_at.append((x.stop - x.start) * (y.stop - y.start)) or (x, y) for x, y in rectangles(*given)),
    )
    heads = layer(2000, 30.0)
    factors = rs.layer_factors(heads)
    tile_scores(factors.some(slice(None)), torch.arange(1, 1999), factors.diagonal().logsumexp(-1), [1e-4], 1e-3)
    assert sum(looked_at) < 4 * 2000 * 1999 / 2 / 5


def test_planes_of_many_single_tokens_are_scored_only_if_asked_for():
    few, many = ([torch.randint(4, 60, (length,), generator=torch.Generator().manual_seed(0))] for length in (200, 270))
    model = tiny("llama", dtype=torch.float32)
    found = {
        name: rs.profile(model, prompts, sensitivity=False, **options).plane_positional.notnull().all()
        for name, prompts, options in (("few", few, {}), ("many", many, {}), ("asked", many, {"planes": True}))
    }
    assert {name: bool(each) for name, each in found.items()} == {"few": True, "many": False, "asked": True}
    lines = [_cost_line(rs.Adapter(model), [as_prompt(many[0])], Scoring(planes=planes)) for planes in (False, True)]
    assert "planes are left out, as they would take ten times as long" in lines[0]
    assert "planes of so many tokens take most of it" in lines[1]
