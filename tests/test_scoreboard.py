"""The scoreboard has a row for every claim, every verdict hangs on numbers of runs, and without runs nothing is said."""

import copy
import json
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from ropescope.models.gptj import GPTJ, GPTJConfig
from ropescope.report.claims import multihop
from ropescope.report.scoreboard import Claim, counted, grouped, markdown, scoreboard
from ropescope.runs import Run, find_runs
from ropescope.studies.claims import CASES, VERDICTS, Runs

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"

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
        ours-2-first-lengths ours-2-fillers""",
    "constructions, limits, discrepancy (theorem 3.2, figure 5A)": """
        B-F-t-index B-F-t-index-positional B-F-irrational B-F-t-retrieval B-F-t-retrieval-range B-F-t-retrieval-symbolic
        B-LF1-softmax B-R3.1-index B-R3.1-retrieval B-T3.2-index B-T3.2-index-letters ours-3-index B-T3.2-retrieval
        B-T3.2-retrieval-still ours-3-retrieval B-T3.2-separation B-5A-index B-5A-retrieval B-5A-angle ours-3-planes
        ours-3-prediction""",
    "canonical tasks: theorems 2 to 7, corollary 1": """
        A-T2 A-T3 A-T4 A-T5 A-T6 A-T7 A-C1-symbolic A-C1-positional A-C1-single-angle""",
    "canonical tasks: figures 2 and 3, frequency as a knob": """
        A-2A-index A-2A-retrieval A-2A-crossing A-2B-one-plane A-2B-two-planes A-2B-too-fast A-3A-index A-3A-retrieval A-3B-keys
        A-3B-queries A-3C-geometry A-5-knob-fast A-5-knob-slow A-5-knob-training A-5-p-rope A-5-knob-real A-5-heads-follow""",
    "real models": """
        A-4-correlation A-4-depth-positional A-4-depth-symbolic A-4-trend A-4-norms A-4-families ours-5-diagonal ours-5-refused
        ours-5-first-look""",
    "chat models": """
        B-6-letter-above-number B-6-number-32 B-6-number-100 B-6-letter-100 B-6-screening B-6-gpt-5.4 B-6-gpt-5.5 B-6-claude""",
}
"""What both papers claim, part by part: taking a row away must fail here."""


@pytest.fixture(scope="session")
def runs() -> list[Run]:
    return find_runs([RESULTS])


@pytest.fixture(scope="session")
def rows() -> list[Claim]:
    return scoreboard([RESULTS])


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
    """Everything else is recorded; chat models need keys and money."""
    assert all(row.claim.startswith("B-6-") for row in rows if row.verdict == "not run")


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
    for case in CASES.values():
        row = case.row(Runs([]))
        assert (row.verdict, row.ours, row.run, row.chart) == ("not run", "", "", ""), row
        assert row.note.endswith("."), row


@pytest.mark.parametrize("command", ["theory", "canonical", "mechanisms", "generalise", "profile", "control", "train"])
def test_runs_of_another_shape_are_not_judged(runs, command, tmp_path):
    """An older or unfinished run without what a rule needs is "not run", not an error."""
    results = {} if command == "train" else {"something": {}}
    empty = [Run(tmp_path, {**run.summary, "results": results}) for run in runs if run.command == command]
    for case in CASES.values():
        assert case.row(Runs(empty)).verdict == "not run", case.claim


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(ValueError, match="is no folder"):
        scoreboard([tmp_path / "nothing"])


def test_the_board_needs_no_torch():
    code = (
        "import sys; from pathlib import Path; from ropescope.report.scoreboard import scoreboard; "
        "assert len(scoreboard([Path('results/theory')])) > 100; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_parameters_are_counted_as_the_model_has_them(runs):
    config = next(run for run in runs if run.name == "number-0").config
    sizes = GPTJConfig(vocab_size=136, layers=config["layers"], heads=1, width=config["width"], mlp_width=config["mlp_width"])
    assert multihop.parameter_count(config, 136) == sum(p.numel() for p in GPTJ(sizes).parameters())


# Doctored runs: (claim, verdict that the doctored numbers must give, edits). An edit is (runs, path in the results, value); a
# path may begin with "config" or with the name of a file beside the summary. Runs may be named with a star.
SMOL, SMOL_CONTROL = "profile-smollm2-135m", "control-smollm2"
BINDING = "8 pairs: log probability"


def identity(*path):
    return ("theory", ("identities", *path), 0.1)


def at(run, *path):
    *path, value = path
    return (run, tuple(path), value)


def measured(task, value, count=10):
    return at(f"generalise-{task}", task, "curves", "measured", "overall", "mean", [value] * count)


def mean_planes(task, way, value):
    return at("mechanisms", task, "planes", f"mean_plane_by_{way}", [value] * 12)


def mean_accuracy(sweep, *more):
    return at("canonical", "trained", "sweeps", sweep, "mean", *more)


DOCTORED = [
    ("A-3-additive", "not", identity("planes_add_up_error")),
    ("A-3-equal-keys", "not", identity("equal_keys", "smallest_score")),
    ("A-3-no-positions", "not", identity("no_positions", "smallest_share")),
    ("A-3-one-pass", "not", identity("really_swapped", "tokens")),
    ("A-3-blocks", "not", identity("really_swapped", "blocks")),
    ("A-T1-exclusion", "not", at(SMOL, "exclusion", "violations", 1)),
    ("A-T1-exact", "not", identity("exclusion", "permutations_error")),
    ("B-code-clamp", "not", at("theory", "identities", "released_code", "largest_error", 0.01)),
    ("B-I-score-cost", "partly", at("bench", "scores", "17", "faster_than_rerunning_blocks", 10)),
    ("A-4-slow-planes", "partly", at(SMOL, "frequency", "bands", "slow", "difference", "low", -0.1)),
    ("A-4-fast-planes", "partly", at(SMOL, "frequency", "bands", "middle to fast", "difference", "high", 0.1)),
    ("A-4-fastest-planes", "partly", at(SMOL, "frequency", "bands", "fastest", "symbolic", "low", 0.999)),
    ("ours-1-shares", "not", identity("shares_sum_error")),
    ("ours-1-shares-and-scores", "partly", at(SMOL, "shares", "spearman", "r", 0.1)),
    ("ours-1-cost", "partly", at("bench-profile", "24", "scored_over_plain", 3.0)),
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
    ("B-2-setting", "not", at("number-0", "config", "batch", 32)),
    ("B-2-parameters", "not", at("number-0", "config", "width", 64)),
    ("B-2-number-accuracy", "partly", at("number-0", "test_accuracy", "4-hop", 0.5)),
    ("B-2-letter-accuracy", "partly", at("letter-0", "test_accuracy", "4-hop", 0.5)),
    ("B-I-training-cost", "partly", at("number-*", "seconds", 9999.0)),
    ("B-2-heads-needed", "partly", at("mechanisms", "number", "changes", "L1 out", [1, 1, 1, 0.5])),
    ("B-T1-number-early", "reproduced", mean_planes("number", "largest", 2)),
    ("B-T1-number-L4", "partly", mean_planes("number", "spread", 10)),
    ("B-T1-number-late", "not", mean_planes("number", "spread", 1)),
    ("B-T1-letter-L0", "partly", mean_planes("letter", "spread", 18)),
    ("B-T1-letter-L1", "partly", mean_planes("letter", "spread", 1)),
    ("B-T1-letter-late", "partly", mean_planes("letter", "spread", 1)),
    (
        "B-8-few-slow-planes",
        "reproduced",
        *(at("mechanisms", task, "planes", "planes_in_use_by_spread", [8] * 12) for task in ("number", "letter")),
    ),
    ("B-T1-ids", "partly", at("theory", "identities", "frequency_of_id", "2", 0.5)),
    ("B-3-functions-number", "reproduced", at("mechanisms", "number", "flow", "explained", [1.0] * 12)),
    ("B-3-functions-letter", "not", at("mechanisms", "letter", "flow", "explained", [0.5] * 12)),
    ("B-3-index", "partly", at("mechanisms", "number", "changes", "positional hop", [1, 1, 1, 0.5])),
    ("B-3-retrieval", "reproduced", at("mechanisms", "letter", "changes", "symbolic hop", [1.0] * 4)),
    ("B-3-reflexive", "not", at("mechanisms", "number", "changes", "symbolic reflexive", [0.5] * 4)),
    ("B-3-composition-number", "reproduced", at("mechanisms", "number", "flow", "agreement_with_ideal", [1.0] * 13)),
    ("B-3-composition-letter", "not", at("mechanisms", "letter", "flow", "holds_earlier_than_ideal", [0.5] * 13)),
    ("B-5B-letter-850", "reproduced", measured("letter", 0.95)),
    ("B-5B-letter-3000", "reproduced", measured("letter", 0.65)),
    ("B-5B-letter-5000", "partly", measured("letter", 0.38)),
    ("B-5B-number-250", "reproduced", measured("number", 0.5)),
    ("B-5B-number-1000", "reproduced", measured("number", 0.2)),
    ("B-5B-number-3000", "not", measured("number", 0.5)),
    ("B-5B-order", "not", measured("number", 1.0)),
    ("ours-2-first-lengths", "not", measured("number", 0.0)),
    ("ours-2-fillers", "not", at("letter-0-last-one-letter", "letter", "curves", "measured", "overall", "mean", [1.0, 1.0])),
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
    (
        "ours-3-prediction",
        "partly",
        at("generalise-letter", "letter", "crossings", "0.9", "overall", "keys and places / measured", 3.0),
    ),
    ("A-T2", "not", at("canonical", "built", "limits", "right_on_both", "symbolic on Index", 1)),
    ("A-T4", "not", at("canonical", "built", "limits", "right_on_both", "positional on Retrieval", 1)),
    ("A-C1-symbolic", "not", at("canonical", "built", "limits", "right_on_both", "symbolic on partial induction", 1)),
    ("A-C1-positional", "not", at("canonical", "built", "limits", "right_on_both", "positional on Retrieval", 1)),
    ("A-C1-single-angle", "partly", at("canonical", "built", "scores", "one plane, whole", "accuracy", 0.5)),
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
    ("A-5-knob-fast", "partly", at("control-letter", "changes", "fast third dropped", "measures", "accuracy", 0.1)),
    ("A-5-knob-slow", "reproduced", at("control-letter", "changes", "slow third dropped", "measures", "accuracy", 0.1)),
    ("A-5-knob-training", "partly", mean_accuracy("index", 0, 1.0)),
    ("A-5-p-rope", "partly", at(SMOL_CONTROL, "changes", "slowest 50% stopped", "measures", "perplexity", 100.0)),
    ("A-5-knob-real", "not", at(SMOL_CONTROL, "changes", "slow third stopped", "measures", BINDING, -3.0)),
    ("A-5-heads-follow", "not", at("control-number", "changes", "fast third dropped", "symbolic", [0.0] * 12)),
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
    ("ours-5-refused", "not", at("conformance", "worst_logit_error", 1.0)),
    ("ours-5-first-look", "not", at(SMOL, "correlation", "pearson", "r", -0.5)),
]


def edited(run: Run, path: tuple, value: object, tmp_path: Path) -> Run:
    """The run with one value changed, in its summary or in a file beside it."""
    summary = copy.deepcopy(dict(run.summary))
    if str(path[0]).endswith(".json"):
        content = json.loads((run.folder / path[0]).read_text())
        folder = tmp_path / run.name
        folder.mkdir()
        part, path = content, path[1:]
    else:
        folder, part = run.folder, summary if path[0] == "config" else summary["results"]
    for key in path[:-1]:
        part = part[key]
    assert path[-1] in part if isinstance(part, dict) else len(part) > path[-1], "there is no such value to change"
    part[path[-1]] = value
    if folder != run.folder:
        (folder / "curves.json").write_text(json.dumps(content))
        (folder / "closer.json").write_text(json.dumps(content))
    return Run(folder, summary)


@pytest.mark.parametrize(
    ("claim", "expected", "edits"), [(name, expected, edits) for name, expected, *edits in DOCTORED], ids=str
)
def test_other_numbers_give_another_verdict(runs, rows, tmp_path, claim, expected, edits):
    usual = next(row for row in rows if row.claim == claim)
    assert usual.verdict != expected
    doctored = list(runs)
    for name, path, value in edits:
        assert any(fnmatch(run.name, name) for run in doctored)
        doctored = [edited(run, path, value, tmp_path) if fnmatch(run.name, name) else run for run in doctored]
    row = CASES[claim].row(Runs(doctored))
    assert (row.verdict, row.note) == (expected, usual.note)


# Training runs: (claim, verdict, runs, changes of the history), a change being (measure, index, value).
STEP = 50  # between two looks
SCORES = ("positional", "symbolic")


def scores(where, positional):
    return [("positional", where, float(positional)), ("symbolic", where, 1.0 - positional)]


LAST, EVER = np.s_[-1], np.s_[:]
HISTORIES = [
    ("B-2-number-when", "reproduced", "number-*", [("accuracy", np.s_[: 4800 // STEP], 0.5)]),
    ("B-2-letter-when", "reproduced", "letter-*", [("accuracy", np.s_[: 3400 // STEP], 0.5)]),
    ("B-2-number-hop-by-hop", "partly", "number-0", [("accuracy", np.s_[: 3500 // STEP, 0], 0.5)]),
    ("B-2-number-hop-steps", "partly", "number-0", [("accuracy", np.s_[: 3500 // STEP, 0], 0.5)]),
    ("B-2-letter-together", "partly", "letter-0", [("accuracy", np.s_[: 5000 // STEP, 3], 0.5)]),
    ("B-2-letter-done", "not", "letter-0", [("accuracy", np.s_[: 5000 // STEP, 3], 0.5)]),
    ("B-2-uniform-start", "not", "number-0", [("entropy", np.s_[0, 5], 0.5)]),
    ("B-2-purity-rises", "partly", "number-0", [(score, EVER, 0.5) for score in SCORES]),
    ("B-2-maximum-when-pure", "not", "letter-0", [(score, np.s_[: 5000 // STEP], 0.5) for score in SCORES]),
    ("B-2-number-positional", "reproduced", "number-*", scores(np.s_[-1, 4], 1)),
    ("B-2-number-symbolic", "reproduced", "number-*", scores(np.s_[-1, 4], 0)),
    ("B-2-number-L0", "partly", "number-0", scores(np.s_[-1, 0], 1)),
    ("B-2-letter-L0", "partly", "letter-0", scores(np.s_[-1, 0], 0)),
    ("B-2-number-one-at-a-time", "not", "number-*", [(score, EVER, 0.5) for score in SCORES]),
    ("B-2-letter-positional", "partly", "letter-0", scores(np.s_[-1, 5], 1)),
    ("B-2-letter-symbolic", "reproduced", "letter-*", scores(np.s_[-1, 1:], 0)),
    ("B-2-letter-L11-last", "not", "letter-*", [("positional", np.s_[-1, 11], 0.5)]),
    ("B-2-hops-follow-heads", "reproduced", "number-*", scores(np.s_[1000 // STEP :, 1:5], 1)),
    ("B-2-letter-waits", "reproduced", "letter-*", scores(np.s_[1000 // STEP :, 1:], 0)),
    ("ours-2-shares", "not", "number-0", [("binding_share", np.s_[-1, 0], 0.1)]),
    ("ours-2-first-heads", "reproduced", "number-*", scores(np.s_[-1, 4], 1)),
]


@pytest.mark.parametrize(("claim", "expected", "name", "changes"), HISTORIES, ids=[case[0] for case in HISTORIES])
def test_another_history_gives_another_verdict(runs, rows, tmp_path, claim, expected, name, changes):
    assert next(row for row in rows if row.claim == claim).verdict != expected
    doctored = []
    for run in runs:
        if fnmatch(run.name, name) and run.command == "train":
            arrays = load_file(run.folder / "history.safetensors")
            for measure, where, value in changes:
                arrays[measure][where] = value
            folder = tmp_path / run.name
            folder.mkdir()
            (folder / "config.json").write_text((run.folder / "config.json").read_text())
            save_file(arrays, folder / "history.safetensors")
            run = Run(folder, run.summary)  # noqa: PLW2901
        doctored.append(run)
    assert CASES[claim].row(Runs(doctored)).verdict == expected


def test_every_verdict_has_been_seen_to_change():
    """But for claims on chat models, which have a test of their own."""
    tried = {claim for claim, *_ in DOCTORED} | {claim for claim, *_ in HISTORIES}
    assert tried == {claim for claim in CASES if not claim.startswith("B-6-")}


# Chat models
LENGTHS = (12, 16, 32, 64, 100, 300)
PAPER = {
    "GPT 5.4": ((0.98, 0.87, 0.45, 0.14, 0.08, 0.06), (0.96, 0.98, 0.99, 0.98, 0.85, 0.40)),
    "GPT 5.5": ((0.55, 0.56, 0.23, 0.12, 0.07, 0.04), (0.87, 0.95, 0.96, 0.84, 0.66, 0.50)),
    "Claude Sonnet 3.7": ((0.40, 0.34, 0.15, 0.08, 0.06, 0.05), (0.92, 0.89, 0.88, 0.87, 0.86, 0.80)),
}
"""Number and letter, from appendix H."""


def asked(means: dict, hops: int = 1, lengths: tuple = LENGTHS) -> Runs:
    """Runs of `ropescope llm`, one for each model, with these means."""
    paper = {
        "lengths": list(LENGTHS),
        "accuracy": {name: dict(zip(("number", "letter"), two, strict=True)) for name, two in PAPER.items()},
    }
    found = []
    for name, two in means.items():
        accuracy = {
            task: {str(n): {"mean": mean} for n, mean in zip(LENGTHS, row, strict=True) if n in lengths}
            for task, row in zip(("number", "letter"), two, strict=True)
        }
        config = {"model": {"source": f"maker/{name.lower().replace(' ', '-')}"}, "hops": hops}
        summary = {"command": "llm", "config": config, "results": {"accuracy": accuracy, "paper": paper}, "sha256": {}}
        found.append(Run(Path(f"llm-{name}"), summary))
    return Runs(found)


CHAT = [claim for claim in CASES if claim.startswith("B-6-")]


def test_the_papers_own_numbers_bear_out_what_it_says_of_chat_models():
    for claim in CHAT:
        row = CASES[claim].row(asked(PAPER))
        assert row.verdict == "reproduced", row
        assert (row.run[:4], row.chart) == ("llm-", "accuracy")


@pytest.mark.parametrize(
    ("claim", "model", "length", "pair", "expected"),
    [
        ("B-6-letter-above-number", "GPT 5.4", 64, (0.99, 0.98), "partly"),
        ("B-6-number-32", "GPT 5.4", 32, (0.6, 0.99), "partly"),
        ("B-6-number-100", "GPT 5.5", 300, (0.2, 0.5), "partly"),
        ("B-6-letter-100", "GPT 5.5", 100, (0.07, 0.6), "partly"),
        ("B-6-screening", "GPT 5.5", 16, (0.5, 0.8), "partly"),
        ("B-6-gpt-5.4", "GPT 5.4", 12, (0.1, 0.1), "partly"),
        ("B-6-gpt-5.5", "GPT 5.5", 12, (0.1, 0.1), "partly"),
        ("B-6-claude", "Claude Sonnet 3.7", 12, (0.1, 0.1), "partly"),
    ],
)
def test_other_answers_of_chat_models_give_another_verdict(claim, model, length, pair, expected):
    at = LENGTHS.index(length)
    changed = {**PAPER, model: [(*row[:at], value, *row[at + 1 :]) for row, value in zip(PAPER[model], pair, strict=True)]}
    assert CASES[claim].row(asked(changed)).verdict == expected


def test_other_chat_models_are_judged_by_the_claim_and_not_by_the_table():
    other = asked({"Somebody": PAPER["GPT 5.4"]})
    assert CASES["B-6-letter-100"].row(other).verdict == "reproduced"
    assert CASES["B-6-gpt-5.4"].row(other).verdict == "not run"


def test_chat_models_asked_something_else_are_not_judged():
    for runs in (asked(PAPER, hops=2), asked(PAPER, lengths=(12,))):
        assert CASES["B-6-number-32"].row(runs).verdict == "not run"


def test_models_that_fail_the_screening_say_nothing_of_the_others():
    """One that answers nothing right has number below 0.5 too."""
    nothing = {"Nobody": [(0.0,) * len(LENGTHS)] * 2}
    for claim in ("B-6-letter-above-number", "B-6-number-32", "B-6-number-100", "B-6-letter-100"):
        assert CASES[claim].row(asked(nothing)).verdict == "not run"
        assert CASES[claim].row(asked(PAPER | nothing)).verdict == "reproduced"
    assert CASES["B-6-screening"].row(asked(nothing)).verdict == "not"


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
