"""Training on the number and letter tasks while heads are measured, and runs that hold such a history."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..study import Study, check_seed, later, option

here, histories = later(__name__), later("ropescope.studies.histories")


@dataclass(frozen=True)
class TrainSettings:
    """What to train, and from which recipe."""

    task: str = option(..., "number, letter or redundant.", argument=True)
    preset: str = option(
        "paper", "Recipe to start from: paper, quick (two hops, four layers) or released (paper B's released code)."
    )
    changes: tuple[str, ...] = option(
        (), "Change one entry of the recipe, as in steps=500; repeat it.", repeat=True, name="set"
    )
    resume: bool = option(False, "Resume the run in the folder, bit for bit.")
    snapshots: bool = option(False, "Store the weights of every checkpoint.")
    seed: int = option(0, "Seed of everything random.")
    seeds: tuple[int, ...] = option((), "Several seeds, as in 0,1,2: a run of each, in folders TASK-SEED.")

    def __post_init__(self) -> None:
        if self.seeds and self.seed:
            raise ValueError("give seed or seeds, not both")
        for seed in self.seeds:
            check_seed(seed)


def train_folder(settings: TrainSettings) -> Path:
    """The run folder unless one is given; with several seeds, the folder of the run folders."""
    return Path("out") if settings.seeds else Path("out") / f"{settings.task}-{settings.seed}"


@dataclass(frozen=True)
class EvaluateSettings:
    """Which model to test, on which sequences."""

    task: str = option(..., "number or letter, at the size of preset paper.", argument=True)
    model: Path | None = option(None, "Folder of a GPT-J; the bundled model of the task unless given.")
    seed: int | None = option(None, "Seed of the run whose test sequences to use; unless given, the bundled model's own, or 0.")


STUDIES = (
    Study(
        "train",
        heading="Training",
        question="When do they form?",
        title=here("story:title"),
        help="Train a GPT-J on the number, letter or redundant task, measuring its heads. Safe to interrupt and to resume.",
        examples=(
            "ropescope train number --seed 0 --out out/number-0",
            "ropescope train number --seeds 0,1,2 --engine ray --address auto --out out/seeds",
        ),
        group="Watching",
        settings=TrainSettings,
        run=here("run:train"),
        engine=True,
        out=train_folder,
        own=True,
        headline=here("tables:train_headline"),
        figures=histories("figures:film_figures"),
        tables=here("tables:train_tables"),
        dataset=histories("tables:history_dataset"),
        heads=histories("tables:history_heads"),
    ),
    *(
        Study(
            name,
            heading="Training",
            question="When do they form?",
            title=here("story:watched_title"),
            headline=here("tables:watched_headline"),
            figures=histories("figures:film_figures"),
            tables=here("tables:watched_tables"),
            dataset=histories("tables:history_dataset"),
            heads=histories("tables:history_heads"),
        )
        for name in ("watch", "sweep")
    ),
    Study(
        "evaluate",
        heading="Training",
        question="When do they form?",
        title=here("story:evaluate_title"),
        help="Accuracy per hop count on the 45,600 test sequences, recomputed from a model's weights.",
        examples=("ropescope evaluate number",),
        group="The papers",
        settings=EvaluateSettings,
        run=here("run:evaluate"),
        headline=here("tables:evaluate_headline"),
        tables=here("tables:evaluate_tables"),
        dataset=here("tables:evaluate_dataset"),
    ),
)
"""`rs.HeadWatcher` writes runs of type watch, and `ropescope dynamics` of checkpoints those of type sweep."""
