"""The command that checks families; the families themselves are in test_families."""

import pytest
from commands import run
from test_cli import check_summary

from ropescope.studies.conformance.run import changes


@pytest.mark.slow
def test_command(tmp_path):
    done = run("conformance", "llama", "doge", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert check_summary(tmp_path, "conformance")["results"]["verdicts"] == {"verified": 1, "refused": 1}
    assert "1 verified, 1 refused" in done.stdout
    assert "no rotary decoder family" in run("conformance", "bert", "--out", str(tmp_path)).stderr


def test_changes_since_an_earlier_run():
    row = {"verdict": "verified", "reason": None, "layers": 2, "rotation": "half", "logit_error": 3e-16}
    before = [{"family": name, **row} for name in ("gone", "same", "worse", "other")]
    after = [
        {"family": "same", **row, "logit_error": 9e-16},
        {"family": "worse", **row, "logit_error": 4e-13},
        {"family": "other", **row, "rotation": "interleaved"},
        {"family": "new", **row},
    ]
    found = {(each["family"], each["what"]): (each["before"], each["after"]) for each in changes(before, after)}
    assert found == {
        ("gone", "family"): ("verified", "not there"),
        ("new", "family"): ("not there", "verified"),
        ("worse", "error"): ("3e-16", "4e-13"),
        ("other", "rotation"): ("half", "interleaved"),
    }
    assert {each["family"] for each in changes(before, after, whole=False)} == {"new", "worse", "other"}
    assert changes(before, before) == []
