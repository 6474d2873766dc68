"""Sequence length, path length and vocabulary, changed one at a time: what each moves (a question that paper B leaves open)."""

from __future__ import annotations

from dataclasses import dataclass

from ..study import Study, later, option

here = later(__name__)


@dataclass(frozen=True)
class Settings:
    """How models are trained, and which sizes of the tasks are tried. Every size is changed alone, all else as in the default.

    A value that is that of the default model adds none, so `windows=(8,)` leaves windows as they are.
    """

    seeds: int = option(2, "Seeds of every setting: the given one and those after it.")
    windows: tuple[int, ...] = option((16, 32), "Targets, and as many stops; the default has 8 of each.")
    hops: tuple[int, ...] = option((1, 3, 4), "Hops of the longest path; the default has 2.")
    letters: tuple[int, ...] = option((8, 24, 64), "Different letters; the default has 16. The letter task has 26 at most.")
    steps: int = option(1_500, "Training steps.")
    layers: int = option(4, "Layers of one head each.")
    width: int = option(64, "Width of the residual stream.")
    multiples: tuple[int, ...] = option((2, 4, 8, 16, 32), "Lengths to test, in multiples of that of training.")
    inputs: int = option(1_000, "Test sequences of the training length.")
    long_inputs: int = option(64, "Test sequences of each other length.")
    seed: int = option(0, "Seed of everything random.")

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, not {self.seeds}")
        least = max((2, *self.hops))
        if min(self.inputs, self.long_inputs) < least:
            told = f"not {self.inputs} and {self.long_inputs}"
            raise ValueError(f"inputs and long_inputs must be at least {least}, one for each hop count, {told}")
        if not self.multiples or min(self.multiples) < 2 or list(self.multiples) != sorted(set(self.multiples)):
            raise ValueError(f"multiples must grow from at least 2, not {', '.join(map(str, self.multiples)) or 'be empty'}")
        here("recipes:check")(self)


PRESETS = {
    "full": {},
    "quick": {
        "seeds": 1, "windows": (), "hops": (1,), "letters": (8,), "steps": 400, "multiples": (2, 8),
        "inputs": 200, "long_inputs": 32,
    },
}  # fmt: skip

STUDIES = (
    Study(
        "sizes",
        heading="Sizes of the task",
        question="How far does it hold?",
        title=here("tables:title"),
        help="Train small models on the number and letter tasks with other windows, paths and vocabularies, one at a time.\n\n"
        "Give the same command again to resume, or with more seeds and values to add to the run.",
        examples=(
            "ropescope sizes --preset quick --out out/sizes",
            "ropescope sizes --windows 16,32 --hops 1,4 --seeds 3 --out out/sizes",
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
