"""A first look: hand-made heads, and GPT-J before and after training, in the positional-symbolic plane."""

from __future__ import annotations

from dataclasses import dataclass

from ..study import Study, later, option

here = later(__name__)


@dataclass(frozen=True)
class Settings:
    """How many inputs to average over."""

    inputs: int = option(256, "How many inputs to average over.")
    tau: float = option(1e-4, "Temperature of the weighting of swaps.")
    seed: int = option(0, "Seed of everything random.")


STUDIES = (
    Study(
        "demo",
        heading="First look",
        question="What do heads do?",
        title=here("story:title"),
        help="Score hand-made heads, an untrained GPT-J and two trained ones, and draw them in the positional-symbolic plane.",
        examples=("ropescope demo --out out/demo",),
        group="Your model",
        settings=Settings,
        run=here("run:run"),
        headline=here("tables:headline"),
        figures=here("tables:figures"),
        tables=here("tables:tables"),
        dataset=here("tables:dataset"),
    ),
)
