"""Sweeps over angles: one-head models trained at every angle, one sweep of one seed at a time.

A sweep of one seed is a unit of work. Finished units are stored in the run folder, so that a run can be resumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from ...logits import layer_logits
from ...measures.scores import swap_scores
from ...models.built import heads_of
from ...tasks.canonical import CanonicalTask, IndexTask, PartialInductionTask, RetrievalTask
from ...training.stacked import Stacked, Training, train
from ..study import Work
from . import Settings

ONE, TWO, FEW = "partial induction", "partial induction, with a still plane", "partial induction, few symbols"
SWEEPS = ("index", "retrieval", ONE, TWO, FEW)
Arrays = dict[str, NDArray[Any]]


def check(settings: Settings) -> None:
    """Raise a ValueError if some task or the training cannot have these sizes."""
    for sweep in SWEEPS:
        task_of(settings, sweep)
    training_of(settings)


def task_of(settings: Settings, sweep: str) -> CanonicalTask:
    """The task of a sweep."""
    if sweep == "index":
        return IndexTask(items=settings.items, symbols=settings.letters)
    if sweep == "retrieval":
        return RetrievalTask(items=settings.items, symbols=settings.symbols, attributes=settings.attributes)
    symbols = settings.few if sweep == FEW else settings.repeated
    return PartialInductionTask(items=settings.items, symbols=symbols, attributes=settings.attributes)


def training_of(settings: Settings) -> Training:
    """How every model is trained."""
    return Training(steps=settings.steps, rate=0.03, spread=0.1)


def all_angles(settings: Settings) -> list[float]:
    """0 and the other angles, from slow to fast."""
    return [0.0, *np.geomspace(settings.slowest, settings.fastest, settings.angles).tolist()]


def planes_of(settings: Settings, sweep: str) -> list[list[float]]:
    """The angles of every model of a sweep."""
    return [[0.0, angle] if sweep == TWO else [angle] for angle in all_angles(settings)]


def config_of(settings: Settings) -> dict[str, Any]:
    """All that determines the results, as the summary has it."""
    sizes = asdict(settings)
    seed, _ = sizes.pop("seed"), sizes.pop("steps")
    return {"seed": seed, **sizes, "training": asdict(training_of(settings))}


class Unit(NamedTuple):
    """One sweep of one seed: all angles at once."""

    sweep: str
    seed: int


def units(settings: Settings) -> list[Unit]:
    """All units of a run; seeds are the given one and those after it."""
    return [Unit(sweep, settings.seed + n) for n in range(settings.seeds) for sweep in SWEEPS]


def run_unit(settings: Settings, unit: Unit) -> Arrays:
    """Histories, final accuracies and scores of the models of a unit."""
    task = task_of(settings, unit.sweep)
    models, seen = train(task, planes_of(settings, unit.sweep), training_of(settings), unit.seed)
    inputs = task.sample(settings.scored, np.random.SeedSequence(unit.seed).spawn(4)[3])
    arrays: Arrays = {"steps": seen.steps, "accuracy": seen.accuracy, "place": seen.place, "weight": seen.weight}
    if unit.sweep == "index":
        arrays |= {"queries": seen.queries[:, :, task.item_tokens :], "keys": seen.keys[:, :, : task.item_tokens]}
    whole, planes = _scores(models, inputs.tokens)
    return arrays | {"scores": whole, "plane_scores": planes}


@torch.inference_mode()
def _scores(
    models: Stacked, tokens: Int64[np.ndarray, "B T"]
) -> tuple[Float64[np.ndarray, "M 2"], Float64[np.ndarray, "M F 2"]]:
    """Positional and symbolic score of every model, means over inputs; and of each of its planes alone."""
    whole: list[NDArray[Any]] = []
    planes: list[NDArray[Any]] = []
    for model in range(len(models.planes)):
        heads = heads_of(models.one(model), tokens)
        for rows, M in ((whole, layer_logits(heads)[:, 0]), (planes, layer_logits(heads, by_plane=True)[:, :, 0])):
            score = swap_scores(M)
            rows.append(np.stack([score.positional.mean(-1).numpy(), score.symbolic.mean(-1).numpy()], -1))
    return np.stack(whole), np.stack(planes)


def trained_units(settings: Settings, work: Work) -> Iterator[tuple[Unit, Arrays]]:
    """Every unit and its arrays, read from the run folder where they are stored already."""
    work.resumed(config_of(settings), __name__, "run of canonical", "a run with other settings")
    asked = units(settings)
    names = [f"units/{SWEEPS.index(unit.sweep)}-{unit.seed}" for unit in asked]
    yield from zip(asked, work.units(names, run_unit, settings, asked, "sweeps"), strict=True)


def stack(found: Iterable[tuple[Unit, Arrays]]) -> dict[str, Arrays]:
    """Arrays of every sweep with the seed as leading axis."""
    rows = list(found)
    return {
        sweep: {
            name: np.stack([arrays[name] for unit, arrays in rows if unit.sweep == sweep])
            for name in next(arrays for unit, arrays in rows if unit.sweep == sweep)
        }
        for sweep in SWEEPS
    }
