"""The canonical tasks of paper A, section 5: which RoPE angle learns which task, and what built heads can and cannot do."""

from __future__ import annotations

from dataclasses import dataclass

from ..study import Study, later, option

here = later(__name__)


@dataclass(frozen=True)
class Settings:
    """Sizes of tasks, angles and training."""

    items: int = option(16, "Items before the query, in every task.")
    letters: int = option(8, "Letters of Index.")
    symbols: int = option(16, "Symbols of Retrieval.")
    repeated: int = option(12, "Symbols of partial induction, some of which occur several times.")
    few: int = option(4, "Symbols of the easier partial induction.")
    attributes: int = option(8, "Attributes that a symbol can have.")
    slowest: float = option(1e-3, "Smallest angle besides 0.")
    fastest: float = option(1.5, "Largest angle.")
    angles: int = option(18, "Angles besides 0, evenly spaced on a logarithmic axis.")
    seeds: int = option(5, "Seeds of every sweep: the given one and those after it.")
    scored: int = option(300, "Test inputs on which trained heads are scored.")
    steps: int = option(2000, "Training steps.")
    seed: int = option(0, "Seed of everything random.")

    def __post_init__(self) -> None:
        if not 0 < self.slowest < self.fastest:
            raise ValueError(f"slowest must be above 0 and below fastest, not {self.slowest} and {self.fastest}")
        if self.angles < 3 or self.seeds < 2 or self.scored < 2:
            raise ValueError(
                f"angles must be at least 3, seeds and scored at least 2, not {self.angles}, {self.seeds} and {self.scored}"
            )
        here("sweeps:check")(self)


PRESETS = {
    "full": {},
    "quick": {
        "items": 8, "letters": 6, "symbols": 8, "repeated": 8, "few": 3, "attributes": 6, "angles": 9, "seeds": 3,
        "scored": 100, "steps": 800,
    },
}  # fmt: skip

STUDIES = (
    Study(
        "canonical",
        heading="Canonical tasks",
        question="Through which frequencies?",
        title=here("story:title"),
        help="Train one-head models on Index, Retrieval and partial induction at every RoPE angle, and check built heads.\n\n"
        "Give the same command again to resume.",
        examples=(
            "ropescope canonical --preset quick --out out/canonical",
            "ropescope canonical --engine ray --address auto --out out/canonical",
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
