"""Purity and confidence intervals, on plain arrays."""

import numpy as np
import pytest
import torch

import ropescope as rs


def test_purity_needs_both_scores():
    positional = [0.95, 0.05, 0.95, 0.9, 0.5, 0.05]
    symbolic = [0.05, 0.95, 0.95, 0.1, 0.5, 0.05]
    assert rs.purity(positional, symbolic, gamma=0.1).tolist() == [1, -1, 0, 1, 0, 0]
    assert rs.purity(positional, symbolic, gamma=0.05).tolist() == [1, -1, 0, 0, 0, 0]


def test_purity_takes_tensors():
    assert rs.purity(torch.tensor([1.0]), torch.tensor([0.0])).tolist() == [1]


def test_the_step_at_which_heads_become_pure():
    steps = [0, 100, 200, 300]
    pure, mixed = (1.0, 0.0), (0.6, 0.6)
    heads = [
        [mixed, pure, pure, pure],  # positional from 100 on
        [mixed, pure, mixed, pure],  # came, went, came back
        [pure, pure, mixed, mixed],  # was, but did not stay
        [mixed, mixed, pure[::-1], pure[::-1]],  # symbolic from 200 on
        [mixed, mixed, mixed, mixed],
    ]
    positional, symbolic = np.array(heads).transpose(2, 1, 0)
    found = rs.purity_steps(positional, symbolic, steps)
    nan = np.nan
    np.testing.assert_array_equal(found.first_positional, [100, 100, 0, nan, nan])
    np.testing.assert_array_equal(found.since_positional, [100, 300, nan, nan, nan])
    np.testing.assert_array_equal(found.first_symbolic, [nan, nan, nan, 200, nan])
    np.testing.assert_array_equal(found.since_symbolic, [nan, nan, nan, 200, nan])


def test_interval_is_along_the_axis_of_inputs_and_repeats():
    values = np.random.default_rng(0).normal(size=(3, 50, 2))
    one, other = rs.mean_interval(values, axis=1), rs.mean_interval(values, axis=1)
    assert one.mean.shape == one.low.shape == (3, 2)
    np.testing.assert_allclose(one.mean, values.mean(1))
    np.testing.assert_array_equal(one.low, other.low)
    assert (one.low < one.mean).all()
    assert (one.mean < one.high).all()
    narrow = rs.mean_interval(values, axis=1, level=0.5)
    assert (narrow.high - narrow.low < one.high - one.low).all()


def test_interval_of_equal_values_is_a_point():
    assert rs.mean_interval([0.5] * 10) == pytest.approx((0.5, 0.5, 0.5))
