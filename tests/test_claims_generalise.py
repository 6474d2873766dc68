"""Other numbers give other verdicts on claims about length."""

import pytest
from doctored import at, check_changed


def measured(task, value, count=10):
    return at(f"generalise-{task}", task, "curves", "measured", "overall", "mean", [value] * count)


def far(number):
    return at("hop-lengths-released", "distances", number, "distance", "1 and 2 hops", 0.5)


CHANGES = [
    ("B-5B-letter-850", "reproduced", measured("letter", 0.95)),
    ("B-5B-letter-3000", "reproduced", measured("letter", 0.65)),
    ("B-5B-letter-5000", "partly", measured("letter", 0.38)),
    ("B-5B-number-250", "reproduced", measured("number", 0.5)),
    ("B-5B-number-1000", "reproduced", measured("number", 0.2)),
    ("B-5B-number-3000", "not", measured("number", 0.5)),
    ("ours-5B-hop-mix", "not", *(far(n) for n in (1, 8, 14))),  # the curves that are near
    ("B-5B-order", "not", measured("number", 1.0)),
    ("ours-2-first-lengths", "not", measured("number", 0.0)),
    ("ours-2-fillers", "not", at("letter-0-last-one-letter", "letter", "curves", "measured", "overall", "mean", [1.0, 1.0])),
    (
        "ours-3-prediction",
        "partly",
        at("generalise-letter", "letter", "crossings", "0.9", "overall", "keys and places / measured", 3.0),
    ),
]


@pytest.mark.parametrize("change", CHANGES, ids=[change[0] for change in CHANGES])
def test_other_numbers_give_another_verdict(runs, rows, tmp_path, change):
    check_changed(runs, rows, tmp_path, *change)
