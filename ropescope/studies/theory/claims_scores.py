"""Claims on what a head does and how it is measured, judged on random heads (paper A, section 3; paper B, appendix D)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ...runs import Run
from ..claims import Found, NotRunError, Runs, claims_in, graded, tiny

claim = claims_in("What a head does, and how to measure it")

ROUNDING = 1e-9
"""What double precision may lose."""


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
    text = f"{score} score and {share} share 1 within {tiny(1 - least)}"
    return Found(text, graded(least >= 1 - ROUNDING), run)


@claim(
    "A-3-one-pass",
    "A",
    "section 3; B, appendix D",
    "exact",
    f"Against keys really swapped and attention recomputed, at three temperatures; up to {ROUNDING:g}.",
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
    text = (
        f"{violations} violations in {cases:,} cases; least slack on random heads {parts[0]['smallest_slack']:.0%} of the bound"
    )
    return Found(text, graded(violations == 0), run)


@claim(
    "A-T1-exact",
    "A",
    "theorem 1",
    "exact; equality possible",
    f"Against the sum over all permutations of 6 keys, and on a head half-way between both types; relative, up to "
    f"{ROUNDING:g}.",
)
def exclusion_exact(runs: Runs) -> Found:
    """Its bound, a sum over all m! permutations, collapses to a sum over m² entries of M, and is tight."""
    run, found = _identities(runs)
    off, reached = found["exclusion"]["permutations_error"], found["exclusion"]["reached_error"]
    text = f"sum over permutations within {tiny(off)}, equality reached within {tiny(reached)}"
    return Found(text, graded(max(off, reached) <= ROUNDING), run)


@claim(
    "B-code-clamp",
    "B",
    "released code",
    "wrong by up to 0.4 on the recorded examples",
    "Scores with that clamp against the definition, on heads that attend to the query itself; 0.1 or more shows the flaw.",
)
def clamp(runs: Runs) -> Found:
    """The released code clamps norms at 1e-8, which makes its scores wrong where attention is peaked."""
    run, found = _identities(runs)
    wrong, ours = found["released_code"]["largest_error"], found["released_code"]["largest_error_ours"]
    text = f"wrong by up to {wrong:.2f}; ours, without weights, by {tiny(ours)}"
    return Found(text, graded(wrong >= 0.1 and ours <= ROUNDING, wrong >= 0.1), run)


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
