"""Learning dynamics: when heads become pure, when each hop count is learned, and whether the two go together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from ..measures.purity import POSITIONAL, SYMBOLIC, head_kinds, purity, purity_steps
from ..runs import Trajectory

LEARNED = 0.99


def dynamics(run: Trajectory, gammas: tuple[float, ...] = (0.1, 0.05)) -> dict[str, Any]:
    """What a run's history says, as plain numbers; None where something never happened or is not known.

    Heads are counted layer by layer; where layers have several, or not all were looked at, `heads` names them. Steps at which
    looking failed are left out, and named in `failed_looks`. The rank correlation is over watched steps between mean accuracy
    and mean purity |positional - symbolic|. Neighbouring steps resemble each other, so its p-value overstates how sure one can
    be.
    """
    seen = run.looks()
    if not len(seen.steps):
        raise ValueError(f"{run.name} holds no look at heads that gave scores: its {len(run.steps)} rows are all NaN")
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
    result["claims"] = claims(result)
    return result


def mean_purity(run: Trajectory) -> NDArray[np.float32]:
    """Mean |positional - symbolic| over the heads that have scores, at each step."""
    degree = np.abs(run.measures["positional"] - run.measures["symbolic"])
    mean: NDArray[np.float32] = degree.mean((1, 2)) if np.isfinite(degree).all() else np.nanmean(degree, (1, 2))
    return mean


def heads_of(result: Mapping[str, Any]) -> list[str]:
    """The names of the heads that a result of `dynamics` counts: of single heads, that of their layer."""
    named: list[str] | None = result.get("heads")
    return named or [f"L{n}" for n in range(len(result["purity"]["0.1"]["since_positional"]))]


def _together(degree: NDArray[np.float32], accuracy: NDArray[np.float32]) -> dict[str, float] | None:
    known = np.isfinite(accuracy)
    if known.sum() < 3 or np.ptp(degree[known]) <= 0 or np.ptp(accuracy[known]) <= 0:
        return None
    found = spearmanr(degree[known], accuracy[known])
    return {"spearman": float(found.statistic), "p_value": float(found.pvalue)}


def _kinds(run: Trajectory, at: str) -> dict[str, int]:
    """How many heads lean to places, to things and to neither, by the same margin as in a profile."""
    row = {"first": 0, "last": -1}[at]
    kinds = head_kinds(*(run.measures[score][row].astype(np.float64) for score in ("positional", "symbolic"))).ravel().tolist()
    return {kind: kinds.count(kind) for kind in ("positional", "symbolic", "mixed")}


def claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    """What paper B says of such a run at its size (12 layers of one head, 4 hop counts), its values and ours; empty at
    other sizes.

    Paper B gives steps in round numbers, read off its curves.
    """
    pure, learned = result["purity"]["0.1"], result["learned_at"]
    at_size = len(pure["since_positional"]) == 12 and len(learned) == 4 and "heads" not in result
    if not at_size or result["task"] is None:
        return []
    steps = [step for step in learned if step is not None]
    all_learned, positional, symbolic = len(steps) == 4, pure["final_positional"], pure["final_symbolic"]
    together = result["purity_and_accuracy"]
    rising = {
        "claim": "purity rises with accuracy",
        "paper": "accuracy is best only when heads are pure",
        "ours": "no change" if together is None else f"rank correlation {together['spearman']:.2f}",
        "holds": together is not None and together["spearman"] > 0.5,
    }
    if result["task"] == "number":
        early = [layer for layer in positional if layer < 5]
        late = [layer for layer in symbolic if layer > max(early, default=-1)]
        return [
            {
                "claim": "1-hop learned at least 500 steps before 4-hop",
                "paper": "about 2,000 and 3,200",
                "ours": f"{learned[0]} and {learned[3]}",
                "holds": all_learned and learned[3] - learned[0] >= 500,
            },
            {
                "claim": "at least 3 pure positional heads in the first five layers",
                "paper": "4",
                "ours": _layers(early),
                "holds": len(early) >= 3 and positional == early,
            },
            {
                "claim": "at least 6 pure symbolic heads after them",
                "paper": "8 (L4 to L11)",
                "ours": _layers(late),
                "holds": len(late) >= 6,
            },
            rising,
        ]
    return [
        {
            "claim": "all hop counts learned within 400 steps",
            "paper": "together, done at about 2,900",
            "ours": ", ".join(map(str, learned)),
            "holds": all_learned and max(steps) - min(steps) <= 400,
        },
        {"claim": "no pure positional head", "paper": "none", "ours": _layers(positional), "holds": not positional},
        {
            "claim": "at least 10 pure symbolic heads",
            "paper": "11 (L1 to L11)",
            "ours": _layers(symbolic),
            "holds": len(symbolic) >= 10,
        },
        rising,
    ]


def _layers(numbers: list[int]) -> str:
    return f"{len(numbers)} ({', '.join(f'L{n}' for n in numbers)})" if numbers else "none"


def _first(steps: NDArray[np.int64], when: NDArray[np.bool_]) -> int | None:
    return int(steps[when.argmax()]) if when.any() else None
