"""Other numbers give other verdicts on claims about families of models."""

import pytest
from doctored import at, check_changed

CHANGES = [
    ("ours-5-refused", "not", at("conformance", "worst_logit_error", 1.0)),
]


@pytest.mark.parametrize("change", CHANGES, ids=[change[0] for change in CHANGES])
def test_other_numbers_give_another_verdict(runs, rows, tmp_path, change):
    check_changed(runs, rows, tmp_path, *change)
