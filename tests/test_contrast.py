"""Whether a head can be judged, and centred scores, against the definition swap by swap."""

from itertools import combinations

import numpy as np
import pytest
import torch

import ropescope as rs
from ropescope.measures.contrast import LEAST_CONTRAST, centred, heavy_rows, identifiable, score_floor
from ropescope.measures.registry import compute, measures
from ropescope.measures.view import LayerView


def slow_floor(weights, tau):
    """Cosine of every pair of weights with the pair exchanged, averaged over all pairs."""
    pairs = list(combinations(range(len(weights)), 2))
    cosine = np.array([2 * weights[i] * weights[j] / (weights[i] ** 2 + weights[j] ** 2) for i, j in pairs])
    logs = np.array([abs(weights[i] - weights[j]) / tau for i, j in pairs])
    alpha = np.exp(logs - logs.max())
    return (alpha * cosine).sum() / alpha.sum()


def logits_of(size, keys=12, seed=0):
    return size * torch.randn(6, keys, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("tau", [1e-4, 0.1, 10.0])
@pytest.mark.parametrize("size", [0.0, 0.01, 1.0, 8.0])
def test_the_floor_is_the_mean_over_all_swaps(size, tau):
    logits = logits_of(size)
    floor = score_floor(logits[:, :-1], logits.logsumexp(-1), tau)
    slow = [slow_floor(row[:-1], tau) for row in logits.softmax(-1).numpy()]
    np.testing.assert_allclose(floor, slow, atol=2e-9)


def test_heavy_rows_leave_out_no_more_than_they_say():
    weight = logits_of(1.0, 400).softmax(-1)
    heavy = ((weight - weight.amax(-1, keepdim=True)) / 1e-3).exp()
    item, row = heavy_rows(heavy, 1e-3)
    left = heavy.clone()
    left[item, row] = 0
    assert 0 < left.sum(-1).max() <= 5e-4
    assert len(item) < weight.numel() / 10


@pytest.mark.parametrize("size", [0.3, 3.0])
def test_pure_heads_have_centred_scores_of_one_and_nothing(size):
    real = logits_of(size)
    floor = score_floor(real[:, :-1], real.logsumexp(-1), 1e-4)
    keys = real.shape[-1]
    positional = rs.swap_scores(real[:, None, :].expand(-1, keys, keys))
    one, zero = torch.ones(6, dtype=torch.float64), torch.zeros(6, dtype=torch.float64)
    torch.testing.assert_close(centred(positional.positional, floor), one, atol=1e-8, rtol=0)
    torch.testing.assert_close(centred(positional.symbolic, floor), zero, atol=1e-8, rtol=0)
    follows = rs.swap_scores(real[:, :, None].expand(-1, keys, keys))
    torch.testing.assert_close(centred(follows.symbolic, floor), one, atol=1e-8, rtol=0)
    torch.testing.assert_close(centred(follows.positional, floor), zero, atol=1e-8, rtol=0)


def test_uniform_attention_scores_high_and_cannot_be_judged():
    view = _view(torch.zeros(1, 2, 9, 8))
    found = compute(view, measures("scores", "identifiability").values())
    assert found["positional"].min() == found["symbolic"].min() == 1
    assert found["contrast"].max() < 1e-12
    assert found["identifiable"].max() == 0
    assert found["positional_centred"].isnan().all()


def test_a_head_that_looks_elsewhere_cannot_be_judged():
    queries, keys = torch.zeros(1, 1, 9, 8), torch.randn(1, 1, 9, 8, generator=torch.Generator().manual_seed(1))
    queries[..., 0], keys[..., 0] = 5.0, torch.randn(9)
    keys[:, :, 0, 0] = 30.0  # the first token takes all weight
    found = compute(_view(queries, keys, rs.Rope(head_dim=8, rotary_dim=0)), measures("identifiability", "attention").values())
    assert found["on_blocks"].max() < 0.1
    assert found["contrast"].min() > LEAST_CONTRAST
    assert found["identifiable"].max() == 0


def test_the_limits_are_those_of_two_weights_of_which_one_is_twice_the_other():
    twice = torch.tensor([2.0, 1.0], dtype=torch.float64).log()
    floor = score_floor(twice, twice.logsumexp(-1), 1e-4)
    assert float(1 - floor) == pytest.approx(LEAST_CONTRAST)
    limits = torch.tensor([0.79, 0.81, 0.79]), torch.tensor([0.11, 0.11, 0.09])
    assert identifiable(*limits).tolist() == [1, 0, 0]


def test_centred_scores_of_a_layer_follow_from_its_scores_and_its_weights():
    generator = torch.Generator().manual_seed(2)
    view = _view(*(torch.randn(2, n, 9, 8, generator=generator) for n in (4, 2)))
    found = compute(view, measures("scores", "identifiability").values())
    for n, h in np.ndindex(2, 4):
        floor = slow_floor(view.weights[n, h, 1:8].numpy(), view.tau)
        assert float(found["contrast"][n, h]) == pytest.approx(1 - floor, abs=1e-8)
        expected = (float(found["symbolic"][n, h]) - floor) / (1 - floor)
        assert float(found["symbolic_centred"][n, h]) == pytest.approx(expected, abs=1e-6)


def _view(queries, keys=None, rope=None):
    heads = rs.Heads(queries, queries if keys is None else keys, rope or rs.Rope(head_dim=8), scale=1.0)
    return LayerView(heads, rs.layer_factors(heads), tuple((p, p + 1) for p in range(1, 8)))
