"""Claims on real language models (paper A, section 4)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...runs import Run
from ..claims import Found, NotRunError, Runs, claims_in, every, graded, many, small_p, span
from . import claims_scores
from .claims_scores import with_planes
from .rows import read_details

__all__ = ["claims_scores"]  # loading this module registers all claims that read profiles

claim = claims_in("Real language models")

OTHERS = "Other models than the paper's, 24 sentences instead of up to 256."
FAMILIES = ("gemma", "qwen", "llama")
"""Of paper A: Gemma 2, Qwen 2, Llama 3."""


def _name(run: Run) -> str:
    return run.name.removeprefix("profile-")


def _but(profiles: Sequence[Run], holds: Sequence[bool]) -> str:
    """In how many profiles something holds, and where not."""
    not_in = [_name(run) for run, good in zip(profiles, holds, strict=True) if not good]
    return f"in {sum(holds)} of {many(holds)}" + (f", not in {', '.join(not_in)}" if not_in else "")


def _r(run: Run) -> float:
    """Pearson's r of both scores over heads."""
    if run.results.get("correlation") is None:
        raise NotRunError(f"{run.name} has too few heads for a correlation")
    return float(run.results["correlation"]["pearson"]["r"])


STRONG = -0.7
"""From here on down a correlation counts as strong."""


@claim(
    "A-4-correlation",
    "A",
    "section 4",
    "r = -0.91, p ≤ 1e-4",
    f"r at most {STRONG}, and below r of the same heads with logits drawn anew at the same spread (p < 0.05), in every profile "
    "in which both were measured; partly if only the first. Noise alone correlates the scores, as both cannot be low. Paper "
    "A's p takes heads as independent, which they are not. " + OTHERS,
)
def correlation(runs: Runs) -> Found:
    """Positional and symbolic scores over heads are strongly negatively correlated."""
    profiles = runs.profiles()
    values = [_r(run) for run in profiles]
    drawn = [run for run in profiles if run.results.get("noise") is not None]
    if not drawn:
        raise NotRunError("no profile with the correlation of noise among the runs given: profile again")
    beyond = [run.results["noise"]["p_value"] < 0.05 for run in drawn]
    noise = "; ".join(f"{_name(run)} {_r(run):.2f}, noise {span(run.results['noise']['r'])}" for run in drawn)
    text = f"r = {span(values)} in {many(profiles)}; against noise: {noise}"
    if missing := [_name(run) for run in profiles if run not in drawn]:
        text += f"; noise not run in {', '.join(missing)}"
    strong = all(value <= STRONG for value in values)
    return Found(text, graded(strong and all(beyond), strong or any(beyond)), drawn[0], "heads")


def _halves(runs: Runs, score: str, sign: int) -> Found:
    profiles = runs.profiles()
    depths = [run.results["depth"].get(score) for run in profiles]
    if None in depths:
        raise NotRunError("a profile has too few layers to compare halves")
    holds = [sign * (d["first"] - d["second"]) >= APART and d["prompts_with_trend"] >= 0.9 * d["prompts"] > 0 for d in depths]
    ends = "; ".join(f"{_name(run)} {d['first']:.2f}, {d['second']:.2f}" for run, d in zip(profiles, depths, strict=True))
    return Found(f"{ends}; {_but(profiles, holds)}", every(holds), profiles[0], "depth")


APART = 0.05
"""Medians of halves that differ by less are the same."""
DEPTH = (
    f"Medians over heads of first and second half of layers, {APART} apart, and so on 9 of 10 prompts, in every profile. A "
    "model has one course over depth, so there is no p-value. " + OTHERS
)


@claim("A-4-depth-positional", "A", "section 4", "median 0.83, then 0.56", DEPTH)
def depth_positional(runs: Runs) -> Found:
    """Early layers are more positional."""
    return _halves(runs, "positional", 1)


@claim("A-4-depth-symbolic", "A", "section 4", "the reverse", DEPTH)
def depth_symbolic(runs: Runs) -> Found:
    """Late layers are more symbolic."""
    return _halves(runs, "symbolic", -1)


@claim(
    "A-4-trend",
    "A",
    "section 4",
    "stated without numbers",
    "Symbolic minus positional score rises with the plane (rank correlation above 0) in 90 % of heads of every profile.",
)
def trend(runs: Runs) -> Found:
    """Behaviour follows frequency: from fast to slow planes a head's planes turn from positional to symbolic."""
    profiles = [run for run in with_planes(runs) if run.results["frequency"]["trend_of_heads"]["heads"]]
    if not profiles:
        raise NotRunError("no profile of a model with enough planes for a trend among the runs given")
    found = [run.results["frequency"]["trend_of_heads"] for run in profiles]
    holds = [row["share_rising"] >= 0.9 for row in found]
    text = f"in {span([row['share_rising'] for row in found], '.0%')} of heads, median rank correlation "
    text += span([row["median"] for row in found])
    return Found(f"{text}; {_but(profiles, holds)}", every(holds), profiles[0], "planes-of-heads")


@claim(
    "A-4-norms",
    "A",
    "section 4",
    "stated without numbers",
    "Median plane of largest norm: slower in symbolic heads than in positional ones, and within layers the slower the more "
    "symbolic (p < 0.05); and outside the slowest third in positional heads, in every profile with both kinds of heads. Partly "
    "if the first in some. Slow planes carry large logits that are the same for all keys.",
)
def norms(runs: Runs) -> Found:
    """The largest logit norms of a head lie in the planes it uses: fast ones in positional heads, slow ones in symbolic
    heads."""
    order, fast, text, told = [], [], [], []
    for run in with_planes(runs):
        found, planes = run.results["frequency"]["largest"]["norm"], len(run.results["frequency"]["plane"])
        places = [found["median"].get(kind) for kind in ("positional", "symbolic")]
        within = found.get("with_lead", {}).get("within_layers", {})
        if None in places or within.get("p_value") is None:
            continue  # heads of one kind only, too few layers, or a run of version 0.2 and before
        order.append(places[0] < places[1] and within["r"] > 0 and within["p_value"] < 0.05)
        fast.append(places[0] <= planes * 2 / 3)
        text.append(f"{_name(run)} {places[0]:g} and {places[1]:g} of {planes} ({small_p(within['p_value'])})")
        told.append(run)
    if not told:
        raise NotRunError("no profile with planes of largest norm in heads of both kinds among the runs given: profile again")
    whole = all(a and b for a, b in zip(order, fast, strict=True))
    return Found("; ".join(text), graded(whole, any(order)), told[0], "norms")


@claim(
    "A-4-families",
    "A",
    "section 4",
    "Gemma 2, Qwen 2, Llama 3",
    f"r of both scores over heads at most {STRONG} in every model of each family; generations differ from the paper's. Noise "
    "is a matter of A-4-correlation.",
)
def families(runs: Runs) -> Found:
    """The findings on heads hold across families."""
    profiles = runs.profiles()
    by_family = {name: [run for run in profiles if run.config["model"]["family"].startswith(name)] for name in FAMILIES}
    if missing := [name for name, found in by_family.items() if not found]:
        raise NotRunError(f"no profile of a {' or '.join(missing)} model among the runs given")
    holds = [all(_r(run) <= STRONG for run in found) for found in by_family.values()]
    text = "; ".join(f"{name}: {span(map(_r, found))}" for name, found in by_family.items())
    return Found(f"r {text}", every(holds), profiles[0], "heads")


@claim(
    "A-3C-geometry",
    "A",
    "section 5, figure 3C",
    "gemma-2-2b-it, 64 binding pairs",
    "Keys of the most positional head in its plane of largest logits: mean direction 0.95 and more than in the symbolic "
    "head; partly at best, as "
    "queries of one position alone are recorded.",
)
def geometry(runs: Runs) -> Found:
    """In a real head's plane keys share one direction and query angles encode the position, as in the Index model."""
    for run in runs.profiles():
        details = read_details(run)
        if details:
            break
    else:
        raise NotRunError("no profile with queries and keys of single heads among the runs given")
    alike = {kind: _alike(run, details["geometry"], kind) for kind in ("positional", "symbolic")}
    text = ", ".join(f"{kind} head {value:.2f}" for kind, value in alike.items())
    good = alike["positional"] >= 0.95 and alike["positional"] > alike["symbolic"]
    return Found(f"{_name(run)}: length of the mean direction of keys, {text}", graded(False, good), run, "geometry")


def _alike(run: Run, rows: Sequence[Mapping[str, Any]], kind: str) -> float:
    """Length of the mean direction of a head's keys that may move: 1 if all point the same way."""
    keys = [row for row in rows if row["kind"] == kind and row["what"] == "key" and row.get("block", -1) >= 0]
    if not keys:
        raise NotRunError(f"{run.name} has no {kind} head with keys that may move")
    angles = [math.atan2(row["y"], row["x"]) for row in keys]
    return math.hypot(*(sum(map(f, angles)) / len(angles) for f in (math.cos, math.sin)))


@claim(
    "ours-5-diagonal",
    "ours",
    "correctness",
    "to floating-point accuracy",
    "Largest difference of weights over all prompts, layers and heads of each profile, in single precision; 1e-4.",
)
def diagonal(runs: Runs) -> Found:
    """The diagonal of M gives the model's own attention."""
    profiles = runs.profiles()
    errors = [run.results["worst_check_error"] for run in profiles]
    return Found(f"{span(errors, '.0e')} in {many(profiles)}", every(error <= 1e-4 for error in errors), profiles[0], "heads")


@claim(
    "ours-5-first-look",
    "ours",
    "first measurement",
    "r = -0.89; positional 0.88, then 0.73; symbolic 0.50, then 0.68",
    "The same model, 50 prompts: r within 0.05 and medians within 0.1; partly if r is and both trends are the same.",
)
def first_look(runs: Runs) -> Found:
    """SmolLM2-135M shows what paper A says, by a first rough measurement of 12 prompts."""
    run = next((run for run in runs.profiles() if run.config["model"]["source"].endswith("smollm2-135m")), None)
    if run is None:
        raise NotRunError("no profile of SmolLM2-135M among the runs given")
    r, depth = _r(run), run.results["depth"]
    ours = [depth[score][half] for score in ("positional", "symbolic") for half in ("first", "second")]
    close = [abs(a - b) <= 0.1 for a, b in zip(ours, (0.88, 0.73, 0.50, 0.68), strict=True)]
    same = abs(r + 0.89) <= 0.05
    text = f"r = {r:.2f}; positional {ours[0]:.2f}, then {ours[1]:.2f}; symbolic {ours[2]:.2f}, then {ours[3]:.2f}"
    return Found(text, graded(same and all(close), same and ours[0] > ours[1] and ours[2] < ours[3]), run, "depth")
