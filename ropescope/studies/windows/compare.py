"""How well rankings predict the damage of windowing each key head alone, and how much models lose by their splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from .trials import Measures, damage

RESAMPLES = 1000
"""Draws of whole layers with replacement."""

Array = NDArray[np.float64]


def compared(
    scores: Mapping[str, Array],
    candidates: NDArray[np.bool_],
    alone: Mapping[tuple[int, int], Measures],
    before: Measures,
    curves: Mapping[str, Sequence[Measures]],
    contexts: int,
    seed: int,
) -> dict[str, Any]:
    """Areas under curves of log probability; where heads were windowed alone, their damage and rank correlations with it.

    curves    measures of every ranking, one for each share windowed
    contexts  contexts of each kind of prompt; areas are given for each of them, too, as they are what is independent
    """
    single = {name: by_context(rows, contexts) for name, rows in curves.items()}
    found: dict[str, Any] = {
        "areas": {name: round(float(values.mean()), 5) for name, values in single.items()},
        "areas by context": {name: [round(float(value), 5) for value in values] for name, values in single.items()},
    }
    if not alone:
        return found
    harm = np.full(candidates.shape, np.nan)
    for place, after in alone.items():
        first = {name: values[: len(after[name])] for name, values in before.items() if name in after}
        harm[place] = damage(first, after)
    return {
        "damage": [[None if np.isnan(x) else round(float(x), 6) for x in row] for row in harm],
        "correlations": {name: correlation(values, harm, seed) for name, values in scores.items()},
        **found,
    }


def correlation(scores: Array, harm: Array, seed: int, resamples: int = RESAMPLES) -> dict[str, Any]:
    """Spearman's rank correlation over key heads, with the middle 95 % of bootstrap draws of whole layers."""
    rows = np.flatnonzero(np.isfinite(harm).any(1))

    def found(chosen: NDArray[Any]) -> float:
        x, y = scores[chosen].ravel(), harm[chosen].ravel()
        known = np.isfinite(y)
        a, b = (rankdata(values[known]) - (known.sum() + 1) / 2 for values in (x, y))
        size = float(np.sqrt((a @ a) * (b @ b)))
        return float(a @ b) / size if size else 0.0

    rng = np.random.default_rng(seed)
    draws = [found(rng.choice(rows, len(rows))) for _ in range(resamples)]
    low, high = np.quantile(draws, (0.025, 0.975))
    return {"rho": round(found(rows), 4), "low": round(float(low), 4), "high": round(float(high), 4)}


def by_context(rows: Sequence[Measures], contexts: int) -> Array:
    """Mean log probability of answers on each context, over its questions, kinds of prompts and shares windowed."""
    kinds = [name for name in rows[0] if name.endswith("log probability")]
    means: Array = np.mean([[row[name].reshape(contexts, -1).mean(1) for name in kinds] for row in rows], (0, 1))
    return means
