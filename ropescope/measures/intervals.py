"""Mean over inputs and its bootstrap confidence interval."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class MeanInterval(NamedTuple):
    """Mean over inputs, and the interval in which it would probably lie for other inputs.

    mean, low, high  arrays without the input axis

    >>> import ropescope as rs
    >>> mean, low, high = rs.mean_interval([0.1, 0.2, 0.3, 0.4])
    >>> bool(low < mean < high)
    True
    """

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def mean_interval(values: ArrayLike, axis: int = 0, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> MeanInterval:
    """Mean over inputs with its percentile bootstrap interval.

    values     an array, or anything that converts to one
    axis       the input axis
    level      share of the resampled means that lies inside the interval
    resamples  number of resamples
    seed       seed of the resampling

    A resample draws inputs with replacement, the same for all other axes, so that differences between heads keep the
    correlation that comes from their common inputs.

    Raises ValueError if there are fewer than two inputs, values are NaN or infinite, level is not between 0 and 1, or
    resamples is less than 1.

    >>> import numpy as np, ropescope as rs
    >>> scores = np.random.default_rng(0).uniform(0.8, 1.0, (50, 12))  # input, head
    >>> found = rs.mean_interval(scores)
    >>> found.mean.shape, bool((found.low < found.mean).all())
    ((12,), True)
    """
    table = np.moveaxis(np.asarray(values, dtype=float), axis, 0)
    count = len(table)
    if count < 2:
        raise ValueError(f"values must hold at least two inputs along axis {axis}, not {count}: one input gives no interval")
    if not np.isfinite(table).all():
        raise ValueError("values holds NaN or infinite numbers: remove those inputs first")
    if not 0 < level < 1 or resamples < 1:
        raise ValueError(f"level must lie between 0 and 1 and resamples be at least 1, not {level} and {resamples}")
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=resamples) / count
    means = np.tensordot(drawn, table, 1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return MeanInterval(table.mean(0), low, high)


def mean_of_known(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of the finite values along the first axis; NaN where there is none."""
    seen = np.isfinite(values)
    count = seen.sum(0)
    found: NDArray[np.float64] = np.where(count > 0, np.where(seen, values, 0).sum(0) / np.maximum(count, 1), np.nan)
    return found
