"""Accuracy of chosen answers, guesses that do not read the question, and what stands beside a model: profile, other models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...runs import read_run

LONG = (48, 64, 80, 100)
"""Windows on which models are compared: longer than what most count or find easily, and within the reach of every context."""


def by_place(picks: NDArray[np.float64], answers: NDArray[np.float64]) -> float:
    """Accuracy of the places chosen for each question, if they are taken as the answers to all other questions.

    picks    share of every place in the choice, a row for each question
    answers  1 where the right answer stands

    It is what a preference for places earns without reading the question. NaN for a single question.
    """
    count = len(picks)
    agree = picks @ answers.T
    return float((agree.sum() - np.trace(agree)) / (count * (count - 1))) if count > 1 else float("nan")


def cell_of(found: Mapping[str, NDArray[Any]], runs: int) -> dict[str, Any]:
    """The result of one form, task and length: mean and standard deviation over draws, and guesses beside them."""
    means = found["right"].reshape(runs, -1).mean(1)
    place = float(found["by_place"])
    return {
        "mean": round(float(means.mean()), 6),
        "std": round(float(means.std(ddof=1)), 6) if runs > 1 else None,
        "runs": [round(float(mean), 6) for mean in means],
        "questions": len(found["right"]),
        "greedy": round(float(found["greedy"].mean()), 6),
        "chance": round(float((1 / found["options"]).mean()), 6),
        "by_place": None if np.isnan(place) else round(place, 6),
        "nats": round(float(found["nats"].mean()), 4),
        "mass": round(float(found["mass"].mean()), 6),
    }


def held(accuracy: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, float | None]]:
    """Mean accuracy above chance on long windows, by form and task; None unless all of these were asked."""
    found: dict[str, dict[str, float | None]] = {}
    for form, tasks in accuracy.items():
        found[form] = {}
        for task, cells in tasks.items():
            long = [cells[str(n)] for n in LONG if str(n) in cells]
            above = [cell["mean"] - cell["chance"] for cell in long]
            found[form][task] = round(float(np.mean(above)), 6) if len(long) == len(LONG) else None
    return found


def late_symbolic(folder: Path, weights: Mapping[str, str]) -> float:
    """Mean symbolic score of the heads in the second half of the layers, from a profile; one of other weights is refused."""
    try:
        summary = read_run(folder).summary
        layers, model = summary["results"]["heads"]["symbolic"]["mean"], summary["config"]["model"]
        late = [score for layer in layers[(len(layers) + 1) // 2 :] for score in layer if score is not None]
    except (ValueError, LookupError, TypeError):
        raise ValueError(f"profile {folder} holds no profile: give a folder of `ropescope profile`") from None
    if dict(weights) != model["weights"]:
        raise ValueError(f"profile {folder} is of other weights ({model['source']}): profile the same model")
    if not late:
        raise ValueError(f"profile {folder} has no scored head in late layers: profile a model with more layers")
    return round(float(np.mean(late)), 6)


def beside_from(folder: Path) -> dict[str, Any]:
    """The results of another model from its run folder."""
    try:
        run = read_run(folder)
        kept = {name: run.results[name] for name in ("accuracy", "held", "late_symbolic")}
        return {"model": run.config["model"]["source"], **kept}
    except (ValueError, LookupError, TypeError):
        raise ValueError(f"beside {folder} holds no run of `ropescope choice`: give a folder that it has written") from None


def rank_correlation(late: Sequence[float], reached: Sequence[float]) -> float:
    """Spearman's rank correlation over models; NaN if all are equal in one of the two."""
    from scipy.stats import spearmanr  # noqa: PLC0415

    if len(set(late)) < 2 or len(set(reached)) < 2:
        return float("nan")
    return float(spearmanr(late, reached).statistic)
