"""Other numbers give other verdicts on claims about changed planes and heads."""

import pytest
from doctored import at, check_changed

SMOL_CONTROL = "control-smollm2"
BINDING = "8 pairs: log probability"


CHANGES = [
    ("A-5-knob-fast", "partly", at("control-letter", "changes", "fast third dropped", "measures", "accuracy", 0.1)),
    ("A-5-knob-slow", "reproduced", at("control-letter", "changes", "slow third dropped", "measures", "accuracy", 0.1)),
    ("A-5-p-rope", "partly", at(SMOL_CONTROL, "changes", "slowest 50% stopped", "measures", "perplexity", 100.0)),
    ("A-5-knob-real", "not", at(SMOL_CONTROL, "changes", "slow third stopped", "measures", BINDING, -3.0)),
    ("A-5-heads-follow", "not", at("control-number", "changes", "fast third dropped", "symbolic", [0.0] * 12)),
]


@pytest.mark.parametrize("change", CHANGES, ids=[change[0] for change in CHANGES])
def test_other_numbers_give_another_verdict(runs, rows, tmp_path, change):
    check_changed(runs, rows, tmp_path, *change)
