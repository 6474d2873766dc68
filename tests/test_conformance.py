"""The command that checks families; the families themselves are in test_families."""

import pytest
from commands import run
from test_cli import check_summary


@pytest.mark.slow
def test_command(tmp_path):
    done = run("conformance", "llama", "doge", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert check_summary(tmp_path, "conformance")["results"]["verdicts"] == {"verified": 1, "refused": 1}
    assert "1 verified, 1 refused" in done.stdout
    assert "no rotary decoder family" in run("conformance", "bert", "--out", str(tmp_path)).stderr
