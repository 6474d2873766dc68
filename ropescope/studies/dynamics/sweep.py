"""Scores of all heads over the checkpoints of a training: each is loaded, measured and closed again.

Weights are recognised by their hash: the same ones are measured once, however many folders hold them.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...models.adapter import Adapter
from ...models.checkpoints import Checkpoint, at_hand, find_checkpoints, hub_commit, settings_hash, weights_hash
from ...models.load import Loaded, load_model
from ...runs import HERE, Engine, HistoryFolder, cached_units
from ...tasks.choose import choose_prompts
from ...tasks.prompts import Prompt, check_fits
from ...training.measuring import watched
from ..head_scores import Scoring, measure

Row = dict[str, NDArray[Any]]

ABOUT = ("family", "layers", "heads", "parameters", "dtype")
"""What all checkpoints of a training have in common."""


@dataclass(frozen=True)
class Asked:
    """What to measure every checkpoint on: prompts as in `ropescope profile`, the temperature, the precision."""

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

    def load(self, folder: Path) -> Loaded:
        """The model of one checkpoint."""
        return load_model(str(folder), self.dtype, self.trust_remote_code)

    def make_prompts(self, loaded: Loaded) -> tuple[list[Prompt], dict[str, Any]]:
        """Prompts for a model, and their description."""
        names = ("count", "pairs", "lengths", "hops", "blocks", "chat", "seed")
        prompts, about = choose_prompts(loaded.tokenizer, self.prompts, **{name: getattr(self, name) for name in names})
        check_fits(prompts, loaded.context, loaded.vocabulary)
        return prompts, about


class Unit(NamedTuple):
    """A checkpoint to measure, and the hash its weights must have, where it is known."""

    checkpoint: Checkpoint
    weights: str | None


class Measured(NamedTuple):
    """One checkpoint: which it is, the hash of its weights, and its scores."""

    checkpoint: Checkpoint
    weights: str
    row: Row


def sweep(source: str, revisions: Sequence[str], asked: Asked, folder: Path, engine: Engine = HERE) -> Iterator[Measured]:
    """The checkpoints of `source` with their scores, which go to `folder` as a history like that of a watcher.

    Safe to run again; checkpoints may be added between two runs. `history.safetensors` holds the scores, and `summary.json` the
    hashes of weights and which checkpoints hold the same.
    """
    checkpoints = find_checkpoints(source, revisions)
    with at_hand(checkpoints[0]) as first:
        prompts, config = _made_of(source, asked, first)
    history = HistoryFolder(folder, config, __name__)
    history.drop_after(-1)
    units: dict[Path, Unit] = {}  # by the file for their scores: the same weights have one
    files = []
    for checkpoint in checkpoints:
        name, weights = _known_by(checkpoint)
        files.append(folder / "checkpoints" / f"{name}.safetensors")
        units.setdefault(files[-1], Unit(checkpoint, weights))
    coming = zip(units, cached_units(list(units), measure_unit, (asked, prompts), list(units.values()), engine), strict=True)
    found: list[Measured] = []
    rows: dict[Path, Row] = {}
    for checkpoint, file in zip(checkpoints, files, strict=True):
        while file not in rows:
            came, row = next(coming)
            rows[came] = row
        measured = Measured(checkpoint, rows[file]["weights"].tobytes().hex(), {name: rows[file][name] for name in watched()})
        found.append(measured)
        shape, its = (one.row["positional"].shape for one in (found[0], measured))
        if its != shape:
            raise ValueError(
                f"{checkpoint.name} has heads of shape {its}, the first checkpoint {shape}: sweep one model at a time"
            )
        history.add(checkpoint.step, measured.row)
        yield measured
    history.finish(results(found))


def _known_by(checkpoint: Checkpoint) -> tuple[str, str | None]:
    """The name of its scores' file, and the hash of its weights, which for a revision is not known before the download."""
    if checkpoint.revision is not None:
        commit = hub_commit(checkpoint.source, checkpoint.revision)
        return hashlib.sha256(f"{checkpoint.source}@{commit}".encode()).hexdigest()[:48], None
    weights, settings = weights_hash(Path(checkpoint.source)), settings_hash(Path(checkpoint.source))
    return f"{weights[:32]}-{settings[:16]}", weights


def _made_of(source: str, asked: Asked, first: Path) -> tuple[list[Prompt], dict[str, Any]]:
    """The prompts for all checkpoints, and the settings of the history.

    These do not include the first checkpoint's weights, as checkpoints can be added later.
    """
    loaded = asked.load(first)
    prompts, about = asked.make_prompts(loaded)
    model = {"name": Path(source).name} | {key: loaded.about[key] for key in ABOUT}
    return prompts, {"command": "sweep", "model": model, "prompts": about, "tau": asked.tau}


def measure_unit(shared: tuple[Asked, list[Prompt]], unit: Unit) -> Row:
    """The measures of a watcher, means over prompts, (layer, head) each; and the hash of the weights as bytes."""
    asked, prompts = shared
    with at_hand(unit.checkpoint) as folder:
        weights = weights_hash(folder)
        if unit.weights not in (None, weights):
            raise ValueError(
                f"{unit.checkpoint.name} holds other weights in another place: all machines must see the same folder"
            )
        adapter = Adapter(asked.load(folder).model)
        scoring = Scoring(asked.tau, planes=False, sensitivity=False)
        rows = [measure(adapter, prompt, scoring) for prompt in prompts]
    means: Row = {name: np.mean([row[name] for row in rows], 0).astype(np.float32) for name in watched()}
    return means | {"weights": np.frombuffer(bytes.fromhex(weights), dtype=np.uint8)}


def results(found: Sequence[Measured]) -> dict[str, Any]:
    """Hashes of weights by checkpoint, and which checkpoints hold the same weights, for the summary."""
    return {
        "checkpoints": {one.checkpoint.name: {"step": one.checkpoint.step, "weights": one.weights} for one in found},
        "same_weights": list(same_weights({one.checkpoint.name: one.weights for one in found})),
    }


def same_weights(hashes: Mapping[str, str]) -> Iterator[list[str]]:
    """Groups of checkpoints that hold the same weights, by name."""
    by_hash: dict[str, list[str]] = defaultdict(list)
    for name, digest in hashes.items():
        by_hash[digest].append(name)
    yield from (names for names in by_hash.values() if len(names) > 1)
