"""Our own claims on windows of key heads."""

from __future__ import annotations

from ...runs import Run
from ..claims import Found, NotRunError, Runs, claims_in, every, graded
from . import OURS, SHIPPED
from .rankings import RANKINGS
from .tables import RANDOM, lead_of

claim = claims_in("Real language models")
WINDOW = 64
"""Last positions of the windows that rankings are judged at, after a prefill in full; other runs are shown, not judged."""
MODELS = 4
"""Models that are enough to judge a ranking by."""
FEW = 10
"""Key heads that a model must have for its rankings to differ."""


def _compared(runs: Runs) -> list[Run]:
    found = [
        run
        for run in runs.of("windows")
        if run.results.get("areas") is not None
        and run.results["candidates"] >= FEW
        and run.config["window"] == WINDOW
        and run.config["prefill"] == "full"
    ]
    if not found:
        raise NotRunError("no run of `ropescope windows` that compares rankings")
    return found


@claim(
    "ours-windows-rivals",
    "ours",
    "docs/windows.md",
    "our ranking first in three of four models",
    "Mean log probability of answers over the shares windowed, of our ranking and of every rival that needs no training. "
    "Reproduced: above every rival in three quarters of at least four models; partly: in some.",
)
def rivals(runs: Runs) -> Found:
    """Our ranking loses less than every rival that needs no training."""
    cases, parts = [], []
    found = _compared(runs)
    for run in found:
        areas = run.results["areas"]
        others = {name: areas[name] for name, ranking in RANKINGS.items() if not ranking.ours}
        best = max(others, key=lambda name: others[name])
        cases.append(areas[OURS] > others[best])
        parts.append(f"{run.config['model']}: {OURS} {areas[OURS]:.2f}, {best} {others[best]:.2f}{_apart(run, best)}")
    most = len(cases) >= MODELS and sum(cases) >= 0.75 * len(cases)
    return Found("; ".join(parts), graded(most, any(cases)), found[0], "curve")


def _apart(run: Run, best: str) -> str:
    """The interval of the difference between our ranking and the best rival, where there are contexts enough."""
    single = run.results.get("areas by context")
    interval = None if single is None else lead_of(single[OURS], single[best])
    return "" if interval is None else f" (difference {interval.low:.2f} to {interval.high:.2f})"


@claim(
    "ours-windows-random",
    "ours",
    "docs/windows.md",
    "better than chance",
    "Mean log probability of answers over the shares windowed, above that of every random choice; in every model, partly in "
    "some.",
)
def beyond_random(runs: Runs) -> Found:
    """The split by the shipped ranking loses less than random splits."""
    cases, parts = [], []
    found = _compared(runs)
    for run in found:
        areas = run.results["areas"]
        drawn = [value for name, value in areas.items() if name.startswith(RANDOM)]
        if not drawn:
            continue
        cases.append(areas[SHIPPED] > max(drawn))
        parts.append(f"{run.config['model']}: {areas[SHIPPED]:.2f}, random {min(drawn):.2f} to {max(drawn):.2f}")
    return Found("; ".join(parts), every(cases), found[0], "curve")


@claim(
    "ours-windows-cache",
    "ours",
    "docs/windows.md",
    "less memory, same logits",
    "Bytes of both caches, measured; logits within 1e-4 of the largest; in every run.",
)
def cache(runs: Runs) -> Found:
    """A cache that holds less for windowed heads gives the logits of masking."""
    found = [run for run in runs.of("windows") if run.results.get("cache") is not None]
    if not found:
        raise NotRunError("no run of `ropescope windows` measured a cache")
    sizes = [run.results["cache"] for run in found]
    held = [
        each["windowed_bytes"] < each["full_bytes"] and each["logit_difference"] <= 1e-4 * each["largest_logit"]
        for each in sizes
    ]
    parts = [
        f"{run.config['model']}: {each['windowed_bytes'] / each['full_bytes']:.0%} of the bytes at {each['tokens']:,} tokens, "
        f"logits differ by {each['logit_difference']:.0e}"
        for run, each in zip(found, sizes, strict=True)
    ]
    return Found("; ".join(parts), graded(all(held), any(held)), found[0], "need")
