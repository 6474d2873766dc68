"""Other numbers give other verdicts on claims about checks of the rotation."""

import pytest
from doctored import at, check_changed

CHANGES = [
    ("ours-6-rope-faults", "not", at("rope-faults-tiny", "detected", 1)),
    ("ours-6-rope-alarms", "not", at("rope-faults-tiny", "false_alarms", 1)),
]


@pytest.mark.parametrize("change", CHANGES, ids=[change[0] for change in CHANGES])
def test_other_numbers_give_another_verdict(runs, rows, tmp_path, change):
    check_changed(runs, rows, tmp_path, *change)
