"""Other numbers give other verdicts on claims about profiled language models."""

import pytest
from doctored import at, check_changed

SMOL = "profile-smollm2-135m"


CHANGES = [
    ("A-4-slow-planes", "partly", at(SMOL, "frequency", "bands", "slow", "difference", "low", -0.1)),
    ("A-4-fast-planes", "partly", at(SMOL, "frequency", "bands", "middle to fast", "difference", "high", 0.1)),
    ("A-4-fastest-planes", "partly", at(SMOL, "frequency", "bands", "fastest", "symbolic", "low", 0.999)),
    ("ours-1-shares-and-scores", "partly", at(SMOL, "shares", "spearman", "r", 0.1)),
    (
        "ours-1-temperature",
        "partly",
        *(at("profile-minimind2-small", "sensitivity", "tau", place, "symbolic", "spearman", 0.9) for place in (2, 3, 4)),
    ),
    (
        "ours-1-permutations",
        "partly",
        at("profile-minimind2-small", "sensitivity", "permutations", "symbolic", "spearman", 0.9),
    ),
    (
        "ours-1-block-size",
        "partly",
        *(at("profile-*", "sensitivity", "tokens", score, "spearman", 0.9) for score in ("positional", "symbolic")),
    ),
    ("ours-1-right-answers", "partly", at(SMOL, "right_only", "all_and_right", "positional", "spearman", 0.1)),
    ("ours-1-by-input", "partly", at(SMOL, "over_inputs", "heads_of_both_kinds", 0)),
    ("A-4-correlation", "partly", at(SMOL, "correlation", "pearson", "r", -0.5)),
    (
        "A-4-depth-positional",
        "reproduced",
        at("profile-*", "depth", "positional", {"first": 0.9, "second": 0.5, "p_value": 0.0, "p_layers": 0.0}),
    ),
    (
        "A-4-depth-symbolic",
        "not",
        at("profile-*", "depth", "symbolic", {"first": 0.9, "second": 0.5, "p_value": 0.0, "p_layers": 0.0}),
    ),
    ("A-4-trend", "partly", at(SMOL, "frequency", "trend_of_heads", "share_rising", 0.1)),
    ("A-4-norms", "not", at("profile-*", "frequency", "largest", "norm", "p_value", 0.9)),
    ("A-4-families", "partly", at("profile-gemma3-270m", "correlation", "pearson", "r", -0.5)),
    (
        "A-3C-geometry",
        "partly",
        at(
            SMOL,
            "closer.json",
            "geometry",
            [
                {"kind": kind, "what": "key", "block": 0, "x": 1.0, "y": y}
                for kind, places in (("positional", (0.0, 0.1)), ("symbolic", (-2.0, 2.0)))
                for y in places
            ],
        ),
    ),
    ("ours-5-diagonal", "partly", at(SMOL, "worst_check_error", 1.0)),
    ("ours-5-first-look", "not", at(SMOL, "correlation", "pearson", "r", -0.5)),
]


@pytest.mark.parametrize("change", CHANGES, ids=[change[0] for change in CHANGES])
def test_other_numbers_give_another_verdict(runs, rows, tmp_path, change):
    check_changed(runs, rows, tmp_path, *change)
