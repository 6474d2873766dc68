"""RoPE planes or heads of a trained model changed: what the model can still do (paper A, section 5)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..study import Study, later, model_folder, option

here = later(__name__)

KINDS = ("positional", "symbolic", "mixed")


@dataclass(frozen=True)
class Settings:
    """Which model, what to change, and what to measure it on."""

    model: str = option(..., "number or letter (bundled models), hub id, folder or GGUF file.", argument=True)
    drop: str | None = option(None, "Planes to drop: 1-8,20 or fast, middle, slow, 2/8, fastest25%.")
    keep: str | None = option(None, "Planes to keep; all others are dropped.")
    scale: str | None = option(None, "Planes whose logits to multiply, as in fast=0.5.")
    stop: str | None = option(None, "Planes that no longer turn.")
    p_rope: float | None = option(None, "Share of planes, the slowest, that no longer turn.")
    heads: str | None = option(None, "Ablate heads: positional, symbolic, mixed, or all kinds in turn.")
    draws: int = option(5, "Random planes or heads to compare each change with.")
    inputs: int = option(4_000, "Test sequences of number and letter.")
    count: int = option(50, "Binding prompts of a language model, of each length.")
    pairs: tuple[int, ...] = option((24, 8), "Sentences of the binding prompts.")
    text: Path | None = option(None, "Text for perplexity.  [default: one that comes with the package]")
    head_share: float = option(0.1, "At most this share of a language model's heads is ablated as one kind.")
    dtype: str = option("float32", "float32 or float64.")
    trust_remote_code: bool = option(False, "Let the model bring its own code. Read it first.")
    seed: int = option(0, "Seed of everything random.")

    def __post_init__(self) -> None:
        if self.draws < 0:
            raise ValueError(f"draws must be at least 0, not {self.draws}")
        if not 0 < self.head_share <= 1:
            raise ValueError(f"head_share must be above 0 and at most 1, not {self.head_share}")
        if self.heads not in (None, "all", *KINDS):
            raise ValueError(f"heads must be positional, symbolic, mixed or all, not {self.heads!r}")
        if not 40 <= self.inputs <= 45_600:
            raise ValueError(f"inputs must be from 40 to 45600, not {self.inputs}")


STUDIES = (
    Study(
        "control",
        heading="Planes and heads changed",
        question="Through which frequencies?",
        title=here("story:title"),
        help="Drop, scale or stop RoPE planes, or ablate heads, and measure what the model can still do.\n\n"
        "Without drop, keep, scale, stop, p-rope and heads, many changes are tried. Give the same command again to resume.",
        examples=("ropescope control number --drop fast --out out/number-without-fast-planes",),
        group="Your model",
        settings=Settings,
        run=here("run:run"),
        out=model_folder("control"),
        headline=here("tables:headline"),
        figures=here("figures:figures"),
        tables=here("tables:tables"),
        dataset=here("tables:dataset"),
    ),
)
