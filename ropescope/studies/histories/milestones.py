"""Learning dynamics: when heads become pure, when each hop count is learned, and whether the two go together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from ...measures.purity import POSITIONAL, SYMBOLIC, head_kinds, purity, purity_steps
from ...runs import Trajectory

LEARNED = 0.99


def milestones(run: Trajectory, gammas: tuple[float, ...] = (0.1, 0.05)) -> dict[str, Any]:
    """When hop counts were learned and heads became pure, as plain numbers; None where that never happened or is not known.

    Heads are counted layer by layer; where layers have several, or not all were measured, `heads` names them. Steps at which
    measuring failed are left out and listed in `failed_looks`. The rank correlation is over measured steps, between mean
    accuracy and mean purity |positional - symbolic|. It has no p-value: successive looks of one run are no independent
    observations, and two curves that have nothing to do with each other often rise together.
    """
    seen = run.looks()
    if not len(seen.steps):
        raise ValueError(f"{run.name} holds no scores: its {len(run.steps)} rows are all NaN")
    accuracy = None if seen.accuracy is None else seen.accuracy.mean(-1)
    positional, symbolic = seen.measures["positional"], seen.measures["symbolic"]
    best = None if accuracy is None or np.isnan(accuracy).all() else int(np.nanargmax(accuracy))
    result: dict[str, Any] = {
        "task": run.task or None,
        "seed": run.seed,
        "last_step": int(seen.steps[-1]),
        "step_of_best_accuracy": None if best is None else int(seen.steps[best]),
        "best_accuracy": None if accuracy is None or best is None else float(accuracy[best]),
        "learned_at": [] if seen.accuracy is None else [_first(seen.steps, hop >= LEARNED) for hop in seen.accuracy.T],
        "purity_and_accuracy": None if accuracy is None else _together(mean_purity(seen), accuracy),
        "purity": {},
    }
    if not seen.one_each or seen.layers.tolist() != list(range(len(seen.layers))):
        result["heads"] = seen.head_names()
    if len(seen.steps) < len(run.steps):
        result["failed_looks"] = sorted(set(run.steps.tolist()) - set(seen.steps.tolist()))
    if run.command != "train":
        result |= {
            "command": run.command,
            "looks": len(seen.steps),
            "kinds": {at: _kinds(seen, at) for at in ("first", "last")},
        }
        if seen.loss is not None and np.isfinite(seen.loss).any():
            known = seen.loss[np.isfinite(seen.loss)]
            result["loss"] = {"first": float(known[0]), "last": float(known[-1])}
    for gamma in gammas:
        last = purity(positional[-1], symbolic[-1], gamma).ravel()
        at = purity_steps(positional, symbolic, seen.steps, gamma)
        result["purity"][str(gamma)] = {
            "final_positional": np.flatnonzero(last == POSITIONAL).tolist(),
            "final_symbolic": np.flatnonzero(last == SYMBOLIC).tolist(),
            **{name: [None if np.isnan(x) else int(x) for x in value.ravel()] for name, value in at._asdict().items()},
        }
    return result


def check_layers(run: Trajectory, layers: Sequence[int]) -> None:
    """Raise ValueError if one of the layers was not measured."""
    known = run.layers.tolist()
    for layer in layers:
        if layer not in known:
            raise ValueError(f"layer {layer} is not one of the layers of {run.name}: {', '.join(map(str, known))}")


def mean_purity(run: Trajectory) -> NDArray[np.float32]:
    """Mean |positional - symbolic| over the heads that have scores, at each step."""
    degree = np.abs(run.measures["positional"] - run.measures["symbolic"])
    mean: NDArray[np.float32] = degree.mean((1, 2)) if np.isfinite(degree).all() else np.nanmean(degree, (1, 2))
    return mean


def heads_of(result: Mapping[str, Any]) -> list[str]:
    """The names of the heads that `milestones` counts: where layers have one head each, those of the layers."""
    named: list[str] | None = result.get("heads")
    return named or [f"L{n}" for n in range(len(result["purity"]["0.1"].get("since_positional", ())))]


def _together(degree: NDArray[np.float32], accuracy: NDArray[np.float32]) -> dict[str, float] | None:
    known = np.isfinite(accuracy)
    if known.sum() < 3 or np.ptp(degree[known]) <= 0 or np.ptp(accuracy[known]) <= 0:
        return None
    return {"spearman": float(spearmanr(degree[known], accuracy[known]).statistic)}


def _kinds(run: Trajectory, at: str) -> dict[str, int]:
    """How many heads are positional, symbolic and neither, by the same margin as in a profile."""
    row = {"first": 0, "last": -1}[at]
    kinds = head_kinds(*(run.measures[score][row].astype(np.float64) for score in ("positional", "symbolic"))).ravel().tolist()
    return {kind: kinds.count(kind) for kind in ("positional", "symbolic", "mixed")}


def _first(steps: NDArray[np.int64], when: NDArray[np.bool_]) -> int | None:
    return int(steps[when.argmax()]) if when.any() else None
