"""Which decoder families of the installed `transformers` the adapter opens, checked on a tiny random model of each."""

from __future__ import annotations

from dataclasses import dataclass

from ..study import Study, later, option

here = later(__name__)

RECORDED = "results/conformance"
"""The recorded run, in a copy of the project."""


@dataclass(frozen=True)
class Settings:
    """Which families to check."""

    families: tuple[str, ...] = option((), "Model types of transformers.  [default: all rotary ones]", argument=True)
    against: str = option(RECORDED, "Run folder of an earlier run, to list what has changed since.")
    seed: int = option(0, "Seed of everything random.")


STUDIES = (
    Study(
        "conformance",
        heading="Checks and costs",
        title=here("story:title"),
        help="Check which decoder families of the installed transformers can be opened, on a tiny random model of each.\n\n"
        "It lists what has changed since an earlier run, such as one with another release of transformers.",
        examples=(
            "ropescope conformance --out out/conformance",
            "ropescope conformance llama gemma3_text --against results/conformance",
        ),
        group="Checks",
        settings=Settings,
        run=here("run:run"),
        headline=here("tables:headline"),
        figures=here("figures:figures"),
        tables=here("tables:tables"),
        dataset=here("tables:dataset"),
    ),
)
