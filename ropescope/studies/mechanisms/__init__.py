"""What the heads of trained number and letter models do along paths (paper B, sections 3.2 and 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..study import Study, later, option

here = later(__name__)

MOST = 45_600
"""Test sequences of preset paper."""
DETAILS = "head_details.json"


@dataclass(frozen=True)
class Settings:
    """Which model to follow, on how many sequences."""

    task: str = option("all", "number, letter or all, at the size of preset paper.", argument=True)
    model: Path | None = option(None, "Folder of a GPT-J; the bundled model of the task unless given.")
    inputs: int = option(MOST, "Test sequences on which to count what heads do.")
    changed: int = option(4_000, "Test sequences on which to try each change of attention.")
    seed: int | None = option(None, "Seed of the run whose test sequences to use; unless given, the bundled model's own, or 0.")

    def __post_init__(self) -> None:
        if not (40 <= self.inputs <= MOST and 4 <= self.changed <= MOST):
            raise ValueError(
                f"inputs must be from 40 to {MOST} and changed from 4 to {MOST}, not {self.inputs} and {self.changed}"
            )


STUDIES = (
    Study(
        "mechanisms",
        heading="What heads do",
        question="What do heads do?",
        title=here("story:title"),
        help="What each head does along the paths of a task, what depends on it, and through which RoPE planes.",
        examples=("ropescope mechanisms number --out out/mechanisms",),
        group="The papers",
        settings=Settings,
        run=here("run:run"),
        headline=here("tables:headline"),
        figures=here("figures:figures"),
        tables=here("tables:tables"),
        dataset=here("tables:dataset"),
    ),
)
