"""Accuracy on inputs longer than those of training (paper B, figure 5B): what short inputs predict of it, and by hop count."""

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


@dataclass(frozen=True)
class HopSettings:
    """Which models to measure by hop count. The sequences are drawn with `seed`, `seed` + 1 and so on."""

    sources: tuple[Path, ...] = option((), "Run folders of training, beside the bundled models.", argument=True)
    lengths: tuple[int, ...] = option((17, 65, 129, 257, 513, 850, 1700, 3000, 5000), "Tokens of the inputs.")
    samples: int = option(256, "Sequences per length and draw.")
    draws: int = option(3, "How many times to draw the sequences, for the spread.")
    share: int = option(32, "Sequences behind one front, which is read once for all of them.")
    seed: int = option(0, "Seed of everything random.")

    def __post_init__(self) -> None:
        for name in ("samples", "draws", "share"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not self.lengths or list(self.lengths) != sorted(set(self.lengths)):
            raise ValueError(f"lengths must grow, not {', '.join(map(str, self.lengths)) or 'none'}")


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
    Study(
        "hop-lengths",
        heading="Beyond the length of training",
        question="How far does it hold?",
        title=here("tables_hops:title"),
        help="Accuracy by hop count over length, of several trained models, beside the paper's points. Run it again to resume.",
        examples=(
            "ropescope hop-lengths --lengths 17,257,850 --out out/hops",
            "ropescope hop-lengths out/number-0 out/letter-0 --out out/hops",
        ),
        group="The papers",
        settings=HopSettings,
        run=here("hops:run"),
        presets={"paper": {}, "quick": {"lengths": (17, 257, 850), "samples": 64, "draws": 2}},
        engine=True,
        headline=here("tables_hops:headline"),
        figures=here("figures_hops:figures"),
        tables=here("tables_hops:tables"),
        dataset=here("tables_hops:dataset"),
    ),
)
