"""Everything of both papers: a list of studies with their settings, run one after another or side by side."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..study import Study, later, option

here = later(__name__)

PRESETS = ("quick", "paper")


@dataclass(frozen=True)
class Settings:
    """Which steps to run, and on which models."""

    preset: str = option("quick", "quick (minutes) or paper (hours: the recorded settings).")
    model: str | None = option(
        None, "Language model: folder, GGUF file or hub id.  [default: smollm2-135m in $ROPESCOPE_WEIGHTS or weights]"
    )
    chat: str | None = option(None, "Chat model to ask, too, as in ropescope llm; a provider's is paid for.")
    only: tuple[str, ...] = option((), "Steps to run; others stay as they are.")
    skip: tuple[str, ...] = option((), "Steps to leave as they are.")
    jobs: int | None = option(None, "Steps side by side.  [default: one for each core]")

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, not {self.preset!r}")
        if self.jobs is not None and self.jobs < 1:
            raise ValueError(f"jobs must be at least 1, not {self.jobs}")

    @property
    def side_by_side(self) -> int:
        """How many steps run at once."""
        return self.jobs or os.cpu_count() or 1


STUDIES = (
    Study(
        "reproduce",
        heading="Reproduction",
        title=here("story:title"),
        help="Run everything of both papers, step by step, up to the page with the scoreboard. Run it again to resume.",
        examples=("ropescope reproduce --preset quick --out out/reproduce", "ropescope reproduce --list"),
        group="The papers",
        settings=Settings,
        run=here("run:run"),
        headline=here("tables:headline"),
        tables=here("tables:tables"),
        dataset=here("tables:dataset"),
        preview=("list", "Show the steps, their states and what is left, and leave.", here("run:preview")),
        page=here("run:page"),
        failed=here("tables:failed"),
    ),
)
