"""Other numbers give other verdicts on claims about windows of key heads."""

import pytest
from doctored import at, check_changed

SMOL = "windows-smollm2-135m"
CHANGES = [
    (
        "ours-windows-rivals",
        "not",
        at("windows-qwen2.5-coder-1.5b", "areas", "far-variance", -9.0),
        at("windows-tinyllama-1.1b", "areas", "far-variance", -9.0),
    ),
    ("ours-windows-random", "reproduced", at("windows-tinyllama-1.1b", "areas", "retrieval", -4.0)),
    ("ours-windows-cache", "partly", at("windows-minimind2-small", "cache", "logit_difference", 1.0)),
]


@pytest.mark.parametrize("change", CHANGES, ids=[f"{change[0]}, {change[1]}" for change in CHANGES])
def test_other_numbers_give_another_verdict(runs, rows, tmp_path, change):
    check_changed(runs, rows, tmp_path, *change)
