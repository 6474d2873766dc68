"""Claims on how heads are scored, judged on profiled models (paper A, section 4; questions of reviewers)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runs import Run
from ..claims import Found, NotRunError, Runs, claims_in, every, graded, many, span
from .rows import planes_measured

claim = claims_in("What a head does, and how to measure it")

Stats = Mapping[str, Any]

LEAD = 0.01
"""Means over all heads that differ by less are the same: heads are not drawn, so there is no interval to tell."""


def with_planes(runs: Runs) -> list[Run]:
    """Profiles in which single planes were scored; at least one."""
    found = [run for run in runs.profiles() if planes_measured(run.results)]
    if not found:
        raise NotRunError("no profile with scores of single planes among the runs given")
    return found


def _band(stats: Stats, band: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = stats["frequency"]["bands"][band]
    return found


def _band_text(profiles: list[Run], band: str) -> str:
    both = {score: [_band(run.results, band)[score]["mean"] for run in profiles] for score in ("positional", "symbolic")}
    return f"positional {span(both['positional'])}, symbolic {span(both['symbolic'])} over {many(profiles)}"


@claim(
    "A-4-slow-planes",
    "A",
    "section 4",
    "stated without numbers",
    "Mean over heads of each plane scored alone, slowest third; symbolic above positional by 0.01 in every profile.",
)
def slow_planes(runs: Runs) -> Found:
    """Slow planes are symbolic."""
    profiles = with_planes(runs)
    leads = [_band(run.results, "slow")["difference"]["mean"] >= LEAD for run in profiles]
    return Found(_band_text(profiles, "slow"), every(leads), profiles[0], "planes")


@claim(
    "A-4-fast-planes",
    "A",
    "section 4",
    "stated without numbers",
    "As for slow planes, between the fastest eighth and the slowest third; positional above symbolic by 0.01 in every profile.",
)
def fast_planes(runs: Runs) -> Found:
    """Middle-to-fast planes are positional."""
    profiles = with_planes(runs)
    leads = [_band(run.results, "middle to fast")["difference"]["mean"] <= -LEAD for run in profiles]
    return Found(_band_text(profiles, "middle to fast"), every(leads), profiles[0], "planes")


@claim(
    "A-4-fastest-planes",
    "A",
    "section 4",
    "stated without numbers",
    "Fastest eighth of planes; the lower of its two scores must be above that of the other planes by 0.01.",
)
def fastest_planes(runs: Runs) -> Found:
    """The very fastest planes are high on both scores, as attention through them is uniform."""
    profiles = with_planes(runs)
    holds = []
    for run in profiles:
        lowest = min(_band(run.results, "fastest")[score]["mean"] for score in ("positional", "symbolic"))
        others = [
            min(_band(run.results, band)[score]["mean"] for score in ("positional", "symbolic"))
            for band in ("middle to fast", "slow")
        ]
        holds.append(lowest >= max(others) + LEAD)
    return Found(f"{_band_text(profiles, 'fastest')}; higher in {sum(holds)}", every(holds), profiles[0], "planes")


@claim(
    "ours-1-shares-and-scores",
    "ours",
    "beyond the papers",
    "to be compared",
    "Rank correlation over heads of symbol minus position share with symbolic minus positional score; 0.8 in every profile.",
)
def shares_and_scores(runs: Runs) -> Found:
    """Shares, which need neither swaps nor a temperature, order heads as the scores do."""
    profiles = runs.profiles()
    ranks = [run.results["shares"]["spearman"]["r"] for run in profiles]
    text = f"rank correlation {span(ranks)} over {many(profiles)}"
    return Found(text, every(rank >= 0.8 for rank in ranks), profiles[0], "heads")


ASKED = "asked by reviewers, no value given"
WAYS = "Reproduced if heads keep their order (rank correlation 0.8) and values (0.1 on average), partly if one of the two."


def _ways(runs: Runs, pick: Any, label: str, chart: str = "sensitivity") -> Found:
    """How far the order of heads survives another way of taking scores: 0.8 is agreement, and values may not move by 0.1."""
    profiles = runs.profiles()
    rows = [row for run in profiles for row in pick(run.results)]
    # Not every profile has been taken otherwise, and not at every temperature.
    found = [row.get(score) for row in rows if row is not None for score in ("positional", "symbolic")]
    parts = [part for part in found if part is not None]
    if not parts:
        raise NotRunError(f"no profile was taken with {label}")
    known = [part["spearman"] for part in parts]
    moved = [part["mean_absolute_difference"] for part in parts]
    order, values = all(rank >= 0.8 for rank in known), all(value <= 0.1 for value in moved)
    text = f"rank correlation {span(known)}, moved by {span(moved)} on average over {many(profiles)}"
    return Found(text, graded(order and values, order or values), profiles[0], chart)


@claim("ours-1-temperature", "ours", "reviewers' questions", ASKED, WAYS)
def temperature(runs: Runs) -> Found:
    """Scores do not depend on the temperature τ (1e-3 to 1)."""
    return _ways(runs, lambda stats: [row for row in stats["sensitivity"]["tau"] if row["tau"] > 2e-4], "other temperatures")


@claim(
    "ours-1-permutations",
    "ours",
    "reviewers' questions",
    ASKED,
    WAYS,
)
def permuted(runs: Runs) -> Found:
    """Random permutations of all blocks give the scores that swaps of two give."""
    return _ways(runs, lambda stats: [stats["sensitivity"].get("permutations")], "permutations")


@claim(
    "ours-1-block-size",
    "ours",
    "reviewers' questions",
    ASKED,
    WAYS,
)
def block_size(runs: Runs) -> Found:
    """Swaps of single tokens give the scores that swaps of sentences give."""
    return _ways(runs, lambda stats: [stats["sensitivity"].get("tokens")], "single tokens")


@claim(
    "ours-1-right-answers",
    "ours",
    "reviewers' questions",
    ASKED,
    WAYS,
)
def right_answers(runs: Runs) -> Found:
    """Prompts that the model answers right give the scores that all prompts give."""
    return _ways(runs, lambda stats: [stats["right_only"].get("all_and_right")], "right answers")


@claim(
    "ours-1-by-input",
    "ours",
    "reviewers' questions",
    ASKED,
    "Some head is more positional than symbolic by 0.2 or more on one prompt, and the reverse on another, in every profile.",
)
def by_input(runs: Runs) -> Found:
    """A head can be positional on one prompt and symbolic on another."""
    profiles = [run for run in runs.profiles() if _scored(run) and run.results["inputs"] > 1]
    if not profiles:
        raise NotRunError("no profile with scores on two prompts or more among the runs given")
    both = [run.results["over_inputs"]["heads_of_both_kinds"] for run in profiles]
    heads = [_scored(run) for run in profiles]
    text = f"{span(both, 'd')} heads of a model, {sum(both)} of {sum(heads):,} in {many(profiles)}"
    return Found(text, every(count > 0 for count in both), profiles[0], "heads")


def _scored(run: Run) -> int:
    """How many heads have scores."""
    return sum(run.results["kinds"][kind] for kind in ("positional", "symbolic", "mixed"))
