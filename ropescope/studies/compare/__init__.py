"""Two profiles side by side: which heads changed, by how much, and which changed their kind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..study import Study, later, option

here = later(__name__)


@dataclass(frozen=True)
class Settings:
    """What to compare. Models are profiled first; the other settings are for these profiles."""

    a: str = option(..., "Run folder of a profile; or a model, as for profile.", argument=True)
    b: str = option(..., "The same; it is compared with the first.", argument=True)
    prompts: str = option("binding", "Prompts for models, as for profile.")
    count: int = option(50, "How many prompts.")
    pairs: int = option(24, "Sentences of a binding prompt.")
    dtype: str = option("auto", "Precision of models, as for profile.")
    seed: int = option(0, "Seed of prompts and of the permutation test.")


def _folder(settings: Settings) -> Path:
    return Path("out") / f"compare-{Path(settings.a).stem}-{Path(settings.b).stem}"


STUDIES = (
    Study(
        "compare",
        heading="Two models side by side",
        help="Compare two profiles head by head: models, revisions, precisions, quantisations or prompts.\n\n"
        "For two revisions, precisions or sets of prompts, profile each and give both run folders.",
        examples=(
            "ropescope compare weights/smollm2-135m org/smollm2-135m-tuned --out out/tuned",
            "ropescope compare out/smollm2-binding out/smollm2-prose --out out/prompts",
        ),
        group="Your model",
        settings=Settings,
        run=here("run:run"),
        out=_folder,
        headline=here("tables:headline"),
        figures=here("figures:figures"),
        tables=here("tables:tables"),
        dataset=here("tables:dataset"),
        question="What do heads do?",
        title=here("tables:title"),
    ),
)
