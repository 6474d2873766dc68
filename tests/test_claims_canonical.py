"""Other numbers give other verdicts on claims about the canonical tasks."""

import pytest
from doctored import at, check_changed


def identity(*path):
    return ("theory", ("identities", *path), 0.1)


def mean_accuracy(sweep, *more):
    return at("canonical", "trained", "sweeps", sweep, "mean", *more)


CHANGES = [
    ("A-T1-exact", "not", identity("exclusion", "permutations_error")),
    ("A-T2", "not", at("canonical", "built", "limits", "right_on_both", "symbolic on Index", 1)),
    ("A-T4", "not", at("canonical", "built", "limits", "right_on_both", "positional on Retrieval", 1)),
    ("A-C1-symbolic", "not", at("canonical", "built", "limits", "right_on_both", "symbolic on partial induction", 1)),
    ("A-C1-positional", "not", at("canonical", "built", "limits", "right_on_both", "positional on Retrieval", 1)),
    ("A-C1-single-angle", "partly", at("canonical", "built", "scores", "one plane, whole", "symbolic_range", [1.0, 1.0])),
    ("A-C1-single-angle", "not", at("canonical", "built", "limits", "right_on_both", "positional on Retrieval", 1)),
    ("ours-4-single-angle", "partly", at("canonical", "built", "scores", "one plane, whole", "accuracy", 0.5)),
    ("A-T3", "partly", at("canonical", "built", "scores", "H_POS, whole", "positional", 0.5)),
    ("A-T5", "not", at("canonical", "built", "scores", "H_SYM, whole", "accuracy", 0.5)),
    ("A-T6", "not", at("canonical", "built", "scores", "H_MIX, whole", "accuracy", 0.5)),
    ("A-T7", "partly", at("canonical", "built", "shapes", "H_POS", "measured", 0, 0.0)),
    ("A-2A-index", "not", mean_accuracy("index", 0, 1.0)),
    ("A-2A-retrieval", "not", mean_accuracy("retrieval", -1, 1.0)),
    ("A-2A-crossing", "not", mean_accuracy("retrieval", -1, 1.0)),
    ("A-2B-one-plane", "reproduced", mean_accuracy("partial induction, few symbols", [0.5] * 19)),
    ("A-2B-two-planes", "not", mean_accuracy("partial induction, with a still plane", [0.5] * 19)),
    ("A-2B-too-fast", "not", mean_accuracy("partial induction, with a still plane", -1, 1.0)),
    ("A-3A-index", "not", at("canonical", "trained", "shapes", "index", "bend", -0.3)),
    ("A-3A-retrieval", "partly", at("canonical", "trained", "shapes", "retrieval", "bend_p", 0.3)),
    ("A-3B-keys", "partly", at("canonical", "trained", "trajectories", "keys_alike", "least", -1, 0.5)),
    ("A-3B-queries", "partly", at("canonical", "trained", "trajectories", "queries_aim", "least", -1, 0.5)),
    ("A-5-knob-training", "partly", mean_accuracy("index", 0, 1.0)),
]


@pytest.mark.parametrize("change", CHANGES, ids=[change[0] for change in CHANGES])
def test_other_numbers_give_another_verdict(runs, rows, tmp_path, change):
    check_changed(runs, rows, tmp_path, *change)
