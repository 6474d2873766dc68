"""Learning dynamics: when hop counts are learned and heads become pure (paper B, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..study import Study, later, option

if TYPE_CHECKING:
    from ...runs import Run

here = later(__name__)


@dataclass(frozen=True)
class Settings:
    """Which histories to read, and how to measure checkpoints."""

    sources: tuple[str, ...] = option(
        ..., "Run folders of training or watching, finished or not; folders of checkpoints; or a hub id.", argument=True
    )
    layers: tuple[int, ...] | None = option(
        None, "Layers to show under the accuracy, as in 0,1,5; unless given, those that tell most."
    )
    revisions: tuple[str, ...] = option((), "Revisions of a hub id; each names its step.")
    prompts: str = option(
        "binding", "Prompts for checkpoints: binding, number, letter, a text file, or token ids in a JSON file."
    )
    count: int = option(8, "How many prompts; a file has as many as it has.")
    pairs: int = option(12, "Sentences of a binding prompt.")
    chat: bool | None = option(None, "Use the chat template; unless given, if there is one.")
    tau: float = option(1e-4, "Temperature of the weighting of swaps.")
    seed: int = option(0, "Seed of everything random.")


def evidence(run: Run, runs: Sequence[Run]) -> list[Run]:
    """The run and the training runs whose histories it read."""
    return [run, *(other for other in runs if other.command == "train" and other.name in run.config["runs"])]


STUDIES = (
    Study(
        "dynamics",
        heading="Training",
        question="When do they form?",
        title=here("story:title"),
        help="When heads became pure and hop counts were learned, with the curves.\n\n"
        "A folder of checkpoints as transformers writes them is measured checkpoint by checkpoint; the scores are stored in "
        "OUT/NAME. Give the same command again to resume after an interruption, or when there are more checkpoints.",
        examples=(
            "ropescope dynamics out/number-0 out/letter-0 --out out/dynamics",
            "ropescope dynamics my-training --count 8    (a folder of checkpoint-500, checkpoint-1000, ...)",
            "ropescope dynamics EleutherAI/pythia-70m --revisions step0,step512,step143000",
        ),
        group="Watching",
        settings=Settings,
        run=here("run:run"),
        engine=True,
        headline=here("tables:headline"),
        figures=here("figures:figures"),
        tables=here("tables:tables"),
        dataset=here("tables:dataset"),
        evidence=evidence,
    ),
)
