"""What the page calls a run on cues."""

from __future__ import annotations

from ...runs import Run


def title(run: Run) -> str:
    """What the page calls the run."""
    return f"Counting or matching: {len(run.results['models'])} models that could learn either"
