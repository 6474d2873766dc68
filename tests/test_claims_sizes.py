"""Other numbers give other verdicts on claims about the sizes of tasks."""

import pytest
from doctored import at, check_changed


def model(number, outcome, value):
    return at("sizes", "models", number, outcome, value)


CHANGES = [
    ("ours-sizes-heads", "reproduced", *(model(number, "pure_positional", 5) for number in (5, 22))),  # four hops, both seeds
    ("ours-sizes-step", "partly", model(5, "learned_at", 148)),
    ("ours-sizes-breaks", "partly", model(5, "breaks_at", 544.0)),
]


@pytest.mark.parametrize("change", CHANGES, ids=[change[0] for change in CHANGES])
def test_other_numbers_give_another_verdict(runs, rows, tmp_path, change):
    check_changed(runs, rows, tmp_path, *change)
