"""Training runs at paper B's size with their histories and milestones, as claims and figures of the papers read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ...runs import Run, Trajectory, read_trajectory
from ..by_recipe import is_released
from ..claims import NotRunError, Runs
from ..histories.milestones import milestones

GAMMA = "0.1"
"""Heads are pure up to this."""
NEAR = 0.2
"""Steps of training are as in the paper within this share of them: it gives them in round numbers, read off curves."""
SEEDS = "In every seed: reproduced; in some: partly."
BESIDE = ("loss",)
"""Entries of a history that no rule reads: loss is not known at step 0."""
SETTING = {
    "samples": [432_000, 2_400, 45_600],
    "layers": 12,
    "heads": 1,
    "width": 128,
    "mlp_width": 512,
    "dropout": 0.1,
    "batch": 64,
    "steps": 6_750,
    "warm_up": 750,
    "weight_decay": 1e-4,
}
"""Paper B's data, model and schedule, as far as it or its released code gives them."""


@dataclass(frozen=True)
class Trained:
    """A training run with its history and milestones."""

    run: Run
    history: Trajectory
    milestones: dict[str, Any]

    @property
    def seed(self) -> int:
        """Of the run."""
        return int(self.run.config["seed"])


_known: WeakKeyDictionary[Runs, list[Trained]] = WeakKeyDictionary()
"""Histories take a moment to read, and many rules need them."""


def trained(runs: Runs, task: str) -> list[Trained]:
    """Training runs of a task at paper B's size: 12 layers of one head, four hop counts; by the released recipe, if any are."""
    if runs not in _known:
        read = [(run, read_trajectory(run.folder).looks()) for run in runs.of("train")]
        _known[runs] = [Trained(run, history, milestones(history)) for run, history in read]
    of_task = [one for one in _known[runs] if one.history.task == task]
    if not of_task:
        raise NotRunError(f"no finished training run of the {task} task among those given")
    full = [
        one
        for one in of_task
        if len(one.milestones["learned_at"]) == 4 and one.history.measures["positional"].shape[1:] == (12, 1)
    ]
    if not full:
        raise NotRunError(f"training runs of the {task} task are smaller than paper B's (12 layers, 4 hop counts)")
    for one in full:
        gaps = [name for name, values in one.history.measures.items() if not np.isfinite(values).all() and name not in BESIDE]
        if gaps:
            raise NotRunError(f"{one.run.name} holds steps without {', '.join(gaps)}")
    as_released = [one for one in full if is_released(one.run)]
    return sorted(as_released or full, key=lambda one: one.seed)


def by_seed(runs: Sequence[Trained], describe: Callable[[Trained], str]) -> str:
    """The description of each seed, given once if all are the same."""
    told = [describe(run) for run in runs]
    seeds = "every seed" if len(runs) > 1 else f"seed {runs[0].seed}"
    if len(set(told)) == 1:
        return f"{told[0]} in {seeds}"
    return "; ".join(f"seed {run.seed}: {text}" for run, text in zip(runs, told, strict=True))


def near(steps: Iterable[int | None], paper: int) -> bool:
    """Whether all steps are known and close to the paper's."""
    return all(step is not None and abs(step - paper) <= NEAR * paper for step in steps)


def pure_heads(run: Trained, key: str) -> list[Any]:
    """An entry of the milestones of purity, with one value per head or the numbers of some heads."""
    found: list[Any] = run.milestones["purity"][GAMMA][key]
    return found


def parameter_count(config: Mapping[str, Any], vocabulary: int) -> int:
    """The number of parameters of a GPT-J.

    A layer has four square matrices, two matrices of the MLP with biases, and a norm; then there are the embedding, the last
    norm and the read-out with its bias.
    """
    width, inner = config["width"], config["mlp_width"]
    layer = 4 * width**2 + 2 * width * inner + inner + width + 2 * width
    return int(config["layers"] * layer + 2 * vocabulary * width + vocabulary + 2 * width)
