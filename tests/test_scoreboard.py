"""The scoreboard has a row for every claim, every verdict depends on numbers of runs, and without runs nothing is said."""

import json
import subprocess
import sys
from importlib import import_module

import pytest
from doctored import RESULTS, ROOT

from ropescope.report.scoreboard import Claim, counted, grouped, markdown, scoreboard
from ropescope.runs import Run, find_runs
from ropescope.studies.claims import VERDICTS, Runs, all_cases

CLAIMS = {
    "scores, shares, exclusion, planes, flaw and cost of the released code": """
        A-3-additive A-3-equal-keys A-3-no-positions A-3-one-pass A-3-blocks A-T1-exclusion A-T1-exact B-code-clamp
        B-I-score-cost A-4-slow-planes A-4-fast-planes A-4-fastest-planes ours-1-shares ours-1-shares-and-scores""",
    "questions of reviewers": """
        ours-1-cost ours-1-temperature ours-1-permutations ours-1-block-size ours-1-right-answers ours-1-by-input""",
    "number and letter: setting and learning": """
        B-2-setting B-2-parameters B-2-number-accuracy B-2-letter-accuracy B-2-number-when B-2-letter-when B-2-number-hop-by-hop
        B-2-number-hop-steps B-2-letter-together B-2-letter-done B-2-uniform-start B-2-purity-rises B-2-maximum-when-pure
        B-I-training-cost""",
    "number and letter: heads": """
        B-2-number-positional B-2-number-symbolic B-2-number-L0 B-2-letter-L0 B-2-number-one-at-a-time B-2-letter-positional
        B-2-letter-symbolic B-2-letter-L11-last B-2-hops-follow-heads B-2-heads-needed B-2-letter-waits ours-2-shares
        ours-2-first-heads""",
    "number and letter: planes (table 1, figure 8)": """
        B-T1-number-early B-T1-number-L4 B-T1-number-late B-T1-letter-L0 B-T1-letter-L1 B-T1-letter-late B-8-few-slow-planes
        B-T1-ids""",
    "number and letter: mechanisms (figure 3)": """
        B-3-functions-number B-3-functions-letter B-3-index B-3-retrieval B-3-reflexive B-3-composition-number
        B-3-composition-letter""",
    "number and letter: length (figure 5B)": """
        B-5B-letter-850 B-5B-letter-3000 B-5B-letter-5000 B-5B-number-250 B-5B-number-1000 B-5B-number-3000 B-5B-order
        ours-2-first-lengths ours-2-fillers ours-5B-hop-mix""",
    "counting or matching": "ours-cues-default ours-cues-preference ours-cues-length",
    "sizes of the tasks": "ours-sizes-heads ours-sizes-step ours-sizes-breaks",
    "several heads in a layer": "ours-groups-purity ours-groups-mix ours-groups-shared",
    "constructions, limits, discrepancy (theorem 3.2, figure 5A)": """
        B-F-t-index B-F-t-index-positional B-F-irrational B-F-t-retrieval B-F-t-retrieval-range B-F-t-retrieval-symbolic
        B-LF1-softmax B-R3.1-index B-R3.1-retrieval B-T3.2-index B-T3.2-index-letters ours-3-index B-T3.2-retrieval
        B-T3.2-retrieval-still ours-3-retrieval B-T3.2-separation B-5A-index B-5A-retrieval B-5A-angle ours-3-planes
        ours-3-prediction""",
    "canonical tasks: theorems 2 to 7, corollary 1": """
        A-T2 A-T3 A-T4 A-T5 A-T6 A-T7 A-C1-symbolic A-C1-positional A-C1-single-angle
        ours-4-single-angle""",
    "canonical tasks: figures 2 and 3, frequency as a knob": """
        A-2A-index A-2A-retrieval A-2A-crossing A-2B-one-plane A-2B-two-planes A-2B-too-fast A-3A-index A-3A-retrieval A-3B-keys
        A-3B-queries A-3C-geometry A-5-knob-fast A-5-knob-slow A-5-knob-training A-5-p-rope A-5-knob-real A-5-heads-follow""",
    "real models": """
        A-4-correlation A-4-depth-positional A-4-depth-symbolic A-4-trend A-4-norms A-4-families ours-5-diagonal ours-5-refused
        ours-5-first-look""",
    "is the rotation right": """
        ours-6-rope-faults ours-6-rope-tiny ours-6-rope-baselines ours-6-rope-alarms ours-6-rope-weights ours-6-rope-runtimes
        ours-6-rope-cost""",
    "which heads need the whole context": "ours-windows-rivals ours-windows-random ours-windows-cache",
    "language models that choose among the items": "ours-choice-letter ours-choice-python ours-choice-late",
    "which heads to sharpen": """
        ours-sharpen-cure ours-sharpen-profile ours-sharpen-base ours-sharpen-positional ours-sharpen-rivals""",
    "chat models": """
        B-6-letter-above-number B-6-number-32 B-6-number-100 B-6-letter-100 B-6-screening B-6-gpt-5.4 B-6-gpt-5.5 B-6-claude""",
}
"""What both papers claim, part by part: taking a row away must fail here."""


def test_every_claim_has_its_row(rows):
    names = [name for part in CLAIMS.values() for name in part.split()]
    assert len(names) == len(set(names))
    assert sorted(row.claim for row in rows) == sorted(names)
    assert sum(counted(rows).values()) == len(rows) == sum(len(part) for part in grouped(rows).values())


def test_rows_are_filled(rows):
    names = {run.name for run in find_runs([RESULTS])}
    for row in rows:
        assert row.verdict in VERDICTS
        assert row.paper in ("A", "B", "ours")
        assert all((row.where, row.statement.endswith("."), row.paper_value, row.note.endswith("."))), row
        if row.verdict == "not run":
            assert not any((row.ours, row.run, row.chart)), row
        else:
            assert all((row.ours, row.run in names)), row


def test_only_chat_models_have_not_been_run(rows):
    """Everything else is recorded; chat models need keys and money, and two claims more models than are recorded."""
    few = ("B-6-", "ours-choice-late", "ours-groups-shared")
    assert all(row.claim.startswith(few) for row in rows if row.verdict == "not run")


def test_charts_are_those_that_runs_write(rows):
    """Charts are named after the files beside a summary; training runs have theirs from `ropescope dynamics`."""
    for row in rows:
        if row.chart:
            (folder,) = RESULTS.rglob(row.run)
            summary = json.loads((folder / "summary.json").read_text())
            written = set(summary["sha256"])
            if summary["command"] == "train":
                written |= {"learning.png", "layers.png"}
            assert f"{row.chart}.png" in written, row


def test_without_runs_nothing_is_said():
    for case in all_cases():
        row = case.row(Runs([]))
        assert (row.verdict, row.ours, row.run, row.chart) == ("not run", "", "", ""), row
        assert row.note.endswith("."), row


@pytest.mark.parametrize("command", ["theory", "canonical", "mechanisms", "generalise", "profile", "control", "train"])
def test_runs_of_another_shape_are_not_judged(runs, command, tmp_path):
    """An older or unfinished run without what a rule needs is "not run", not an error."""
    results = {} if command == "train" else {"something": {}}
    empty = [Run(tmp_path, {**run.summary, "results": results}) for run in runs if run.command == command]
    for case in all_cases():
        assert case.row(Runs(empty)).verdict == "not run", case.claim


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(ValueError, match="is no folder"):
        scoreboard([tmp_path / "nothing"])


@pytest.mark.slow
def test_the_board_needs_no_torch():
    code = (
        "import sys; from pathlib import Path; from ropescope.report.scoreboard import scoreboard; "
        "assert len(scoreboard([Path('results/theory')])) > 100; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_every_verdict_has_been_seen_to_change():
    """But for claims on chat models, on choices among items and on shared work: their tests make runs."""
    tried: set[str] = set()
    for path in ROOT.glob("tests/test_claims_*.py"):
        module = import_module(path.stem)
        tried |= {change[0] for name in ("CHANGES", "HISTORIES") for change in getattr(module, name, [])}
    made = ("B-6-", "ours-choice-", "ours-groups-shared")
    assert tried == {case.claim for case in all_cases() if not case.claim.startswith(made)}


# Words


def test_markdown_holds_every_row_in_one_line(rows):
    text = markdown(rows)
    for row in rows:
        (line,) = [line for line in text.splitlines() if line.startswith(f"| `{row.claim}` |")]
        assert line.count(" | ") == 6
        assert f"**{row.verdict}**" in line


def test_no_text_leaves_its_cell():
    assert "| A, a\\|b | e | f |" in markdown(
        [Claim("A-T2", "A", "a|b", "c\nd", "e", "f", "not", "g", "h", "i", "Chat models")]
    )


def test_the_page_of_the_docs_is_that_of_the_recorded_runs(rows):
    assert markdown(rows) in (ROOT / "docs" / "scoreboard.md").read_text(), "write docs/scoreboard.md anew"
