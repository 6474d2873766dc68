"""Which two dimensions form a plane: a rotation moves energy between the two and leaves their sum as it is.

For a plane `(i, j)`, `y_i**2 + y_j**2 = s**2 (x_i**2 + x_j**2)` for every vector `x` and its rotated `y`; for any other two
dimensions the sum changes with the position. So one matrix of products of energies decides among all pairings at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Pairing = Literal["half", "interleaved", "none"]


STILL = 16
"""Roundings by which the energy of a dimension may change without being said to move."""


CLOSE = 1e-3
"""The share of moving energy by which other planes must explain more than those preferred."""
ROUNDINGS = 8
"""Roundings by which the energy of a plane may change: of cosines, sines, products and their sum."""


@dataclass(frozen=True)
class Planes:
    """Planes of a head: how its dimensions are paired, and how well that explains what moves.

    pairing   "half", "interleaved", or "none" where nothing moves
    first     the first dimension that may turn
    count     number of planes
    residual  share of the moving energy that is not kept within planes: 0 for a rotation, near 1 for anything else
    """

    pairing: Pairing
    first: int
    count: int
    residual: float = 0.0

    @property
    def dimensions(self) -> tuple[NDArray[np.int_], NDArray[np.int_]]:
        """The first and the second dimension of every plane."""
        at = np.arange(self.count)
        if self.pairing == "half":
            return self.first + at, self.first + self.count + at
        return self.first + 2 * at, self.first + 2 * at + 1

    def split(self, x: Array) -> NDArray[np.complex128]:
        """One complex number per plane, from vectors in the last axis."""
        first, second = self.dimensions
        numbers: NDArray[np.complex128] = x[..., first] + 1j * x[..., second]
        return numbers


def find_planes(after: Array, before: Array | None = None, noise: float = 0.0, prefer: Planes | None = None) -> Planes:
    """The pairing of dimensions that keeps energies within planes.

    after   vectors after the rotation, (head, token, dimension)
    before  the same before it; without, all tokens of a head are equal before it
    noise   rounding of one number, relative to it
    prefer  planes to return where others explain no more: those that are claimed

    >>> import numpy as np
    >>> from ropescope.rotations import find_planes
    >>> turn = np.exp(1j * np.arange(16)[:, None] * [1.0, 0.1])  # two planes
    >>> found = find_planes(np.concatenate([turn.real, turn.imag], -1)[None])
    >>> found.pairing, found.count
    ('half', 2)
    """
    size = after.shape[-1]
    products = _energy_products(after, before)
    alone = np.diag(products).copy()
    if (alone <= max((STILL * noise) ** 2, 1e-24) * (after**4).sum((0, 1))).all():
        return Planes("none", 0, 0)
    gains = -2 * products  # what pairing two dimensions takes away
    found = [_interleaved(gains, size), *_halves(gains, size)]
    if prefer is not None and prefer.pairing != "none" and prefer.first + 2 * prefer.count <= size:
        if (left := _left_over(products, after, noise, prefer)) < CLOSE:  # what other planes explain better is rounding
            return replace(prefer, residual=left)
        found.insert(0, (_gain(gains, prefer), prefer))
    best = max(gain for gain, _ in found)
    close = best - CLOSE * abs(best)
    chosen = next(planes for gain, planes in found if gain >= close)
    return replace(chosen, residual=_left_over(products, after, noise, chosen))


def _left_over(products: Array, after: Array, noise: float, planes: Planes) -> float:
    """The share of moving energy that is not kept within planes, without what rounding explains.

    In half precision a slow plane of large numbers may change less by turning than by rounding: it shows nothing, and is left
    out.
    """
    first, second = planes.dimensions
    rest = np.setdiff1d(np.arange(after.shape[-1]), np.concatenate([first, second]))
    alone, energies = np.diag(products), after**2
    moving = np.concatenate([alone[first] + alone[second], alone[rest]])
    left = moving + np.concatenate([2 * products[first, second], np.zeros(len(rest))])
    lengths = np.concatenate([energies[..., first] + energies[..., second], energies[..., rest]], -1)
    rounding = (ROUNDINGS * noise) ** 2 * (lengths**2).sum((0, 1))
    shown = moving > rounding
    return float(np.maximum(left - rounding, 0)[shown].sum() / max(float(moving[shown].sum()), 1e-300))


def _energy_products(after: Array, before: Array | None) -> Array:
    """Products of the changes of energy of any two dimensions, summed over heads and tokens."""
    changes = after**2
    if before is None:
        changes = changes - changes.mean(1, keepdims=True)
    else:  # a factor on the rotation (YaRN) scales all energies alike
        turned = before**2
        still = np.abs(changes - turned).sum((0, 1)) <= 1e-3 * turned.sum((0, 1))
        scale = float(changes[..., ~still].sum() / max(turned[..., ~still].sum(), 1e-300))
        changes = changes - np.where(still | (abs(scale - 1) < 1e-3), 1.0, scale) * turned
    flat = changes.reshape(-1, changes.shape[-1])
    products: Array = flat.T @ flat
    return products


def _gain(gains: Array, planes: Planes) -> float:
    return float(gains[planes.dimensions].sum())


def _interleaved(gains: Array, size: int) -> tuple[float, Planes]:
    planes = Planes("interleaved", 0, size // 2)
    return _gain(gains, planes), planes


def _halves(gains: Array, size: int) -> list[tuple[float, Planes]]:
    """The best planes in halves for every number of them; those that begin or end with the head come first."""
    found, others = [], []
    for count in range(size // 2, 0, -1):
        sums = np.concatenate([[0.0], np.cumsum(np.diagonal(gains, count))])
        starts = np.arange(size - 2 * count + 1)
        totals = sums[starts + count] - sums[starts]
        found += [(float(totals[start]), Planes("half", start, count)) for start in sorted({0, int(starts[-1])})]
        start = int(totals.argmax())
        others.append((float(totals[start]), Planes("half", start, count)))
    return found + others
