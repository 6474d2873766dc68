"""Counting or matching: which of two cues small models learn to follow, and what changes that (a question of paper B)."""

from __future__ import annotations

from dataclasses import dataclass

from ..study import Study, later, option

here = later(__name__)


@dataclass(frozen=True)
class Settings:
    """How models are trained, and what is changed. Every value is tried alone, all else as in the default model.

    A value that is that of the default model adds none, so `bases=(10_000,)` leaves bases as they are.
    """

    seeds: int = option(3, "Seeds of every setting: the given one and those after it.")
    shares: tuple[float, ...] = option((0.0, 0.25, 0.5, 0.75), "Shares of RoPE planes, the fastest, that turn; others stand.")
    bases: tuple[float, ...] = option((100.0, 1_000_000.0), "Bases of RoPE.")
    stretches: tuple[int, ...] = option((2, 8), "Training positions are a random choice of so many times as many.")
    log_lengths: tuple[int, ...] = option((2,), "Logits of a query that sees n keys are multiplied by log n to this base.")
    heads: tuple[int, ...] = option((4,), "Heads in each layer.")
    steps: int = option(500, "Training steps.")
    width: int = option(64, "Width of the residual stream.")
    multiples: tuple[int, ...] = option((5, 15, 50), "Lengths to test, in multiples of that of training.")
    inputs: int = option(1_000, "Test sequences of the training length.")
    long_inputs: int = option(128, "Test sequences of each other length.")
    seed: int = option(0, "Seed of everything random.")

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, not {self.seeds}")
        if min(self.inputs, self.long_inputs) < 2:
            raise ValueError(f"inputs and long_inputs must be at least 2, not {self.inputs} and {self.long_inputs}")
        if not self.multiples or min(self.multiples) < 2 or list(self.multiples) != sorted(set(self.multiples)):
            raise ValueError(f"multiples must grow from at least 2, not {', '.join(map(str, self.multiples)) or 'be empty'}")
        if not all(0 <= share <= 1 for share in self.shares):
            raise ValueError(f"each of shares must be from 0 to 1, not {', '.join(map(str, self.shares))}")
        here("knobs:check")(self)


PRESETS = {
    "full": {},
    "quick": {
        "seeds": 1, "shares": (0.0,), "bases": (), "stretches": (8,), "log_lengths": (), "heads": (), "steps": 200,
        "multiples": (5,), "inputs": 400, "long_inputs": 64,
    },
}  # fmt: skip

STUDIES = (
    Study(
        "cues",
        heading="Counting or matching",
        question="How far does it hold?",
        title=here("story:title"),
        help="Train small models on a task that counting and matching both solve, and find out which they do.\n\n"
        "Give the same command again to resume, or with more seeds and values to add to the run.",
        examples=(
            "ropescope cues --preset quick --out out/cues",
            "ropescope cues --stretches 2,4,8 --seeds 5 --out out/cues",
        ),
        group="The papers",
        settings=Settings,
        run=here("run:run"),
        presets=PRESETS,
        engine=True,
        headline=here("tables:headline"),
        figures=here("figures:figures"),
        tables=here("tables:tables"),
        dataset=here("tables:dataset"),
    ),
)
