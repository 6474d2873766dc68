"""Whether a head is purely positional or purely symbolic or mainly one of them, and since when, from arrays of scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

POSITIONAL, MIXED, SYMBOLIC = 1, 0, -1
MARGIN = 0.2
"""A head whose scores differ by less is mixed. Few heads of language models are pure; by purity nearly all would be mixed."""
Kinds = NDArray[Any]
"""Words; numpy counts words of another length as another type."""


class PuritySteps(NamedTuple):
    """Steps at which heads became pure; NaN for heads that never did.

    first_positional, first_symbolic  first step at which the head was pure in this sense
    since_positional, since_symbolic  step since which it has been pure until the end

    >>> import ropescope as rs
    >>> steps = rs.purity_steps([0.95, 0.5, 0.95], [0.05, 0.5, 0.05], [0, 10, 20])  # pure, mixed, and pure again
    >>> float(steps.first_positional), float(steps.since_positional), float(steps.first_symbolic)
    (0.0, 20.0, nan)
    """

    first_positional: NDArray[np.float64]
    since_positional: NDArray[np.float64]
    first_symbolic: NDArray[np.float64]
    since_symbolic: NDArray[np.float64]


def purity(positional: ArrayLike, symbolic: ArrayLike, gamma: float = 0.1) -> NDArray[np.int8]:
    """1 where pure positional (positional >= 1 - gamma, symbolic <= gamma), -1 where pure symbolic, 0 where mixed.

    positional, symbolic  scores, arrays of the same shape as the result
    gamma                 tolerance

    Raises ValueError if shapes differ, or gamma is not from 0 to below 0.5.

    >>> import ropescope as rs
    >>> rs.purity([1.00, 0.02, 0.95, 1.00], [0.00, 0.99, 0.30, 1.00]).tolist()
    [1, -1, 0, 0]
    >>> rs.purity(0.93, 0.02, gamma=0.05).item()
    0
    """
    if not 0 <= gamma < 0.5:
        raise ValueError(f"gamma must be at least 0 and below 0.5, not {gamma}: a head cannot be pure in both senses")
    p, s = np.asarray(positional, dtype=float), np.asarray(symbolic, dtype=float)
    if p.shape != s.shape:
        raise ValueError(f"positional and symbolic must have the same shape, not {p.shape} and {s.shape}")
    is_positional = (p >= 1 - gamma) & (s <= gamma)
    is_symbolic = (s >= 1 - gamma) & (p <= gamma)
    return np.asarray(is_positional.astype(np.int8) - is_symbolic.astype(np.int8))


def purity_steps(positional: ArrayLike, symbolic: ArrayLike, steps: ArrayLike, gamma: float = 0.1) -> PuritySteps:
    """The steps at which heads became pure, from scores (step, ...) at increasing `steps`.

    Other arguments are those of `purity`.

    Raises ValueError in the same cases as `purity`, or if steps do not increase or do not match the rows of scores.

    >>> import numpy as np, ropescope as rs
    >>> positional = np.array([[1.0, 1.0], [0.4, 0.95], [0.05, 0.98]])  # step, head
    >>> symbolic = np.array([[1.0, 1.0], [0.9, 0.05], [0.99, 0.01]])
    >>> found = rs.purity_steps(positional, symbolic, [0, 50, 100])
    >>> found.since_symbolic.tolist(), found.since_positional.tolist()
    ([100.0, nan], [nan, 50.0])
    """
    kinds, at = purity(positional, symbolic, gamma), np.asarray(steps, dtype=float)
    if at.ndim != 1 or kinds.ndim < 1 or len(at) != len(kinds) or len(at) == 0 or (np.diff(at) <= 0).any():
        raise ValueError(f"steps must increase, one for each of the {kinds.shape[:1]} rows of scores, not {at.tolist()}")
    found: list[NDArray[np.float64]] = []
    for kind in (POSITIONAL, SYMBOLIC):
        pure = kinds == kind
        stays = np.logical_and.accumulate(pure[::-1])[::-1]
        found += [np.where(x.any(0), at[x.argmax(0)], np.nan) for x in (pure, stays)]
    return PuritySteps(*found)


def head_kinds(positional: NDArray[np.float64], symbolic: NDArray[np.float64], margin: float = MARGIN) -> Kinds:
    """`positional` or `symbolic` where that score is larger by the margin or more, else `mixed`; `unscored` without scores."""
    lead = symbolic - positional
    return np.select([np.isnan(lead), lead <= -margin, lead >= margin], ["unscored", "positional", "symbolic"], "mixed")
