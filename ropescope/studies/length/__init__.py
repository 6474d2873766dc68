"""Accuracy on inputs longer than those of training (paper B, figure 5B), and how much of it short inputs predict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..study import Study, later, option

here = later(__name__)

FILLERS = ("same", "one letter", "one token")


@dataclass(frozen=True)
class Settings:
    """What to measure. The sequences are drawn with `seed`, `seed` + 1 and so on."""

    task: str = option("all", "number, letter or all, at the size of preset paper.", argument=True)
    model: Path | None = option(None, "Folder of a GPT-J; the bundled model of the task unless given.")
    lengths: tuple[int, ...] = option((17, 33, 65, 129, 257, 513, 850, 1700, 3000, 5000), "Tokens of the inputs.")
    samples: int = option(512, "Sequences per length and seed.")
    seeds: int = option(3, "How many times to draw the sequences, for the spread.")
    share: int = option(32, "Sequences behind one front, which is read once for all of them.")
    fillers: str = option("same", "Extra targets in front: same, one letter or one token.")
    seed: int = option(0, "Seed of everything random.")

    def __post_init__(self) -> None:
        for name in ("samples", "seeds", "share"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.fillers not in FILLERS:
            raise ValueError(f"fillers must be one of {', '.join(FILLERS)}, not {self.fillers!r}")
        if list(self.lengths) != sorted(set(self.lengths)):
            raise ValueError(f"lengths must grow, not {', '.join(map(str, self.lengths))}")


STUDIES = (
    Study(
        "generalise",
        heading="Beyond the length of training",
        question="How far does it hold?",
        title=here("story:title"),
        help="Accuracy on inputs longer than those of training, beside what short inputs predict. Run it again to resume.",
        examples=("ropescope generalise letter --lengths 17,65,257,1025 --out out/generalise",),
        group="The papers",
        settings=Settings,
        run=here("run:run"),
        headline=here("tables:headline"),
        figures=here("figures:figures"),
        tables=here("tables:tables"),
        dataset=here("tables:dataset"),
    ),
)
