"""Several heads in a layer: whether they are pure, whether kinds mix, and whether they share work (a question of paper B)."""

from __future__ import annotations

from dataclasses import dataclass

from ..study import Study, later, option

here = later(__name__)
FAMILIES = ("gptj", "llama")
"""Models that can be trained: our GPT-J, and the Llama of `transformers`."""


@dataclass(frozen=True)
class Settings:
    """How models are trained, and which. Every number of heads is trained in every family, with the same width of a layer."""

    seeds: int = option(2, "Seeds of every model: the given one and those after it.")
    heads: tuple[int, ...] = option((1, 4), "Heads in each layer; a layer has the same width whatever their number.")
    families: tuple[str, ...] = option(FAMILIES, "Kinds of models: gptj (ours) and llama (of transformers).")
    hops: int = option(4, "Hops of the longest path.")
    steps: int = option(1_500, "Training steps.")
    layers: int = option(6, "Layers.")
    width: int = option(128, "Width of the residual stream.")
    inputs: int = option(1_000, "Test sequences, from which heads are removed.")
    probe: int = option(256, "Sequences on which heads are scored.")
    seed: int = option(0, "Seed of everything random.")

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, not {self.seeds}")
        if not self.heads or min(self.heads) < 1:
            raise ValueError(f"heads must be numbers from 1 on, not {', '.join(map(str, self.heads)) or 'empty'}")
        if not self.families or not {*self.families} <= {*FAMILIES}:
            raise ValueError(f"families must be of {', '.join(FAMILIES)}, not {', '.join(self.families) or 'empty'}")
        if min(self.inputs, self.probe) < self.hops:
            told = f"not {self.inputs} and {self.probe}"
            raise ValueError(f"inputs and probe must be at least {self.hops}, one for each hop count, {told}")
        here("recipes:check")(self)


PRESETS = {
    "full": {},
    "quick": {
        "seeds": 1, "heads": (4,), "families": ("gptj",), "hops": 1, "steps": 300, "layers": 3, "width": 64, "inputs": 200,
        "probe": 64,
    },
}  # fmt: skip

STUDIES = (
    Study(
        "head-groups",
        heading="Several heads in a layer",
        question="What do heads do?",
        title=here("tables:title"),
        help="Train small models with one and several heads in a layer: are these pure, and do they share work?\n\n"
        "Give the same command again to resume, or with more seeds, heads and families to add to the run.",
        examples=(
            "ropescope head-groups --preset quick --out out/head-groups",
            "ropescope head-groups --heads 1,2,4,8 --families gptj --out out/head-groups",
        ),
        group="The papers",
        settings=Settings,
        run=here("run:run"),
        presets=PRESETS,
        engine=True,
        headline=here("tables:headline"),
        figures=here("figures:figures"),
        tables=here("tables:tables"),
        dataset=here("tables:dataset"),
    ),
)
