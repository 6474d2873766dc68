"""Other numbers give other verdicts on claims about mechanisms."""

import pytest
from doctored import at, check_changed

NUMBER, LETTER = "mechanisms-released-number-2", "mechanisms-released-letter-2"
"""The runs that are judged."""
RUNS = {"number": NUMBER, "letter": LETTER}


def mean_planes(task, way, value):
    return at(RUNS[task], task, "planes", f"mean_plane_by_{way}", [value] * 12)


CHANGES = [
    ("B-2-heads-needed", "partly", at(NUMBER, "number", "changes", "L1 out", [1, 1, 1, 0.5])),
    ("B-T1-number-early", "reproduced", mean_planes("number", "largest", 2)),
    ("B-T1-number-L4", "not", mean_planes("number", "spread", 4)),
    ("B-T1-number-late", "not", mean_planes("number", "spread", 1)),
    ("B-T1-letter-L0", "partly", mean_planes("letter", "spread", 18)),
    ("B-T1-letter-L1", "reproduced", mean_planes("letter", "spread", 34)),
    ("B-T1-letter-late", "partly", mean_planes("letter", "spread", 1)),
    (
        "B-8-few-slow-planes",
        "reproduced",
        *(at(RUNS[task], task, "planes", "planes_in_use_by_spread", [8] * 12) for task in ("number", "letter")),
    ),
    ("B-3-functions-number", "reproduced", at(NUMBER, "number", "flow", "explained", [1.0] * 12)),
    ("B-3-functions-letter", "not", at(LETTER, "letter", "flow", "explained", [0.5] * 12)),
    ("B-3-index", "partly", at(NUMBER, "number", "changes", "positional hop", [1, 1, 1, 0.5])),
    ("B-3-retrieval", "reproduced", at(LETTER, "letter", "changes", "symbolic hop", [1.0] * 4)),
    ("B-3-reflexive", "not", at(NUMBER, "number", "changes", "symbolic reflexive", [0.5] * 4)),
    ("B-3-composition-number", "reproduced", at(NUMBER, "number", "flow", "agreement_with_ideal", [1.0] * 13)),
    ("B-3-composition-letter", "partly", at(LETTER, "letter", "flow", "holds_earlier_than_ideal", [0.0] * 13)),
]


@pytest.mark.parametrize("change", CHANGES, ids=[change[0] for change in CHANGES])
def test_other_numbers_give_another_verdict(runs, rows, tmp_path, change):
    check_changed(runs, rows, tmp_path, *change)
