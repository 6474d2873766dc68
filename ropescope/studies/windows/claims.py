"""Our own claims on windows of key heads."""

from __future__ import annotations

from ...runs import Run
from ..claims import Found, NotRunError, Runs, claims_in, every, graded
from . import SHIPPED
from .rankings import RANKINGS
from .tables import RANDOM

claim = claims_in("Real language models")


def _compared(runs: Runs) -> list[Run]:
    found = [run for run in runs.of("windows") if run.results.get("areas") is not None]
    if not found:
        raise NotRunError("no run of `ropescope windows` that compares rankings")
    return found


@claim(
    "ours-windows-rivals",
    "ours",
    "docs/windows.md",
    "our best ranking first",
    "Mean log probability of answers over the shares windowed, of the shipped ranking and of every rival that needs no "
    "training; in every model, partly in some.",
)
def rivals(runs: Runs) -> Found:
    """Our ranking loses less than every rival that needs no training."""
    cases, parts = [], []
    found = _compared(runs)
    for run in found:
        areas = run.results["areas"]
        others = {name: areas[name] for name, ranking in RANKINGS.items() if not ranking.ours}
        best = max(others, key=lambda name: others[name])
        cases.append(areas[SHIPPED] > others[best])
        parts.append(f"{run.config['model']}: {SHIPPED} {areas[SHIPPED]:.2f}, {best} {others[best]:.2f}")
    return Found("; ".join(parts), every(cases), found[0], "curve")


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
