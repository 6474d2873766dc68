"""What the sweeps show: accuracy against angle, where tasks cross, shapes over places, directions over training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ...runs import plain
from ...tasks.canonical import PartialInductionTask, order_blind_accuracy
from . import Settings
from .sweeps import FEW, ONE, SWEEPS, TWO, Arrays, all_angles, task_of

SOLVED = 0.99


def findings(sweeps: Mapping[str, Arrays], settings: Settings) -> dict[str, Any]:
    """All numbers on trained heads, from the stored arrays alone."""
    angles = np.array(all_angles(settings))
    final = {sweep: arrays["accuracy"][:, -1].astype(float) for sweep, arrays in sweeps.items()}
    results: dict[str, Any] = {"angles": angles.tolist(), "sweeps": {}}
    for sweep in SWEEPS:
        values = final[sweep]
        mean, least, most = values.mean(0), values.min(0), values.max(0)
        best = int(mean.argmax())
        solved = mean >= SOLVED
        results["sweeps"][sweep] = {
            "mean": plain(mean),
            "sd": plain(values.std(0, ddof=1)),
            "least": plain(least),
            "most": plain(most),
            "positional": plain(sweeps[sweep]["scores"][..., 0].mean(0)),
            "symbolic": plain(sweeps[sweep]["scores"][..., 1].mean(0)),
            "best": {
                "angle": float(angles[best]),
                **{k: float(v[best]) for k, v in (("mean", mean), ("least", least), ("most", most))},
            },
            "best_of_any_model": float(values.max()),
            "solved_from": float(angles[solved].min()) if solved.any() else None,
            "solved_to": float(angles[solved].max()) if solved.any() else None,
            "solved_between_without_break": bool(solved.any() and solved[solved.argmax() :][: solved.sum()].all()),
        }
    results["planes"] = division(sweeps[TWO], angles)
    each = [crossing(angles, a, b) for a, b in zip(final["index"], final["retrieval"], strict=True)]
    together = crossing(angles, final["index"].mean(0), final["retrieval"].mean(0))
    results["crossing"] = {"of_means": together, "of_seeds": each}
    results["order_blind"] = {
        sweep: order_blind_accuracy(task, task.sample(20_000, settings.seed))
        for sweep in (ONE, FEW)
        if isinstance(task := task_of(settings, sweep), PartialInductionTask)
    }
    results["shapes"] = {sweep: shape(sweeps[sweep]["place"].astype(float), final[sweep], angles) for sweep in SWEEPS[:2]}
    results["trajectories"] = trajectories(sweeps["index"], settings)
    return results


def division(two: Arrays, angles: NDArray[Any]) -> dict[str, Any]:
    """Scores of the still plane and of the turning one, each alone, at every angle; the spread over seeds at the best angle."""
    scores, best = two["plane_scores"], int(two["accuracy"][:, -1].mean(0).argmax())
    kinds = [
        (plane, at, kind, n)
        for at, plane in enumerate(("still", "turning"))
        for n, kind in enumerate(("positional", "symbolic"))
    ]
    return {
        "angle": float(angles[best]),
        "mean": {f"{plane} {kind}": plain(scores[:, :, at, n].mean(0)) for plane, at, kind, n in kinds},
        "at_best": {
            f"{plane} {kind}": plain(np.array([x.mean(), x.min(), x.max()]))
            for plane, at, kind, n in kinds
            if (x := scores[:, best, at, n]) is not None
        },
    }


def crossing(angles: NDArray[Any], rising: NDArray[Any], falling: NDArray[Any]) -> float | None:
    """The angle at which two curves meet, on a straight line over the logarithm of the angle; None if they do not, or often."""
    x, gap = np.log(angles[1:]), (rising - falling)[1:]
    at = np.flatnonzero((gap[:-1] < 0) & (gap[1:] >= 0))
    if len(at) != 1 or (np.diff(np.sign(gap)) < 0).any():
        return None
    i = int(at[0])
    return float(np.exp(x[i] - gap[i] * (x[i + 1] - x[i]) / (gap[i + 1] - gap[i])))


def shape(place: NDArray[Any], final: NDArray[Any], angles: NDArray[Any]) -> dict[str, Any]:
    """Accuracy by the answer's place at the angle halfway between failing and solved: bent which way, and is it chance?

    Every seed's accuracies get a parabola over places from -1 to 1; its square coefficient is positive for a U. The t-test is
    over seeds, which are independent. The angle is chosen by overall accuracy alone, which says nothing of places.
    """
    mean = final.mean(0)
    halfway = int(np.abs(mean[1:] - (mean.min() + mean.max()) / 2).argmin()) + 1
    x = np.linspace(-1, 1, place.shape[-1])
    bends = np.polynomial.polynomial.polyfit(x, place.reshape(-1, len(x)).T, 2)[2].reshape(place.shape[:2])
    quarter = len(x) // 4
    ends = np.concatenate((place[:, halfway, :quarter], place[:, halfway, -quarter:]), -1).mean(-1)
    middle = place[:, halfway, quarter:-quarter].mean(-1)
    return {
        "angle": float(angles[halfway]),
        "by_place": plain(place.mean(0)),
        "ends": float(ends.mean()),
        "middle": float(middle.mean()),
        "bend": float(bends[:, halfway].mean()),
        "bend_p": float(stats.ttest_1samp(bends[:, halfway], 0).pvalue),
        "bend_by_angle": plain(bends.mean(0)),
    }


def trajectories(index: Arrays, settings: Settings) -> dict[str, Any]:
    """Directions of the Index model's keys and queries over training, at the angle nearest to a full turn over all places.

    keys_alike    length of the mean of the letters' keys, each made a unit vector: 1 if all have one direction
    queries_aim   the same for the queries, each turned on by as much as its place asks for: 1 if they encode their places
    """
    angles = np.array(all_angles(settings))
    at = int(np.abs(angles - 2 * math.pi / settings.items).argmin())
    query, key = ((x := index[name][:, :, at].astype(float))[..., 0] + 1j * x[..., 1] for name in ("queries", "keys"))
    away = np.exp(1j * angles[at] * (settings.items - np.arange(settings.items)))
    alike, aim = (np.abs((x / np.abs(x)).mean(-1)) for x in (key, query * away))
    return {
        "angle": float(angles[at]),
        "steps": index["steps"][0].tolist(),
        "keys_alike": {"mean": plain(alike.mean(0)), "least": plain(alike.min(0)), "most": plain(alike.max(0))},
        "queries_aim": {"mean": plain(aim.mean(0)), "least": plain(aim.min(0)), "most": plain(aim.max(0))},
        "queries": plain(index["queries"][0, :, at]),
        "keys": plain(index["keys"][0, :, at]),
    }
