"""Claims on which cue models learn, and what it is good for. Thresholds were set before the recorded models were trained."""

from __future__ import annotations

from ...runs import Run
from ..claims import Found, NotRunError, Runs, claims_in, every, graded, span
from .tables import of_setting, preferences

claim = claims_in("The number and letter tasks, and how they are learned")

WINS = 0.9
"""Cue preference from which letters win."""
STRONG, SOME = 0.7, 0.4
"""Rank correlations."""
FEWEST = 8
"""Models without which a rank correlation says nothing."""


@claim(
    "ours-cues-default",
    "ours",
    "beside paper B",
    "not asked",
    "Answers of the default model to conflicting cues: 0.9 of those that follow a cue follow the letters in every seed, partly "
    "in some. The rule was written after a trial of one other model.",
)
def default(runs: Runs) -> Found:
    """Where counting and matching solve a task equally well, a small model learns to match."""
    run = runs.one("cues")
    if run.config["seeds"] < 2:
        raise NotRunError("the run has a single seed of each setting")
    rows, found = of_setting(run, "default"), preferences(run, "default")
    if not all(row["learned"] for row in rows):
        raise NotRunError("not every default model has learned the task")
    if len(found) < len(rows):
        raise NotRunError("a default model follows neither cue where they disagree")
    return Found(f"{span(found)} ({len(found)} seeds)", every(value >= WINS for value in found), run, "knobs")


@claim(
    "ours-cues-preference",
    "ours",
    "paper B asks for training that prefers symbolic solutions",
    "some change does",
    "Answers to conflicting cues: 0.9 of those that follow a cue follow the letters in every seed of a setting that learns the "
    "task, and in no seed of the default; partly if in some seed of the default too. If the default follows letters in every "
    "seed, there is nothing to win. At least two seeds.",
)
def preference(runs: Runs) -> Found:
    """Some change to training makes symbolic solutions win where counting would do as well."""
    run = runs.one("cues")
    if run.config["seeds"] < 2:
        raise NotRunError("the run has a single seed of each setting")
    usual = preferences(run, "default")
    if not usual:
        raise NotRunError("the default model follows neither cue where they disagree")
    others = [setting for setting in run.results["settings"] if setting != "default"]
    won = [setting for setting in others if _wins(run, setting)]
    text = f"default {span(usual)}; 0.9 or more in every seed of {len(won)} of {len(others)} changes"
    return Found(text, graded(bool(won) and max(usual) < WINS, bool(won) and min(usual) < WINS), run, "knobs")


def _wins(run: Run, setting: str) -> bool:
    rows, found = of_setting(run, setting), preferences(run, setting)
    return all(row["learned"] for row in rows) and len(found) == len(rows) and min(found) >= WINS


@claim(
    "ours-cues-length",
    "ours",
    "paper B asks for predictions of where length breaks",
    "strongly",
    "Rank correlation of symbolic minus positional score (mean over heads, training length) with accuracy at 50 times that "
    "length, over models that learned the task, at least 8: 0.7, partly from 0.4.",
)
def length(runs: Runs) -> Found:
    """Scores of heads at the training length predict accuracy far beyond it."""
    run = runs.one("cues")
    found, lengths = run.results["predicts"], run.results["lengths"]
    if lengths[-1] < 50 * lengths[0] or found["models"] < FEWEST:
        raise NotRunError(f"the run holds fewer than {FEWEST} models, or none was tested at 50 times its training length")
    r = found["lead"]
    text = f"rank correlation {r:.2f} over {found['models']} models, at {lengths[-1]} tokens"
    return Found(text, graded(r >= STRONG, r >= SOME), run, "length")
