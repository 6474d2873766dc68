"""The theory of both papers: constructions, bounds and exact gaps."""

from __future__ import annotations

from dataclasses import dataclass

from ..study import Study, later, option

here = later(__name__)


@dataclass(frozen=True)
class Settings:
    """How much to try."""

    inputs: int = option(100_000, "Random inputs on which to try each construction.")
    longest: int = option(10_000, "Longest input of the curves.")
    draws: int = option(4_000, "Plane sets to try for each number of planes and distances.")
    seed: int = option(0, "Seed of everything random.")


STUDIES = (
    Study(
        "theory",
        heading="Theory",
        question="What is proved?",
        title=here("story:title"),
        help="Try the built models on every small input and many large ones, and draw printed, corrected and exact gaps.",
        examples=("ropescope theory --out out/theory",),
        group="The papers",
        settings=Settings,
        run=here("run:run"),
        headline=here("tables:headline"),
        figures=here("figures:figures"),
        tables=here("tables:tables"),
        dataset=here("tables:dataset"),
    ),
)
