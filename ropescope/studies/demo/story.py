"""What the page calls the first look."""

from __future__ import annotations

from ...runs import Run


def title(_: Run) -> str:
    """What the page calls the run."""
    return "Hand-made and trained heads, scored"
