"""Trained language models for tests: `make weights` fetches them."""

import os
from pathlib import Path

import pytest

WEIGHTS = Path(os.environ.get("ROPESCOPE_WEIGHTS", Path(__file__).parents[1] / "weights"))
FETCHED = ["smollm2-135m", "stories15M"]
OTHERS = [path.parent.name for path in sorted(WEIGHTS.glob("[!.]*/source.json")) if path.parent.name not in FETCHED]


def folder(name: str) -> Path:
    """The folder of a model, or the test is left out."""
    if not (WEIGHTS / name / "source.json").exists():
        pytest.skip(f"{name} is not in {WEIGHTS}: run `make weights`")
    return WEIGHTS / name
