"""Profile of a language model: what every head does on a set of prompts (paper A, section 4)."""

from __future__ import annotations

from dataclasses import dataclass

from ..study import Study, later, model_folder, option

here = later(__name__)


@dataclass(frozen=True)
class Settings:
    """Which model, on which prompts, and what to measure."""

    model: str = option(..., "Hub id, folder of a transformers model, or GGUF file.", argument=True)
    prompts: str = option("binding", "binding, number, letter, prose, a text file, a folder of them, or token ids in JSON.")
    count: int = option(50, "How many prompts; a file has as many as it has.")
    queries: int | None = option(
        None, "Score so many positions of each text.  [default: 32 of prose and folders, else the last]"
    )
    pairs: int = option(24, "Sentences of a binding prompt.")
    lengths: str = option("equal", "Sentences of a binding prompt in tokens: equal or unequal.")
    hops: int = option(1, "Hops of number and letter prompts.")
    blocks: str | None = option(
        None, "What moves in a text: token, line, sentence, or a separator.  [default: token of prose and folders, else line]"
    )
    longest: int | None = option(None, "Cut texts to so many tokens.")
    move_first: bool = option(False, "Move the first token of a text, too, on which heads rest.")
    chat: bool | None = option(None, "Use the chat template.  [default: if there is one]")
    planes: bool | None = option(
        None, "Score every RoPE plane alone, too.  [default: yes, but not where 256 or more single tokens move]"
    )
    sensitivity: bool = option(True, "Try other temperatures, permutations and single tokens, too.")
    tau: float = option(1e-4, "Temperature of the weighting of swaps.")
    tolerance: float = option(1e-3, "Error that scores of long prompts and of planes may have; 0 computes them exactly.")
    device: str = option("auto", "auto (a CUDA device if there is one, else the CPU), cpu, cuda, cuda:1, mps, ...")
    dtype: str = option("auto", "auto (as stored; GGUF files in float32), float32, float64, bfloat16 or float16.")
    revision: str | None = option(None, "Branch, tag or commit of a hub id.")
    batch: int | None = option(None, "Prompts in one forward pass.  [default: 1; with memory, as many as fit]")
    memory: str | None = option(None, "For models larger than memory, such as 8GB: layers are read from disk as they run.")
    trust_remote_code: bool = option(False, "Let the model bring its own code. Read it first.")
    seed: int = option(0, "Seed of everything random.")

    def __post_init__(self) -> None:
        if self.batch is not None and self.batch < 1:
            raise ValueError(f"batch must be at least 1, not {self.batch}")


STUDIES = (
    Study(
        "profile",
        heading="Language models",
        help="Score every head of a language model on a set of prompts. An interrupted run can be resumed.",
        examples=(
            "ropescope profile HuggingFaceTB/SmolLM2-135M-Instruct --count 50 --out out/smollm2",
            "ropescope profile weights/smollm2-135m --dtype bfloat16 --batch 8 --memory 2GB --out out/small",
            "ropescope profile weights/smollm2-135m --prompts prose --queries 32 --out out/prose",
            "ropescope profile weights/smollm2-135m --engine ray --address head:6379 --out out/smollm2",
        ),
        group="Your model",
        settings=Settings,
        run=here("run:run"),
        engine=True,
        out=model_folder("profile"),
        headline=here("tables:headline"),
        figures=here("figures:figures"),
        tables=here("tables:tables"),
        dataset=here("tables:dataset"),
        heads=here("tables:heads"),
        question="What do heads do?",
        title=here("model_page:title"),
        lead=here("model_page:lead"),
        tail=here("model_page:tail"),
        overview=here("atlas:overview"),
        page=lambda run: [run.folder],
    ),
)
