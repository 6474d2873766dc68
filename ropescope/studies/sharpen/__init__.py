"""Logits that grow with log n in chosen heads: does a profile tell which heads to sharpen past the trained length?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..study import Study, later, model_folder, option

here = later(__name__)


@dataclass(frozen=True)
class Settings:
    """Which model, how far past its trained length, and on what text."""

    model: str = option(..., "Hub id, folder or GGUF file.", argument=True)
    tokens: int = option(1024, "Tokens of a passage.")
    trained: int | None = option(None, "Tokens of the inputs of training.  [default: the context in the model's configuration]")
    start: int | None = option(None, "Keys from which logits grow.  [default: the trained length]")
    text: Path | None = option(None, "Text to read.  [default: the prose that comes with the package]")
    passages: int | None = option(None, "Read at most so many passages.  [default: as many as the text has]")
    draws: int = option(20, "Random choices of heads to compare each kind with.")
    dtype: str = option("float32", "float32, float64 or bfloat16.")
    trust_remote_code: bool = option(False, "Let the model bring its own code. Read it first.")
    seed: int = option(0, "Seed of everything random.")

    def __post_init__(self) -> None:
        for name, least in (("tokens", 4), ("trained", 2), ("start", 2), ("passages", 1), ("draws", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")


STUDIES = (
    Study(
        "sharpen",
        heading="Heads sharpened past the trained length",
        question="How far does it hold?",
        title=here("story:title"),
        help="Multiply logits by log n in symbolic, positional, all or random heads, and measure the loss past the trained "
        "length.\n\nBeside them p-RoPE and a larger base. Give the same command again to resume.",
        examples=(
            "ropescope sharpen weights/stories15M --out out/sharpen",
            "ropescope sharpen weights/stories15M --tokens 512 --draws 40",
        ),
        group="Your model",
        settings=Settings,
        run=here("run:run"),
        out=model_folder("sharpen"),
        headline=here("tables:headline"),
        figures=here("figures:figures"),
        tables=here("tables:tables"),
        dataset=here("tables:dataset"),
    ),
)
