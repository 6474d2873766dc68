"""Learning dynamics: when heads become pure, when each hop count is learned, and whether the two go together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from ..measures.purity import POSITIONAL, SYMBOLIC, purity, purity_steps
from ..runs import Trajectory

LEARNED = 0.99


def dynamics(run: Trajectory, gammas: tuple[float, ...] = (0.1, 0.05)) -> dict[str, Any]:
    """What a run's history says, as plain numbers; None where something never happened.

    The rank correlation is over watched steps between mean accuracy and mean purity |positional - symbolic|. Neighbouring steps
    resemble each other, so its p-value overstates how sure one can be.
    """
    accuracy = run.accuracy.mean(-1)
    positional, symbolic = run.measures["positional"], run.measures["symbolic"]
    degree = np.abs(positional - symbolic).mean((1, 2))
    correlation = None
    if np.ptp(degree) > 0 and np.ptp(accuracy) > 0:
        found = spearmanr(degree, accuracy)
        correlation = {"spearman": float(found.statistic), "p_value": float(found.pvalue)}
    result: dict[str, Any] = {
        "task": run.task,
        "seed": run.seed,
        "last_step": int(run.steps[-1]),
        "step_of_best_accuracy": int(run.steps[accuracy.argmax()]),
        "best_accuracy": float(accuracy.max()),
        "learned_at": [_first(run.steps, hop >= LEARNED) for hop in run.accuracy.T],
        "purity_and_accuracy": correlation,
        "purity": {},
    }
    for gamma in gammas:
        last = purity(positional[-1], symbolic[-1], gamma).ravel()
        at = purity_steps(positional, symbolic, run.steps, gamma)
        result["purity"][str(gamma)] = {
            "final_positional": np.flatnonzero(last == POSITIONAL).tolist(),
            "final_symbolic": np.flatnonzero(last == SYMBOLIC).tolist(),
            **{name: [None if np.isnan(x) else int(x) for x in value.ravel()] for name, value in at._asdict().items()},
        }
    return result


def _first(steps: NDArray[np.int64], when: NDArray[np.bool_]) -> int | None:
    return int(steps[when.argmax()]) if when.any() else None
