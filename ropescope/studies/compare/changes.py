"""How much each head changed between two profiles, and whether that is more than chance.

The *lead* of a head on a prompt is its symbolic minus its positional score. The change of a head is the difference of its mean
leads. If both profiles are of the same prompts, prompts are compared one by one (paired); else the two sets of prompts are.

Many heads are tested at once, and they depend on each other, as all see the same prompts. So the p-value of a head is the share
of random relabellings of whole prompts in which *any* head has as large a t as this one (max-t, Westfall and Young). If
nothing changed, the chance that any head at all is below 0.05 is 5 %; `tests/test_compare.py` simulates it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from ...measures.intervals import LEAST_INPUTS, mean_interval

if TYPE_CHECKING:
    import xarray as xr

Table = NDArray[np.float64]

RELABELLINGS = 9_999
"""Random relabellings of prompts; the smallest p-value is 1e-4."""


class Changes(NamedTuple):
    """Change of the mean lead of every head, its 95 % interval, and its p-value among all heads; NaN where there is none.

    Arrays have one entry per head. Intervals hold for each head alone.
    """

    change: Table
    low: Table
    high: Table
    p_value: Table


def leads(dataset: xr.Dataset) -> Table:
    """Symbolic minus positional score (input, layer, head), over all queries of an input if there are several."""
    lead = dataset["symbolic"] - dataset["positional"]
    found: Table = lead.mean([name for name in lead.dims if name == "query"]).transpose("input", "layer", "head").values
    return found.astype(np.float64)


def head_changes(a: Table, b: Table, paired: bool, seed: int = 0) -> Changes:
    """Changes from leads `a` to leads `b`, both (input, head).

    paired  whether row n of both is of the same prompt
    seed    of the relabellings

    With fewer than 8 prompts in one of them there is no interval and no p-value. A head without scores on some prompt has none.
    """
    known = np.isfinite(a).all(0) & np.isfinite(b).all(0)
    found = np.full((4, a.shape[1]), np.nan)
    x, y = a[:, known], b[:, known]
    found[0, known] = y.mean(0) - x.mean(0)
    if min(len(a), len(b)) >= LEAST_INPUTS and known.any():
        found[1:3, known] = mean_interval(y - x)[1:] if paired else _welch_interval(x, y)
        found[3, known] = _paired_p_values(y - x, seed) if paired else _unpaired_p_values(x, y, seed)
    return Changes(*found)


def _paired_p_values(difference: Table, seed: int) -> Table:
    """P-values by turning the signs of whole prompts: without a change, a and b of a prompt could as well be exchanged."""
    count = len(difference)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(RELABELLINGS, count))
    squares = (difference**2).sum(0)  # the same however signs are turned

    def size(means: Table) -> Table:
        variance = (squares - count * means**2) / (count - 1)
        return _ratio(np.abs(means), np.sqrt(np.maximum(variance, 0) / count))

    return _among_all(size(difference.mean(0)), size(signs @ difference / count))


def _unpaired_p_values(a: Table, b: Table, seed: int) -> Table:
    """P-values by dealing all prompts anew into two sets of the same sizes, with Welch's t."""
    pool, first = np.concatenate([a, b]), np.arange(len(a) + len(b)) < len(a)
    dealt = np.random.default_rng(seed).permuted(np.tile(first, (RELABELLINGS, 1)), axis=1)

    def size(chosen: Table) -> Table:
        parts = []
        for mask, count in ((chosen, len(a)), (1 - chosen, len(b))):
            mean, square = mask @ pool / count, mask @ pool**2 / count
            parts.append((mean, np.maximum(square - mean**2, 0) / (count - 1)))
        return _ratio(np.abs(parts[0][0] - parts[1][0]), np.sqrt(parts[0][1] + parts[1][1]))

    return _among_all(size(first.astype(float)), size(dealt.astype(float)))


def _ratio(size: Table, error: Table) -> Table:
    """Size over error, 0 where neither differs from rounding."""
    return np.where(size > 1e-12, size / np.maximum(error, 1e-12), 0.0)


def _among_all(size: Table, relabelled: Table) -> Table:
    """For each head, how often the largest of all heads is as large after relabelling."""
    largest = np.sort(relabelled.max(1))
    as_large = len(largest) - np.searchsorted(largest, size * (1 - 1e-9))
    found: Table = (1 + as_large) / (1 + len(largest))
    return found


def _welch_interval(a: Table, b: Table) -> Table:
    """Lower and upper end of the 95 % interval of a difference of means, for unequal variances and sizes."""
    parts = [values.var(0, ddof=1) / len(values) for values in (a, b)]
    total = parts[0] + parts[1]
    freedom = total**2 / np.maximum(sum(part**2 / (len(v) - 1) for part, v in zip(parts, (a, b), strict=True)), 1e-300)
    reach = student.ppf(0.975, np.maximum(freedom, 1)) * np.sqrt(total)
    middle = b.mean(0) - a.mean(0)
    return np.stack([middle - reach, middle + reach])
