"""Which key heads need the whole context, and which do with a few first positions and a window of last ones."""

from __future__ import annotations

from dataclasses import dataclass

from ..study import Study, later, model_folder, option

here = later(__name__)

SHIPPED = "retrieval"
"""The ranking that is used unless another is asked for: the best of those without training on the first two models."""
OURS = "far-variance"
"""Of the rankings that need only `M` on prose, the best on the first two models: it is compared with those of others."""


@dataclass(frozen=True)
class Settings:
    """Which model, how many heads keep everything, and what the choice is tried on."""

    model: str = option(..., "Hub id, folder or GGUF file.", argument=True)
    keep: float = option(0.25, "Share of key heads that keep the whole context.")
    loss: float | None = option(None, "Instead of keep: window as many heads as this loss allows, in nats.")
    sinks: int = option(16, "First positions that windowed heads still see.")
    window: int = option(64, "Last positions that windowed heads still see.")
    ranking: str = option(SHIPPED, "How heads are ranked; see the documentation for names.")
    compare: bool = option(False, "Compare all rankings.")
    alone: bool = option(False, "When rankings are compared, also window every key head alone, for rank correlations.")
    shares: tuple[float, ...] = option((0.25, 0.5, 0.75, 0.9), "Shares of key heads to window, for the curve.")
    draws: int = option(3, "Random choices of heads to compare with.")
    queries: int = option(16, "Queries of each calibration passage.")
    contexts: int = option(1, "Held-out contexts of each kind, binding and passkey.")
    questions: int = option(10, "Questions on each context.")
    tokens: int = option(1000, "Length of a held-out context.")
    prefill: str = option(
        "full", "full: contexts are read in full, windows begin with the question; or windowed: at prefill, too."
    )
    cache_tokens: int = option(4000, "Tokens to measure the cache with; 0 for none.")
    gates: int = option(0, "Steps of training gates as DuoAttention does, to compare with; 0 for none.")
    dtype: str = option("float32", "float32, float64 or bfloat16.")
    trust_remote_code: bool = option(False, "Let the model bring its own code. Read it first.")
    seed: int = option(0, "Seed of everything random.")

    def __post_init__(self) -> None:
        if not 0 <= self.keep <= 1:
            raise ValueError(f"keep must be from 0 to 1, not {self.keep}")
        if self.loss is not None and not self.loss >= 0:
            raise ValueError(f"loss must be at least 0 nats, not {self.loss}")
        if self.sinks < 0 or self.window < 1:
            raise ValueError(f"sinks must be at least 0 and window at least 1, not {self.sinks} and {self.window}")
        if self.prefill not in ("windowed", "full"):
            raise ValueError(f"prefill must be windowed or full, not {self.prefill!r}")
        if not self.shares or not all(0 < share <= 1 for share in self.shares):
            raise ValueError(f"shares must be above 0 and at most 1, not {self.shares}")
        for name, least in (("draws", 0), ("queries", 1), ("contexts", 1), ("questions", 2), ("cache_tokens", 0), ("gates", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if self.tokens < 2 * (self.sinks + self.window):
            raise ValueError(
                f"tokens must be at least {2 * (self.sinks + self.window)}, twice sinks and window, not {self.tokens}"
            )


STUDIES = (
    Study(
        "windows",
        heading="Heads that need the whole context",
        question="What do heads do?",
        title=here("tables:title"),
        help="Find the key heads that need the whole context; the others get a window in the KV cache.\n\n"
        "Heads are ranked on prose, the split is verified on held-out prose and retrieval prompts, and written as a pattern of "
        "DuoAttention, which kvpress loads. Give the same command again to resume.",
        examples=(
            "ropescope windows weights/smollm2-135m --keep 0.25 --out out/windows",
            "ropescope windows weights/smollm2-135m --loss 0.1 --sinks 16 --window 256",
            "ropescope windows weights/smollm2-135m --compare --alone --contexts 2",
        ),
        group="Your model",
        settings=Settings,
        run=here("run:run"),
        out=model_folder("windows"),
        headline=here("tables:headline"),
        figures=here("figures:figures"),
        tables=here("tables:tables"),
        dataset=here("tables:dataset"),
    ),
)
