"""Names of what is tried, as runs store them."""

from __future__ import annotations

NONE, SYMBOLIC, POSITIONAL, ALL, RANDOM = "none", "symbolic", "positional", "all", "random"
FEW = "most positional"
"""As many of the positional heads as there are symbolic ones, those whose scores differ most."""
BASE = "larger base"


def with_base(name: str) -> str:
    """Name of the choice that sharpens the same heads and enlarges the base."""
    return f"{BASE}, {name}"
