"""Other numbers give other verdicts on claims about the theory."""

import pytest
from doctored import at, check_changed

SMOL = "profile-smollm2-135m"


def identity(*path):
    return ("theory", ("identities", *path), 0.1)


CHANGES = [
    ("A-3-additive", "not", identity("planes_add_up_error")),
    ("A-3-equal-keys", "not", identity("equal_keys", "smallest_score")),
    ("A-3-no-positions", "not", identity("no_positions", "smallest_share")),
    ("A-3-one-pass", "not", identity("really_swapped", "tokens")),
    ("A-3-blocks", "not", identity("really_swapped", "blocks")),
    ("A-T1-exclusion", "not", at(SMOL, "exclusion", "violations", 1)),
    ("B-code-clamp", "not", at("theory", "identities", "released_code", "largest_error", 0.01)),
    ("ours-1-shares", "not", identity("shares_sum_error")),
    ("B-T1-ids", "partly", at("theory", "identities", "frequency_of_id", "2", 0.5)),
    ("B-F-t-index", "not", at("theory", "random_inputs", "index", "wrong", 1)),
    ("B-F-t-index-positional", "not", at("theory", "scores", "index", "positional_min", 0.9)),
    ("B-F-irrational", "reproduced", at("theory", "every_input", "cases", 0, "wrong", 1)),
    ("B-F-t-retrieval", "not", at("theory", "random_inputs", "retrieval", "wrong", 1)),
    ("B-F-t-retrieval-range", "not", at("theory", "every_input", "cases", 6, "wrong", 1)),
    ("B-F-t-retrieval-symbolic", "partly", at("theory", "scores", "retrieval", "symbolic_min", 0.5)),
    ("B-LF1-softmax", "not", at("theory", "random_inputs", "retrieval", "smallest_lead", -0.1)),
    ("B-R3.1-index", "not", at("theory", "limits", "symbolic_on_index_largest_distance", 1.0)),
    ("B-R3.1-retrieval", "reproduced", at("theory", "random_inputs", "retrieval, uniform", "wrong", 5)),
    ("B-T3.2-index", "reproduced", at("theory", "bounds", "index_printed_violated", 0)),
    ("B-T3.2-index-letters", "not", at("theory", "bounds", "index_letter_queries_violated", 1)),
    ("ours-3-index", "not", at("theory", "bounds", "index_corrected_violated", 1)),
    ("B-T3.2-retrieval", "reproduced", at("theory", "bounds", "retrieval_printed_below_largest_up_to_100", 0)),
    ("B-T3.2-retrieval-still", "not", at("theory", "curves.json", "retrieval_smallest_still", -1, 0.0)),
    ("ours-3-retrieval", "not", at("theory", "curves.json", "retrieval_smallest", 0, 0.5)),
    ("B-T3.2-separation", "partly", at("theory", "curves.json", "index_largest", -1, 1.0)),
    ("B-5A-index", "partly", at("theory", "curves.json", "index_printed", 0, 0.5)),
    ("B-5A-retrieval", "partly", at("theory", "curves.json", "retrieval_printed", 0, 0.5)),
    ("B-5A-angle", "reproduced", at("theory", "bounds", "index_angle", 0.866)),
    ("ours-3-planes", "not", at("theory", "planes", "above_a_bound", 1)),
]


@pytest.mark.parametrize("change", CHANGES, ids=[change[0] for change in CHANGES])
def test_other_numbers_give_another_verdict(runs, rows, tmp_path, change):
    check_changed(runs, rows, tmp_path, *change)
