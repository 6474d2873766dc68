"""Scores of all heads over the checkpoints of somebody's training: opened one after the other, nothing kept but scores.

Weights are recognised by their hash: the same ones are measured once, however many checkpoints hold them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..models.checkpoints import Checkpoint, at_hand, find_checkpoints, settings_hash, weights_hash
from ..models.door import Door
from ..models.load import Loaded, load_model
from ..runs import HistoryFolder, kept_arrays
from ..tasks.prompts import Prompt, asked_for, check_fits
from ..training.watcher import MEASURES
from .profile import Settings, measure

Row = dict[str, NDArray[Any]]

ABOUT = ("family", "layers", "heads", "parameters", "dtype")
"""What all checkpoints of a training have in common."""


@dataclass(frozen=True)
class Asked:
    """What to measure every checkpoint on: prompts as `ropescope profile` takes them, the temperature, the precision."""

    prompts: str = "binding"
    count: int = 8
    pairs: int = 12
    lengths: str = "equal"
    hops: int = 1
    blocks: str = "line"
    chat: bool | None = None
    tau: float = 1e-4
    dtype: str = "float32"
    trust_remote_code: bool = False
    seed: int = 0

    def opened(self, folder: Path) -> Loaded:
        """The model of one checkpoint."""
        return load_model(str(folder), self.dtype, self.trust_remote_code)

    def make_prompts(self, loaded: Loaded) -> tuple[list[Prompt], dict[str, Any]]:
        """Prompts for a model, and what they are."""
        names = ("count", "pairs", "lengths", "hops", "blocks", "chat", "seed")
        prompts, about = asked_for(loaded.tokenizer, self.prompts, **{name: getattr(self, name) for name in names})
        check_fits(prompts, loaded.context, loaded.vocabulary)
        return prompts, about


class Measured(NamedTuple):
    """One checkpoint: which it is, the hash of its weights, its scores, and whether they were there before."""

    checkpoint: Checkpoint
    weights: str
    row: Row
    known: bool


def sweep(source: str, revisions: Sequence[str], asked: Asked, folder: Path) -> Iterator[Measured]:
    """Measure the checkpoints of `source` one by one into `folder`, a history as watching one writes; safe to run again.

    Checkpoints may be added between two runs. What comes out is in `history.safetensors`, and in `summary.json` the hashes of
    weights and which checkpoints hold the same.
    """
    kept: HistoryFolder | None = None
    found: list[Measured] = []
    for checkpoint in find_checkpoints(source, revisions):
        with at_hand(checkpoint) as here:
            if kept is None:
                prompts, config = _made_of(source, asked, here)
                kept = HistoryFolder(folder, config)
                kept.drop_after(-1)
            digest = weights_hash(here)
            path = folder / "checkpoints" / f"{digest[:32]}-{settings_hash(here)[:16]}.safetensors"
            known = path.exists()
            row = kept_arrays(path, partial(scores, asked, here, prompts))
        if row["positional"].shape != (shape := (found[0].row if found else row)["positional"].shape):
            raise ValueError(f"{checkpoint.name} has heads of shape {row['positional'].shape}, the first checkpoint {shape}")
        found.append(Measured(checkpoint, digest, row, known))
        kept.add(checkpoint.step, row)
        yield found[-1]
    if kept is not None:
        kept.finish(results(found))


def _made_of(source: str, asked: Asked, first: Path) -> tuple[list[Prompt], dict[str, Any]]:
    """The prompts for all checkpoints, and what a history of them is of.

    Not of the first one's weights: the same folder takes up checkpoints that are kept later.
    """
    loaded = asked.opened(first)
    prompts, about = asked.make_prompts(loaded)
    model = {"name": Path(source).name} | {key: loaded.about[key] for key in ABOUT}
    return prompts, {"command": "sweep", "model": model, "prompts": about, "tau": asked.tau}


def scores(asked: Asked, folder: Path, prompts: Sequence[Prompt]) -> Row:
    """The measures that a watcher keeps, of one checkpoint, means over prompts: (layer, head) each."""
    door = Door(asked.opened(folder).model)
    settings = Settings(asked.tau, planes=False, sensitivity=False)
    rows = [measure(door, prompt, settings) for prompt in prompts]
    return {name: np.mean([row[name] for row in rows], 0).astype(np.float32) for name in MEASURES}


def results(found: Sequence[Measured]) -> dict[str, Any]:
    """For the summary: hashes of weights by checkpoint, and which checkpoints hold the same ones."""
    return {
        "checkpoints": {one.checkpoint.name: {"step": one.checkpoint.step, "weights": one.weights} for one in found},
        "same_weights": list(same_weights({one.checkpoint.name: one.weights for one in found})),
    }


def same_weights(hashes: Mapping[str, str]) -> Iterator[list[str]]:
    """Names of checkpoints that hold the same weights, of all that are not alone."""
    by_hash: dict[str, list[str]] = defaultdict(list)
    for name, digest in hashes.items():
        by_hash[digest].append(name)
    yield from (names for names in by_hash.values() if len(names) > 1)
