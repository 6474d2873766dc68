"""Logits of any size, ties, one-hot attention, few keys: finite and right, against 100-digit arithmetic."""

from itertools import combinations

import mpmath
import numpy as np
import pytest
import torch

import ropescope as rs

mpmath.mp.dps = 100


def exact_scores(M: torch.Tensor, tau: float) -> tuple[float, float]:
    """The definition of the scores, word for word, in 100 digits."""
    m = len(M) - 1
    weights = [mpmath.exp(M[j, j].item()) for j in range(m + 1)]
    total = sum(weights)
    real = [w / total for w in weights]
    top = bottom_positional = bottom_symbolic = mpmath.mpf(0)
    widest = max(real[:m]) - min(real[:m])
    for i, j in combinations(range(m), 2):
        after = mpmath.exp(M[j, i].item()), mpmath.exp(M[i, j].item())
        norm = mpmath.sqrt((after[0] ** 2 + after[1] ** 2) * (real[i] ** 2 + real[j] ** 2))
        alpha = mpmath.exp((abs(real[i] - real[j]) - widest) / mpmath.mpf(tau))
        top += alpha
        bottom_positional += alpha * (after[0] * real[i] + after[1] * real[j]) / norm
        bottom_symbolic += alpha * (after[0] * real[j] + after[1] * real[i]) / norm
    return float(bottom_positional / top), float(bottom_symbolic / top)


def extreme_matrices():
    rng = np.random.default_rng(0)
    for size in (1e-6, 1.0, 30.0, 1e3, 1e4):
        yield f"random of size {size}", rng.normal(size=(7, 7)) * size
    yield "plus and minus 1e4", rng.choice([-1e4, 1e4], size=(7, 7))
    one_hot = rng.normal(size=(7, 7))
    one_hot[2, 2] = 1e4
    yield "one-hot on a key", one_hot
    on_query = rng.normal(size=(7, 7))
    on_query[6, 6] = 1e4
    yield "one-hot on the query itself", on_query
    ties = np.zeros((7, 7))
    yield "all alike", ties
    yield "ties in the real logits", ties + rng.normal(size=(7, 7)) * (1 - np.eye(7))
    yield "two keys", rng.normal(size=(3, 3)) * 5
    yield "two keys far apart", np.array([[1e4, -1e4, 0], [1e4, -1e4, 0], [0, 0, 0.0]])


@pytest.mark.parametrize(("name", "M"), list(extreme_matrices()), ids=lambda x: x if isinstance(x, str) else "")
@pytest.mark.parametrize("tau", [1e-4, 1.0])
def test_scores_of_extreme_logits(name, M, tau):
    M = torch.tensor(M)
    scores = rs.swap_scores(M, tau)
    expected = exact_scores(M, tau)
    assert float(scores.positional) == pytest.approx(expected[0], abs=1e-9)
    assert float(scores.symbolic) == pytest.approx(expected[1], abs=1e-9)
    every = (*rs.permutation_scores(M, 20, tau), *rs.variance_shares(M), *rs.exclusion(M), rs.entropy(M))
    assert all(torch.isfinite(value) for value in every), name
    assert float(sum(rs.variance_shares(M))) == pytest.approx(1)


def test_a_constant_head_is_both_and_shares_are_half_and_half():
    M = torch.full((5, 5), 3.0)
    assert rs.swap_scores(M) == (1, 1)
    assert rs.variance_shares(M) == (0.5, 0.5, 0)
    assert float(rs.entropy(M)) == pytest.approx(1, abs=1e-15)


def test_entropy_of_one_hot_attention_is_zero():
    M = torch.zeros(5, 5)
    M[3, 3] = 1e4
    assert rs.entropy(M) == 0


def test_two_keys_have_one_swap_whatever_tau():
    M = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores = rs.swap_scores(M, tau=[1e-9, 1e-4, 1e9])
    torch.testing.assert_close(scores.positional, scores.positional[:1].expand(3))


def test_a_clamped_cosine_would_be_wrong_here():
    """The released code's lower limit of 1e-8 on norms, on a head that looks at the query itself: 0 instead of 1."""
    M = torch.zeros(4, 4, dtype=torch.float64)
    M[:3, :3] = torch.tensor([1.0, 2.0, 3.0])  # columns alike: purely positional
    M[3, 3] = 50
    weights = M.diagonal().softmax(-1)
    clamped = torch.nn.functional.cosine_similarity(weights[:2], weights[:2], dim=0)
    assert clamped < 0.01
    assert rs.swap_scores(M).positional == pytest.approx(1, abs=1e-12)
