"""Language models choose the answer among the items of the window: the number and letter tasks in words and as Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..study import Study, later, model_folder, option

here = later(__name__)


@dataclass(frozen=True)
class Settings:
    """Which model to ask, what, and what stands beside it."""

    model: str = option(..., "Hub id, folder or GGUF file.", argument=True)
    forms: tuple[str, ...] = option(("words", "python"), "How questions are posed, words or python; repeat it.", repeat=True)
    tasks: tuple[str, ...] = option(("number", "letter"), "Task, number or letter; repeat it for both.", repeat=True)
    lengths: tuple[int, ...] = option((12, 16, 24, 32, 48, 64, 80, 100, 150, 200, 300), "Sizes of the target window.")
    runs: int = option(5, "Draws of questions; the number of a draw is its seed.")
    samples: int = option(4, "Questions per form, task, length and draw.")
    profile: Path | None = option(None, "Run folder of ropescope profile of the same model.")
    beside: tuple[Path, ...] = option((), "Run folder of ropescope choice of another model.", repeat=True)
    dtype: str = option("float32", "float32, float64 or bfloat16.")
    trust_remote_code: bool = option(False, "Let the model bring its own code. Read it first.")
    seed: int = option(1, "Number of the first draw.")

    def __post_init__(self) -> None:
        from ...tasks import task_class  # noqa: PLC0415
        from ...tasks.posed import FORMS  # noqa: PLC0415

        for name in ("forms", "tasks"):
            chosen = getattr(self, name)
            if not chosen or len(set(chosen)) < len(chosen):
                raise ValueError(f"{name} must hold one at least, and none twice")
        for form in self.forms:
            if form not in FORMS:
                raise ValueError(f"forms must be among {', '.join(FORMS)}, not {form!r}")
        for task in self.tasks:
            task_class(task)
        if not self.lengths or list(self.lengths) != sorted(set(self.lengths)) or self.lengths[0] < 2:
            raise ValueError("lengths must grow from 2 or more, and there must be one at least")
        for name in ("runs", "samples", "seed"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


STUDIES = (
    Study(
        "choice",
        heading="Answers chosen among the items",
        question="Do chat models show it?",
        title=here("story:title"),
        help="Accuracy of any language model on the number and letter tasks, as it chooses among the items of the window.\n\n"
        "The item with the highest log probability is its answer, so base models can be asked, too. Questions are posed in "
        "words and as Python. Give the same command again to resume.",
        examples=(
            "ropescope choice weights/smollm2-135m --preset quick",
            "ropescope choice weights/smollm2-135m --profile out/profile-smollm2 --out out/choice",
        ),
        group="Your model",
        settings=Settings,
        presets={"full": {}, "quick": {"lengths": (12, 16, 24, 32), "runs": 2, "samples": 3}},
        run=here("run:run"),
        out=model_folder("choice"),
        headline=here("tables:headline"),
        figures=here("figures:figures"),
        tables=here("tables:tables"),
        dataset=here("tables:dataset"),
    ),
)
