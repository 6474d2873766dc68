"""What scores, data, training and watching cost, as ratios in one run against doing it another way."""

from __future__ import annotations

from dataclasses import dataclass

from ..study import Study, later, option

here = later(__name__)

OF_MODELS = ("profile", "watch", "ray", "memory", "precision")
"""Benchmarks that need a language model."""
PARTS = ("scores", "training", "all", *OF_MODELS)


@dataclass(frozen=True)
class Settings:
    """What to time, and how often."""

    what: str = option(
        "all", "scores, training or all; or profile, watch, ray, memory or precision, which need a model.", argument=True
    )
    model: str | None = option(None, "For benchmarks that need a model: hub id, folder or GGUF file of a language model.")
    pairs: tuple[int, ...] = option(
        (24, 240, 256), "For profile: sentences of the binding prompts; ray, memory and precision take the first."
    )
    texts: tuple[int, ...] = option((), "For profile: lengths of texts whose tokens move one by one.")
    tokens: tuple[int, ...] = option((17, 32, 64, 128, 256, 512), "Lengths of input for scores.")
    rerun_up_to: int = option(128, "Longest input for which layers are really re-run.")
    batch: int = option(256, "Inputs of the shortest length at once; fewer of longer ones.")
    rounds: int = option(15, "Rounds of which the median counts.")
    samples: int = option(480_000, "Sequences of each task to draw.")
    steps: int = option(40, "Training steps to time; for watch, of each of eight blocks.")
    count: int = option(24, "For ray, memory and precision: prompts to profile.")
    memory: str = option("2GB", "For memory: what weights and numbers of a streamed model may take.")
    dtype: str = option("float32", "For memory: float32 or float64.")
    nodes: int = option(2, "For ray: nodes of the cluster, all on this machine, with a CPU each.")
    seed: int = option(0, "Seed of everything random.")

    def __post_init__(self) -> None:
        if self.what not in PARTS:
            raise ValueError(f"what must be one of {', '.join(PARTS)}, not {self.what!r}")
        if (self.what in OF_MODELS) != (self.model is not None):
            raise ValueError(f"benchmarks {', '.join(OF_MODELS)} need a model, and only they take one")
        if self.samples < 200 or self.steps < 1:
            raise ValueError(f"samples must be at least 200 and steps at least 1, not {self.samples} and {self.steps}")
        if self.what == "ray" and (self.count < 2 or self.nodes < 2):
            raise ValueError(
                f"count and nodes must be at least 2, as one node is lost half-way, not {self.count} and {self.nodes}"
            )


STUDIES = (
    Study(
        "bench",
        heading="Checks and costs",
        title=here("story:title"),
        help="Time scores, data, training and watching, as ratios in one run against doing it another way.",
        examples=(
            "ropescope bench scores --tokens 17,128 --rounds 5",
            "ropescope bench profile --model weights/smollm2-135m --pairs 24,240",
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
