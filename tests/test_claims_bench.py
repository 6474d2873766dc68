"""Other numbers give other verdicts on claims about costs."""

import pytest
from doctored import at, check_changed

CHANGES = [
    ("B-I-score-cost", "partly", at("bench", "scores", "17", "faster_than_rerunning_blocks", 10)),
    ("ours-1-cost", "partly", at("bench-profile", "24", "scored_over_plain", 3.0)),
]


@pytest.mark.parametrize("change", CHANGES, ids=[change[0] for change in CHANGES])
def test_other_numbers_give_another_verdict(runs, rows, tmp_path, change):
    check_changed(runs, rows, tmp_path, *change)
