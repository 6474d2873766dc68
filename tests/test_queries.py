"""Scores at many queries, against the registered measures of the text cut off after each query."""

from dataclasses import replace

import pytest
import torch

import ropescope as rs
from ropescope.measures.queries import QueryScores, query_positions
from ropescope.measures.registry import compute, measures
from ropescope.measures.view import LayerView

TOKENS = 40
POSITIONS = [5, 11, 12, 23, 39]
LINES = ((1, 4), (4, 9), (9, 11), (12, 20), (20, 24), (25, 33))


def made(seed=0, size=1.0, **more):
    generator = torch.Generator().manual_seed(seed)
    queries, keys = (size * torch.randn(2, n, TOKENS, 10, generator=generator) for n in (4, 2))
    return rs.Heads(queries, keys, rs.Rope(head_dim=10, rotary_dim=8), scale=0.3, **more)


def one_by_one(heads, positions, blocks, tau=1e-4):
    """Each query as the last of a shorter text: what it sees is the same, and every measure is that of the last query."""
    found = {name: [] for name in QueryScores._fields if name != "score_error"}
    chosen = [measures()[name] for name in found]
    for at in positions:
        cut = replace(
            heads,
            queries=heads.queries[:, :, : at + 1],
            keys=heads.keys[:, :, : at + 1],
            turns=None if heads.turns is None else heads.turns[: at + 1],
        )
        before = tuple((start, stop) for start, stop in blocks if stop <= at)
        for name, value in compute(LayerView(cut, rs.layer_factors(cut), before, tau=tau), chosen).items():
            found[name].append(value)
    return {name: torch.stack(values, -1) for name, values in found.items()}


SETTINGS = {
    "plain": {},
    "peaked": {"size": 4.0},
    "flat": {"size": 0.01},
    "window": {"window": 14},
    "soft cap": {"soft_cap": 0.5},
    "alibi": {"alibi": torch.tensor([0.1, 0.2, 0.0, 1.0])},
    "sinks": {"sinks": torch.tensor([0.0, 1.0, 2.0, -3.0])},
    "rounded": {"turns": torch.polar(torch.full((TOKENS, 4), 1.1), torch.rand(TOKENS, 4)).to(torch.complex128)},
}


@pytest.mark.parametrize("blocks", [None, LINES], ids=["tokens", "lines"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_each_query_has_the_measures_of_the_text_that_ends_with_it(setting, blocks):
    heads = made(**SETTINGS[setting])
    moving = blocks or tuple((p, p + 1) for p in range(1, TOKENS - 1))
    found, slow = rs.query_scores(heads, POSITIONS, blocks), one_by_one(heads, POSITIONS, moving)
    assert (found.score_error.nan_to_num() <= 1e-6).all()
    for name, expected in slow.items():
        assert found._asdict()[name].shape == (2, 4, len(POSITIONS)), name
        ours = found._asdict()[name]
        if name.endswith("_centred"):  # a difference divided by the contrast
            ours = ours * slow["contrast"]
        value = expected * slow["contrast"] if name.endswith("_centred") else expected
        torch.testing.assert_close(ours, value, atol=3e-6, rtol=0, equal_nan=True, msg=f"{setting} {name}")


@pytest.mark.parametrize("tau", [1e-3, 0.1])
def test_other_temperatures_need_more_swaps_and_get_them(tau):
    heads = made(size=2.0)
    slow = one_by_one(heads, POSITIONS, tuple((p, p + 1) for p in range(1, TOKENS - 1)), tau)
    found = rs.query_scores(heads, POSITIONS, tau=tau, tolerance=1e-9)
    torch.testing.assert_close(found.positional, slow["positional"], atol=1e-8, rtol=0)
    torch.testing.assert_close(found.symbolic, slow["symbolic"], atol=1e-8, rtol=0)


def test_omitted_bounds_the_error():
    heads = made(size=1.5)
    exact, rough = (rs.query_scores(heads, POSITIONS, tau=3e-3, tolerance=tolerance) for tolerance in (1e-12, 0.3))
    error = (exact.positional - rough.positional).abs()
    assert error.max() > 1e-6
    assert (error <= rough.score_error + 1e-12).all()


def test_many_lines_are_done_in_parts_with_the_same_result(monkeypatch):
    whole = rs.query_scores(made(), POSITIONS, LINES)
    monkeypatch.setattr("ropescope.measures.queries.AT_ONCE", 300)
    for one, other in zip(whole, rs.query_scores(made(), POSITIONS, LINES), strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0, equal_nan=True)


def test_positions_are_spread_evenly_over_those_that_see_enough():
    tokens = [(p, p + 1) for p in range(1, 99)]
    assert query_positions(tokens, 100, 4) == [9, 39, 69, 99]
    assert query_positions(tokens, 100, 1) == [99]
    assert query_positions([(1, 3), (3, 9), (9, 20)], 30, 32) == list(range(9, 30))
    assert len(query_positions(tokens, 100, 500)) == 91
    with pytest.raises(ValueError, match="queries must be at least 1"):
        query_positions(tokens, 100, 0)


@pytest.mark.parametrize(
    ("positions", "more", "message"),
    [
        ([], {}, "positions must be in order"),
        ([9, 5], {}, "positions must be in order"),
        ([5, 40], {}, "from 0 to 39"),
        ([5], {"tolerance": 0}, "tolerance must lie between 0 and 1"),
        ([5], {"tau": 0.0}, "tau must be a positive number"),
    ],
)
def test_bad_input_is_refused(positions, more, message):
    with pytest.raises(ValueError, match=message):
        rs.query_scores(made(), positions, **more)
