"""What the theory run records of random heads is right, and would show if it were not."""

import numpy as np
import pytest

from ropescope.rope import Rope
from ropescope.studies.theory import identities as experiment


def test_what_must_hold_holds():
    found = experiment.identities(seed=1, heads=3)
    assert found["exclusion"]["violations"] == 0
    assert 0 < found["exclusion"]["smallest_slack"] < 1
    errors = [found["planes_add_up_error"], found["shares_sum_error"], *found["really_swapped"].values()]
    errors += [found["exclusion"][key] for key in ("permutations_error", "reached_error")]
    errors += [1 - value for kind in ("no_positions", "equal_keys") for value in found[kind].values()]
    assert max(errors) < 1e-9
    assert found["released_code"]["largest_error"] > 0.1
    assert found["frequency_of_id"]["2"] == pytest.approx(10_000 ** (-2 / 128))


@pytest.mark.parametrize("blocks", [None, experiment.BLOCKS])
def test_another_rotation_is_noticed(blocks):
    query, keys, rope = experiment.random_head(np.random.default_rng(0))
    other = Rope(8, pairing=rope.pairing, frequencies=[2 * angle for angle in rope.frequencies])
    apart = experiment.moved_scores(query, keys, rope, blocks) - experiment.moved_scores(query, keys, other, blocks)
    assert np.abs(apart).max() > 1e-3
    assert experiment.swap_error((query, keys, rope), blocks) < 1e-9


def test_the_sum_over_permutations_by_hand():
    (a, b), (c, d) = M = np.array([[1.0, 5.0], [2.0, 7.0]])
    expected = ((c - a) ** 2 + (b - d) ** 2 + (c - d) ** 2 + (b - a) ** 2) / 4
    assert experiment.bound_by_permutations(M) == pytest.approx(expected)
