"""What the page calls a reproduction."""

from __future__ import annotations

from ...runs import Run


def title(_: Run) -> str:
    """What the page calls the run."""
    return "Both papers, run again step by step"
