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
    if len(degree) > 2 and np.ptp(degree) > 0 and np.ptp(accuracy) > 0:  # two points have no p-value
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
    result["claims"] = claims(result)
    return result


def claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    """What paper B says of such a run at its size (12 layers, 4 hop counts), its values and ours; empty at other sizes.

    Paper B gives steps in round numbers, read off its curves.
    """
    pure, learned = result["purity"]["0.1"], result["learned_at"]
    if len(pure["since_positional"]) != 12 or len(learned) != 4:
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
