"""Chat models on the number and letter tasks (paper B, section 3.7), asked through Inspect AI."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...console import name_of
from ..study import Study, later, option

if TYPE_CHECKING:
    from .grid import Grid

here = later(__name__)

EFFORTS = ("none", "minimal", "low", "medium", "high")
LOCAL = "local/"
"""How the names of models begin that are loaded here, instead of asked behind a server."""


@dataclass(frozen=True)
class Settings:
    """Which model to ask, what, and how."""

    model: str = option(..., "PROVIDER/NAME as in Inspect AI, or local/ and a hub id, folder or GGUF file.")
    base_url: str | None = option(None, "Another server with the provider's API.")
    tasks: tuple[str, ...] = option(("number", "letter"), "Task, number or letter; repeat it for both.", repeat=True)
    lengths: tuple[int, ...] = option((12, 16, 24, 32, 48, 64, 80, 100, 150, 200, 300), "Sizes of the target window.")
    runs: int = option(5, "Runs; the number of a run is its seed.")
    samples: int = option(20, "Questions per task, length and run.")
    hops: int = option(1, "Hops from the last token to the answer.")
    max_tokens: int = option(8, "Longest answer.")
    yes: bool = option(False, "Send the questions. Without it nothing is sent to a server.")
    anyway: bool = option(False, "Ask a model that fails the screening all questions, too.")
    price_in: float | None = option(None, "Price of a million input tokens, for the estimate.")
    price_out: float | None = option(None, "Price of a million output tokens.")
    concurrency: int = option(8, "Requests under way at any time.")
    retries: int = option(6, "How often a request is sent again, after growing pauses.")
    timeout: int = option(60, "Seconds after which a request is sent again.")
    reasoning: str | None = option(None, f"Effort of models that reason: {', '.join(EFFORTS)}.  [default: not sent]")
    profile: Path | None = option(None, "Run folder of ropescope profile of the same model.")
    beside: tuple[Path, ...] = option((), "Run folder of ropescope llm of another model, with its profile.", repeat=True)
    seed: int = option(1, "Number of the first run.")

    def __post_init__(self) -> None:
        for name, least in (("concurrency", 1), ("retries", 0), ("timeout", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if self.reasoning not in (None, *EFFORTS):
            raise ValueError(f"reasoning must be one of {', '.join(EFFORTS)}, not {self.reasoning!r}")
        if not self.model.partition("/")[2]:
            raise ValueError(f"model must be PROVIDER/NAME, as in openai/gpt-5.4 or local/PATH, not {self.model!r}")
        if self.is_local and self.base_url is not None:
            raise ValueError("base_url is for servers: a local model has none")
        prices = [price for price in (self.price_in, self.price_out) if price is not None]
        if len(prices) == 1:
            raise ValueError("price_in and price_out belong together: give both or none")
        if not all(0 <= price < float("inf") for price in prices):
            raise ValueError("price_in and price_out must be prices of a million tokens, at least 0")
        if self.beside and self.profile is None:
            raise ValueError("beside compares models by their heads, too: give this one's profile")
        _ = self.grid  # checks itself

    @property
    def is_local(self) -> bool:
        """Whether the model is loaded here."""
        return self.model.startswith(LOCAL)

    @property
    def grid(self) -> Grid:
        """The questions."""
        from .grid import Grid  # noqa: PLC0415

        return Grid(self.tasks, self.lengths, self.runs, self.samples, self.hops, self.max_tokens, self.seed)


def _folder(settings: Settings) -> Path:
    name = settings.model.removeprefix(LOCAL)
    if settings.is_local and Path(name).exists():
        name = name_of(Path(name))
    return Path("out") / f"llm-{name.replace('/', '-').replace(':', '-')}"


STUDIES = (
    Study(
        "llm",
        heading="Chat models",
        question="Do chat models show it?",
        title=here("story:title"),
        help=(
            "Accuracy of a chat model on the number and letter tasks over length, beside paper B's. Run it again to resume.\n\n"
            "Keys are read from the environment (OPENAI_API_KEY, ANTHROPIC_API_KEY, ...) and never stored. "
            "It needs Inspect AI: pip install 'ropescope[llm]'."
        ),
        examples=("ropescope llm --model openai/gpt-5.4 --samples 20 --out out/gpt-5.4 --yes",),
        group="Your model",
        settings=Settings,
        run=here("run:run"),
        out=_folder,
        headline=here("tables:headline"),
        figures=here("figures:figures"),
        tables=here("tables:tables"),
        dataset=here("tables:dataset"),
        failed=here("tables:failed"),
    ),
)
