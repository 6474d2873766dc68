"""What heads can be used for, on the front of a page: windows in the KV cache."""

from __future__ import annotations

from collections.abc import Mapping

from ..claims import NotRunError, Runs
from ..story import Story, story
from .tables import RANDOM


@story("What do heads do?")
def windows(runs: Runs) -> Story:
    """How many key heads need the whole context."""
    found = [run for run in runs.of("windows") if run.results["windowed"]]
    if not found:
        raise NotRunError("no run of `ropescope windows` that windows a head")
    run = max(found, key=lambda run: run.results["candidates"])
    results = run.results
    count, total = len(results["windowed"]), results["candidates"]
    text = (
        f"Some heads need the whole context and others do not. In {run.config['model']}, {count} of {total} key heads keep "
        f"only {run.config['sinks']} first and {run.config['window']} last positions: answers to questions on text far back "
        f"then have a log probability of {_mean(results['after']):.2f}, before {_mean(results['before']):.2f}"
    )
    drawn = [_mean(each) for each in results["random"]]
    if drawn:
        text += f", and {min(drawn):.2f} to {max(drawn):.2f} with as many heads chosen at {RANDOM}"
    return Story((f"{text}.",), run, "need", "Crossed key heads are windowed; dark ones need the whole context.")


def _mean(found: Mapping[str, float]) -> float:
    names = [name for name in found if name.endswith("log probability")]
    return sum(found[name] for name in names) / len(names)
