"""Claims on real language models (paper A, section 4)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...runs import Run
from ..claims import Found, NotRunError, Runs, claims_in, every, graded, many, span
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


def _pearson(run: Run) -> Mapping[str, float]:
    found = run.results["correlation"]
    if found is None:
        raise NotRunError(f"{run.name} has too few heads for a correlation")
    pearson: Mapping[str, float] = found["pearson"]
    return pearson


def _excludes(run: Run) -> bool:
    found = _pearson(run)
    return found["r"] <= -0.7 and found["p_value"] <= 1e-4 and found["p_layers"] < 0.05


@claim(
    "A-4-correlation",
    "A",
    "section 4",
    "r = -0.91, p ≤ 1e-4",
    "r at most -0.7, p at most 1e-4 and, with whole layers shuffled, below 0.05, in every profile. Tables of random logits of "
    "unit size have an r as strong, as both scores cannot be low: what depends on the model is where its heads lie along that "
    "line. " + OTHERS,
)
def correlation(runs: Runs) -> Found:
    """Positional and symbolic scores over heads are strongly negatively correlated."""
    profiles = runs.profiles()
    holds = [_excludes(run) for run in profiles]
    values = [_pearson(run)["r"] for run in profiles]
    text = f"r = {values[0]:.2f} in {_name(profiles[0])}, {span(values)} in all; "
    return Found(text + _but(profiles, holds), every(holds), profiles[0], "heads")


def _halves(runs: Runs, score: str, sign: int) -> Found:
    profiles = runs.profiles()
    depths = [run.results["depth"][score] for run in profiles]
    if None in depths:
        raise NotRunError("a profile has too few layers to compare halves")
    holds = [sign * (d["first"] - d["second"]) > 0 and max(d["p_value"], d["p_layers"]) < 0.05 for d in depths]
    ends = "; ".join(f"{_name(run)} {d['first']:.2f}, {d['second']:.2f}" for run, d in zip(profiles, depths, strict=True))
    return Found(f"{ends}; {_but(profiles, holds)}", every(holds), profiles[0], "depth")


DEPTH = "Medians over heads of first and second half of layers, p < 0.05, also over layers, in every profile. " + OTHERS


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
    "Symbolic minus positional score rises with the plane in 90 % of heads, p < 0.05 over layers, in every profile.",
)
def trend(runs: Runs) -> Found:
    """Behaviour follows frequency: from fast to slow planes a head's planes turn from positional to symbolic."""
    profiles = [run for run in with_planes(runs) if run.results["frequency"]["trend_of_heads"]["heads"]]
    if not profiles:
        raise NotRunError("no profile of a model with enough planes for a trend among the runs given")
    found = [run.results["frequency"]["trend_of_heads"] for run in profiles]
    holds = [(row["share_rising"] or 0) >= 0.9 and (row["p_layers"] or 1) < 0.05 for row in found]
    text = f"in {span([row['share_rising'] or 0 for row in found], '.0%')} of heads, median rank correlation "
    text += span([row["median"] or 0 for row in found])
    return Found(f"{text}; {_but(profiles, holds)}", every(holds), profiles[0], "planes-of-heads")


@claim(
    "A-4-norms",
    "A",
    "section 4",
    "stated without numbers",
    "Median plane of largest norm: slower in symbolic heads, p < 0.05, and outside the slowest third in positional ones, "
    "in every profile; "
    "partly if the first in some. Slow planes carry large logits that are the same for all keys.",
)
def norms(runs: Runs) -> Found:
    """The largest logit norms of a head lie in the planes it uses: fast ones in positional heads, slow ones in symbolic
    heads."""
    profiles = with_planes(runs)
    order, fast, text = [], [], []
    for run in profiles:
        found, planes = run.results["frequency"]["largest"]["norm"], len(run.results["frequency"]["plane"])
        places = [found["median"][kind] for kind in ("positional", "symbolic")]
        known = None not in places and found["p_value"] is not None
        order.append(known and places[0] < places[1] and found["p_value"] < 0.05)
        fast.append(known and places[0] <= planes * 2 / 3)
        text.append(f"{_name(run)} {' and '.join('-' if place is None else f'{place:g}' for place in places)} of {planes}")
    whole = all(a and b for a, b in zip(order, fast, strict=True))
    return Found("; ".join(text), graded(whole, any(order)), profiles[0], "norms")


@claim(
    "A-4-families",
    "A",
    "section 4",
    "Gemma 2, Qwen 2, Llama 3",
    "Scores exclude each other (as in A-4-correlation) in a model of each family; generations differ from the paper's.",
)
def families(runs: Runs) -> Found:
    """The findings on heads hold across families."""
    profiles = runs.profiles()
    by_family = {name: [run for run in profiles if run.config["model"]["family"].startswith(name)] for name in FAMILIES}
    if missing := [name for name, found in by_family.items() if not found]:
        raise NotRunError(f"no profile of a {' or '.join(missing)} model among the runs given")
    holds = [all(map(_excludes, found)) for found in by_family.values()]
    text = "; ".join(f"{name}: {span([_pearson(run)['r'] for run in found])}" for name, found in by_family.items())
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
    alike = {kind: _alike(details["geometry"], kind) for kind in ("positional", "symbolic")}
    if None in alike.values():
        raise NotRunError(f"{run.name} has no head of either type")
    text = ", ".join(f"{kind} head {value:.2f}" for kind, value in alike.items())
    good = (alike["positional"] or 0) >= 0.95 and (alike["positional"] or 0) > (alike["symbolic"] or 0)
    return Found(f"{_name(run)}: length of the mean direction of keys, {text}", graded(False, good), run, "geometry")


def _alike(rows: Sequence[Mapping[str, Any]], kind: str) -> float | None:
    """Length of the mean direction of a head's keys that may move: 1 if all point the same way."""
    keys = [
        row for row in rows if row["kind"] == kind and row["what"] == "key" and row["block"] is not None and row["block"] >= 0
    ]
    angles = [math.atan2(row["y"], row["x"]) for row in keys]
    return math.hypot(*(sum(map(f, angles)) / len(angles) for f in (math.cos, math.sin))) if angles else None


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
    r, depth = _pearson(run)["r"], run.results["depth"]
    ours = [depth[score][half] for score in ("positional", "symbolic") for half in ("first", "second")]
    close = [abs(a - b) <= 0.1 for a, b in zip(ours, (0.88, 0.73, 0.50, 0.68), strict=True)]
    same = abs(r + 0.89) <= 0.05
    text = f"r = {r:.2f}; positional {ours[0]:.2f}, then {ours[1]:.2f}; symbolic {ours[2]:.2f}, then {ours[3]:.2f}"
    return Found(text, graded(same and all(close), same and ours[0] > ours[1] and ours[2] < ours[3]), run, "depth")
