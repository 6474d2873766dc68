"""Other numbers give other verdicts on claims about checks of rotations."""

import json

import pytest
from doctored import at, check_changed

from ropescope.runs import Run
from ropescope.studies.check_rope.files import PERMUTED, RIGHT
from ropescope.studies.claims import CASES, Runs

CHANGES = [
    ("ours-6-rope-faults", "not", at("rope-faults-[!t]*", "faults.json", 5, "cause_named", False)),
    ("ours-6-rope-faults", "not", at("rope-faults-[!t]*", "faults.json", 5, "tokens", 128)),
    ("ours-6-rope-faults", "not", at("rope-faults-[!t]*", "faults.json", 5, "detected", False)),
    ("ours-6-rope-tiny", "not", at("rope-faults-tiny", "detected", 2000)),
    ("ours-6-rope-alarms", "not", at("rope-faults-tiny", "alarms.json", 0, "alarm", True)),
    ("ours-6-rope-baselines", "partly", at("rope-faults-stories15M", "faults.json", 0, "logit_difference", [0.0, 0.0])),
    ("ours-6-rope-weights", "not", at("rope-faults-stories15M", "faults.json", 1, "clean_leaning", {"own": 0, "other": 6})),
    ("ours-6-rope-runtimes", "partly", at("check-rope-onnxruntime-*", "verdicts", "not decided", 1)),
    ("ours-6-rope-cost", "partly", at("check-rope-cost-*1.5b*", "cost", "check_over_plain", 3.1)),
    ("ours-6-rope-cost", "not", at("check-rope-cost-*1.5b*", "cost", "check_over_plain", 7.0)),
]


@pytest.mark.parametrize("change", CHANGES, ids=[f"{change[0]}, {change[1]}" for change in CHANGES])
def test_other_numbers_give_another_verdict(runs, rows, tmp_path, change):
    check_changed(runs, rows, tmp_path, *change)


def made(folder, name, command, results, **files):
    """A small run of our own."""
    (folder / name).mkdir()
    for file, rows in files.items():
        (folder / name / f"{file}.json").write_text(json.dumps(rows))
    return Run(folder / name, {"command": command, "config": {}, "results": results})


def small_runs(folder, alarm=False, trained=False, precisions=3, random=0, before=0, told=True):
    """Runs in which one family was verified, and one model trained."""
    folder.mkdir()
    alarms = [{"family": "llama", "alarm": alarm, "real": False}] * precisions
    counts = {"own": 0, "other": 6, "neither": 0}
    faults = [
        {"fault": RIGHT, "detected": trained},
        {"fault": PERMUTED, "detected": told, "layers": 6, "leaning": counts, "clean_leaning": counts | {"other": before}},
    ]
    tiny = {"clean_checks": 3, "precisions": ["float32", "float16", "bfloat16"], "called_permuted": random}
    return [
        made(folder, "conformance", "conformance", {"verdicts": {}}, families=[{"family": "llama", "verdict": "verified"}]),
        made(folder, "tiny", "rope-faults", tiny, alarms=alarms, faults=[]),
        made(folder, "model", "rope-faults", {"model": {"source": "model"}, "lengths": [32]}, faults=faults),
    ]


CASES_MADE = [
    ("ours-6-rope-alarms", {}, "reproduced"),
    ("ours-6-rope-alarms", {"trained": True}, "partly"),
    ("ours-6-rope-alarms", {"precisions": 2}, "partly"),
    ("ours-6-rope-alarms", {"alarm": True}, "not"),
    ("ours-6-rope-weights", {}, "reproduced"),
    ("ours-6-rope-weights", {"told": False}, "partly"),
    ("ours-6-rope-weights", {"random": 1}, "not"),
    ("ours-6-rope-weights", {"before": 4}, "not"),
]


@pytest.mark.parametrize(("claim", "changes", "verdict"), CASES_MADE, ids=str)
def test_made_numbers_give_each_verdict(rows, tmp_path, claim, changes, verdict):
    assert any(row.claim == claim for row in rows)
    assert CASES[claim].row(Runs(small_runs(tmp_path / "runs", **changes))).verdict == verdict
