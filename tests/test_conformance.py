"""Every rotary family of the installed `transformers` before the door."""

import json
from pathlib import Path

import pytest
from test_cli import check_summary, run

from ropescope.experiments.conformance import LIMIT, check_family
from ropescope.experiments.families import rotary_families
from ropescope.models.adapter import ROUNDED

RECORDED = {
    row["family"]: row for row in json.loads((Path(__file__).parents[1] / "results/conformance/families.json").read_text())
}


@pytest.mark.parametrize("family", rotary_families())
def test_family(family):
    """Verified to rounding, or refused with a reason: and as recorded, where it was recorded."""
    row = check_family(family)
    if row["verdict"] == "verified":
        assert row["logit_error"] <= (ROUNDED if row["single"] else LIMIT)
        assert row["weight_error"] <= ROUNDED
    else:
        assert row["reason"]
    if family in RECORDED:
        assert row["verdict"] == RECORDED[family]["verdict"]


def test_enough_families():
    assert sum(row["verdict"] == "verified" for row in RECORDED.values()) >= 90


def test_another_seed_finds_the_same():
    """Weights and tokens are random: the verdict must not be."""
    for family in ("llama", "gemma2", "doge", "hunyuan_v1_dense"):
        assert check_family(family, seed=5)["verdict"] == RECORDED[family]["verdict"]


def test_command(tmp_path):
    done = run("conformance", "llama", "doge", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert check_summary(tmp_path, "conformance")["results"]["verdicts"] == {"verified": 1, "refused": 1}
    assert "1 verified, 1 refused" in done.stdout
    assert "no rotary decoder family" in run("conformance", "bert", "--out", str(tmp_path)).stderr
