"""Claims on what a head does and how it is measured (paper A, sections 3 and 4; paper B, appendices D and I)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ...runs import Run
from ...studies.claims import Found, NotRunError, Runs, claims_in, every, graded, many, span, tiny

claim = claims_in("What a head does, and how to measure it")

ROUNDING = 1e-9
"""What double precision may lose."""
Stats = Mapping[str, Any]


def _identities(runs: Runs) -> tuple[Run, Mapping[str, Any]]:
    run = runs.one("theory")
    return run, run.results["identities"]


@claim(
    "A-3-additive",
    "A",
    "section 3",
    "exact",
    f"Sum of planes against M on random heads, relative; up to {ROUNDING:g}.",
)
def additive(runs: Runs) -> Found:
    """Logits add up over RoPE planes: M is the sum of one matrix for each plane."""
    run, found = _identities(runs)
    error = found["planes_add_up_error"]
    return Found(f"off by {tiny(error)} at most over {found['heads_of_each_kind']} heads", graded(error <= ROUNDING), run)


@claim(
    "A-3-equal-keys",
    "A",
    "section 3",
    "1",
    f"Smallest score and share of variance over random heads; 1 up to {ROUNDING:g}.",
)
def equal_keys(runs: Runs) -> Found:
    """A head whose keys are all alike acts positionally: columns of M are constant and the positional score is 1."""
    run, found = _identities(runs)
    return _pure(run, found["equal_keys"], "positional", "position")


@claim(
    "A-3-no-positions",
    "A",
    "section 3",
    "1",
    f"Smallest score and share of variance over random heads; 1 up to {ROUNDING:g}.",
)
def no_positions(runs: Runs) -> Found:
    """A head without rotation (NoPE) acts symbolically: rows of M are constant and the symbolic score is 1."""
    run, found = _identities(runs)
    return _pure(run, found["no_positions"], "symbolic", "symbol")


def _pure(run: Run, found: Mapping[str, float], score: str, share: str) -> Found:
    least = min(found["smallest_score"], found["smallest_share"])
    said = f"{score} score and {share} share 1 within {tiny(1 - least)}"
    return Found(said, graded(least >= 1 - ROUNDING), run)


@claim(
    "A-3-one-pass",
    "A",
    "section 3; B, appendix D",
    "exact",
    f"Against keys really swapped and attention taken anew, at three temperatures; up to {ROUNDING:g}.",
)
def one_pass(runs: Runs) -> Found:
    """Swap scores are read off M alone: no second forward pass, and the softmax normaliser cancels in the cosines."""
    run, found = _identities(runs)
    error = found["really_swapped"]["tokens"]
    return Found(f"scores differ by {tiny(error)} at most", graded(error <= ROUNDING), run)


@claim(
    "A-3-blocks",
    "A",
    "section 3",
    "exact",
    f"Against blocks of 1, 3 and 2 tokens really moved; up to {ROUNDING:g}.",
)
def blocks(runs: Runs) -> Found:
    """The same formulas hold for whole blocks, also of unequal length, with log-sum-exp in place of logits."""
    run, found = _identities(runs)
    error = found["really_swapped"]["blocks"]
    return Found(f"scores differ by {tiny(error)} at most", graded(error <= ROUNDING), run)


@claim(
    "A-T1-exclusion",
    "A",
    "theorem 1",
    "holds for every head and input",
    "Violations on random heads and on every head and prompt of profiled models; none is reproduced.",
)
def exclusion(runs: Runs) -> Found:
    """Exclusion principle: the variance of a head's logits is at most its distance from being positional plus that from
    being symbolic."""
    run, found = _identities(runs)
    parts = [found["exclusion"]]
    with suppress(NotRunError):  # random heads are enough for a verdict
        parts += [profile.results["exclusion"] for profile in runs.profiles()]
    cases, violations = (sum(part[key] for part in parts) for key in ("cases", "violations"))
    said = (
        f"{violations} violations in {cases:,} cases; least slack on random heads {parts[0]['smallest_slack']:.0%} of the bound"
    )
    return Found(said, graded(violations == 0), run)


@claim(
    "A-T1-exact",
    "A",
    "theorem 1",
    "exact; equality possible",
    f"Against the sum over all permutations of 6 keys, and on a head half-way between both kinds; relative, up to "
    f"{ROUNDING:g}.",
)
def exclusion_exact(runs: Runs) -> Found:
    """Its bound, a sum over all m! permutations, collapses to a sum over m² entries of M, and is tight."""
    run, found = _identities(runs)
    off, reached = found["exclusion"]["permutations_error"], found["exclusion"]["reached_error"]
    said = f"sum over permutations within {tiny(off)}, equality reached within {tiny(reached)}"
    return Found(said, graded(max(off, reached) <= ROUNDING), run)


@claim(
    "B-code-clamp",
    "B",
    "released code",
    "wrong by up to 0.4 on the recorded examples",
    "Scores with that clamp against the definition, on heads that look at the query itself; 0.1 or more shows the flaw.",
)
def clamp(runs: Runs) -> Found:
    """The released code holds norms at 1e-8 or more, which makes its scores wrong where attention is peaked."""
    run, found = _identities(runs)
    wrong, ours = found["released_code"]["largest_error"], found["released_code"]["largest_error_ours"]
    said = f"wrong by up to {wrong:.2f}; ours, without weights, by {tiny(ours)}"
    return Found(said, graded(wrong >= 0.1 and ours <= ROUNDING, wrong >= 0.1), run)


def _band(stats: Stats, band: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = stats["frequency"]["bands"][band]
    return found


def _band_said(profiles: list[Run], band: str) -> str:
    both = {score: [_band(run.results, band)[score]["mean"] for run in profiles] for score in ("positional", "symbolic")}
    return f"positional {span(both['positional'])}, symbolic {span(both['symbolic'])} over {many(profiles)}"


@claim(
    "A-4-slow-planes",
    "A",
    "section 4",
    "said without numbers",
    "Mean over heads of each plane scored alone, slowest third; symbolic above positional, interval over layers too, in "
    "every profile.",
)
def slow_planes(runs: Runs) -> Found:
    """Slow planes are symbolic."""
    profiles = runs.profiles()
    leads = [_band(run.results, "slow")["difference"]["low"] > 0 for run in profiles]
    return Found(_band_said(profiles, "slow"), every(leads), profiles[0], "planes")


@claim(
    "A-4-fast-planes",
    "A",
    "section 4",
    "said without numbers",
    "As for slow planes, between the fastest eighth and the slowest third; positional above symbolic in every profile.",
)
def fast_planes(runs: Runs) -> Found:
    """Middle-to-fast planes are positional."""
    profiles = runs.profiles()
    leads = [_band(run.results, "middle to fast")["difference"]["high"] < 0 for run in profiles]
    return Found(_band_said(profiles, "middle to fast"), every(leads), profiles[0], "planes")


@claim(
    "A-4-fastest-planes",
    "A",
    "section 4",
    "said without numbers",
    "Fastest eighth of planes; the lower of its two scores must be above that of the other planes, interval over layers too.",
)
def fastest_planes(runs: Runs) -> Found:
    """The very fastest planes are high on both scores, as attention through them is uniform."""
    profiles = runs.profiles()
    holds = []
    for run in profiles:
        lowest = min(_band(run.results, "fastest")[score]["low"] for score in ("positional", "symbolic"))
        others = [
            min(_band(run.results, band)[score]["mean"] for score in ("positional", "symbolic"))
            for band in ("middle to fast", "slow")
        ]
        holds.append(lowest > max(others))
    return Found(f"{_band_said(profiles, 'fastest')}; higher in {sum(holds)}", every(holds), profiles[0], "planes")


@claim(
    "ours-1-shares",
    "ours",
    "beyond the papers",
    "1",
    f"Sum of shares on random heads; 1 up to {ROUNDING:g}.",
)
def shares(runs: Runs) -> Found:
    """The logit variance of a head splits into three shares that sum to 1: symbol, position and binding."""
    run, found = _identities(runs)
    error = found["shares_sum_error"]
    return Found(f"off by {tiny(error)} at most", graded(error <= ROUNDING), run)


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
    said = f"rank correlation {span(ranks)} over {many(profiles)}"
    return Found(said, every(rank >= 0.8 for rank in ranks), profiles[0], "heads")


def _ways(runs: Runs, pick: Any, label: str, chart: str = "sensitivity") -> Found:
    """How far the order of heads survives another way of taking scores: 0.8 is agreement, and values may not move by 0.1."""
    profiles = runs.profiles()
    found = [row for run in profiles for row in pick(run.results) if row is not None]
    if not found:
        raise NotRunError(f"no profile was taken with {label}")
    parts = [row[score] for row in found for score in ("positional", "symbolic") if row[score] is not None]
    known = [part["spearman"] for part in parts if part["spearman"] is not None]
    moved = [part["mean_absolute_difference"] for part in parts]
    order, values = all(rank >= 0.8 for rank in known), all(value <= 0.1 for value in moved)
    said = f"rank correlation {span(known)}, moved by {span(moved)} on average over {many(profiles)}"
    return Found(said, graded(order and values, order or values), profiles[0], chart)


ASKED = "asked by reviewers, no value given"
WAYS = "Reproduced if heads keep their order (rank correlation 0.8) and values (0.1 on average), partly if one of the two."


@claim("ours-1-temperature", "ours", "reviewers' questions", ASKED, WAYS)
def temperature(runs: Runs) -> Found:
    """Scores do not hang on the temperature τ (1e-3 to 1)."""
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
    return _ways(runs, lambda stats: [stats["sensitivity"]["permutations"]], "permutations")


@claim(
    "ours-1-block-size",
    "ours",
    "reviewers' questions",
    ASKED,
    WAYS,
)
def block_size(runs: Runs) -> Found:
    """Swaps of single tokens give the scores that swaps of sentences give."""
    return _ways(runs, lambda stats: [stats["sensitivity"]["tokens"]], "single tokens")


@claim(
    "ours-1-right-answers",
    "ours",
    "reviewers' questions",
    ASKED,
    WAYS,
)
def right_answers(runs: Runs) -> Found:
    """Prompts that the model answers right give the scores that all prompts give."""
    return _ways(runs, lambda stats: [stats["right_only"]["all_and_right"]], "right answers")


@claim(
    "ours-1-by-input",
    "ours",
    "reviewers' questions",
    ASKED,
    "Some head leans to places by 0.2 or more on one prompt and to things on another, in every profile.",
)
def by_input(runs: Runs) -> Found:
    """A head can be positional on one prompt and symbolic on another."""
    profiles = runs.profiles()
    both = [run.results["over_inputs"]["heads_of_both_kinds"] for run in profiles]
    heads = [len(run.results["layer"]) * len(run.results["head"]) for run in profiles]
    said = f"{span(both, 'd')} heads of a model, {sum(both)} of {sum(heads):,} in {many(profiles)}"
    return Found(said, every(count > 0 for count in both), profiles[0], "heads")
