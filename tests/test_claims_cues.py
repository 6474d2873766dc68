"""Other numbers give other verdicts on claims about counting and matching."""

import pytest
from doctored import at, check_changed

CHANGES = [
    ("ours-cues-default", "partly", at("cues", "models", 0, "preference", 0.5)),
    ("ours-cues-preference", "partly", at("cues", "models", 0, "preference", 0.5)),
    ("ours-cues-length", "reproduced", at("cues", "predicts", "lead", 0.7)),
]


@pytest.mark.parametrize("change", CHANGES, ids=[change[0] for change in CHANGES])
def test_other_numbers_give_another_verdict(runs, rows, tmp_path, change):
    check_changed(runs, rows, tmp_path, *change)
