"""Other numbers give other verdicts on claims about several heads in a layer."""

import pytest
from doctored import at, check_changed

ONE, NONE = [[1.0] * 4] * 6, [[0.0] * 4] * 6
"""Scores of six layers of four heads."""
BOTH = [[1.0, 1.0, 0.0, 0.0]] * 6, [[0.0, 0.0, 1.0, 1.0]] * 6


def scores(number, positional, symbolic):
    """Changes of the scores of one model."""
    return [at("head-groups", "models", number, *change) for change in (("positional", positional), ("symbolic", symbolic))]


CHANGES = [
    ("ours-groups-purity", "not", *scores(5, NONE, ONE), *scores(13, NONE, ONE)),  # letter models, GPT-J with four heads
    ("ours-groups-purity", "reproduced", *(change for n in (1, 9, 11) for change in scores(n, ONE, ONE))),
    ("ours-groups-mix", "partly", *scores(9, *BOTH)),
    ("ours-groups-mix", "reproduced", *(change for n in (1, 9, 11) for change in scores(n, *BOTH))),
]


@pytest.mark.parametrize("change", CHANGES, ids=[f"{change[0]}, {change[1]}" for change in CHANGES])
def test_other_numbers_give_another_verdict(runs, rows, tmp_path, change):
    check_changed(runs, rows, tmp_path, *change)
