"""Which scaling of RoPE frequencies explains those of a layer, and its constants.

Without scaling plane `f` of `F` turns by `base ** (-f / F)`. Scalings divide that: linear ones by one factor, YaRN and Llama 3
by 1 for fast planes and by a factor for slow ones, with a transition that is linear in the plane's number (YaRN) or in its
frequency (Llama 3). NTK-aware scaling is another base.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .planes import Array

SURE = 8
"""Standard errors that a frequency may be off."""
SINGLE = 2.0**-20
"""Relative rounding of frequencies that are computed in single precision."""


@dataclass(frozen=True)
class Scaling:
    """A way to scale frequencies.

    name       none (plain), linear, yarn, llama3, unknown, or no rotation
    constants  its constants, by the names that configurations of `transformers` give them
    off        largest difference from the frequencies seen, over the one allowed
    """

    name: str
    constants: dict[str, float] = field(default_factory=dict)
    off: float = 0.0

    def __str__(self) -> str:
        parts = ", ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in self.constants.items())
        return f"{self.name} ({parts})" if parts else self.name


def plain(base: float, planes: int) -> Array:
    """Frequencies without scaling."""
    return base ** (-np.arange(planes) / planes)


def name_scaling(frequencies: Array, errors: Array, length: float | None = None) -> Scaling:
    """The simplest scaling that explains the frequencies of all planes, with its constants.

    frequencies, errors  radians per position of each plane, and the standard error of each
    length               original length of the context, where it is known: frequencies alone give its ratio to other constants

    >>> import numpy as np
    >>> from ropescope.rotations import name_scaling
    >>> print(name_scaling(500000.0 ** (-np.arange(64) / 64) / 4, np.full(64, 1e-9)))
    linear (base 500000, factor 4)
    """
    rates = np.abs(frequencies)
    allowed = SURE * errors + SINGLE * rates
    turning = rates > allowed
    if not turning.any():
        return Scaling("no rotation")
    last = int(np.flatnonzero(turning)[-1]) + 1
    if turning[:last].sum() < min(3, len(rates)):
        return Scaling("unknown", {}, math.inf)
    tried = [_geometric(rates, allowed, True), _geometric(rates, allowed, False)]
    tried += _in_two_parts(rates, allowed, length)
    fits = [each for each in tried if each.off <= 1]
    return fits[0] if fits else Scaling("unknown", {}, min((each.off for each in tried), default=math.inf))


def _off(rates: Array, model: Array, allowed: Array) -> float:
    return float((np.abs(rates - model) / allowed).max())


def _slope(planes: NDArray[np.int64], logs: Array, weights: Array, from_one: bool) -> tuple[float, float]:
    """The line `logs = start + slope * planes` by weighted least squares; it starts at 0 if `from_one`."""
    columns = planes[:, None] if from_one else np.stack([planes, np.ones(len(planes))], 1)
    found = np.linalg.lstsq(columns * weights[:, None], logs * weights, rcond=None)[0]
    return float(found[0]), 0.0 if from_one else float(found[1])


def _geometric(rates: Array, allowed: Array, from_one: bool) -> Scaling:
    """No scaling, or a linear one: a geometric sequence of frequencies."""
    number = len(rates)
    known = np.flatnonzero(rates > 2 * allowed)
    if len(known) < (1 if from_one else 2):
        return Scaling("unknown", {}, math.inf)
    slope, start = _slope(known, np.log(rates[known]), rates[known] / allowed[known], from_one)
    base = math.exp(min(-slope * number, 500.0))
    model = np.exp(start) * plain(base, number)
    constants = {"base": base} | ({} if from_one else {"factor": math.exp(-start)})
    return Scaling("none" if from_one else "linear", constants, _off(rates, model, allowed))


def _in_two_parts(rates: Array, allowed: Array, length: float | None) -> list[Scaling]:
    """YaRN and Llama 3: fast planes as they are, slow ones divided by a factor, a transition between."""
    number = len(rates)
    known = rates > 2 * allowed
    first = next(
        (n for n in range(3, number + 1) if not known[:n].all() or _geometric(rates[:n], allowed[:n], True).off > 1), 0
    )
    if first < 4:
        return []
    fast = np.arange(first - 1)
    slope, _ = _slope(fast, np.log(rates[fast]), rates[fast] / allowed[fast], True)
    base = math.exp(-slope * number)
    unscaled = plain(base, number)
    share, doubt = rates / unscaled, allowed / unscaled  # 1 for fast planes, 1 / factor for slow ones
    flat = np.array([known[f] and abs(share[f] - share[f - 1]) <= doubt[f] + doubt[f - 1] for f in range(1, number)])
    slow = [f for f in np.flatnonzero(flat) + 1 if share[f] < 1 - 2 * doubt[f]]
    if not slow:
        return []
    factor = 1 / float(np.average(share[slow], weights=1 / doubt[slow] ** 2))
    kept = (share - 1 / factor) / (1 - 1 / factor)
    blur = doubt / (1 - 1 / factor)
    between = np.flatnonzero((kept > 2 * blur) & (kept < 1 - 2 * blur) & known)
    if len(between) < 2:
        return []
    found = []
    for name, axis in (("llama3", unscaled), ("yarn", np.arange(number, dtype=float))):
        line = np.polynomial.polynomial.polyfit(axis[between], kept[between], 1, w=1 / blur[between])
        shares = np.clip(line[0] + line[1] * axis, 0, 1)
        model = unscaled * ((1 - shares) / factor + shares)
        constants = {"base": base, "factor": factor} | _transition(name, line, length)
        found.append(Scaling(name, constants, _off(rates, model, allowed)))
    return found


def _transition(name: str, line: Array, length: float | None) -> dict[str, float]:
    if name == "yarn":
        return {"first_plane": (1 - line[0]) / line[1], "last_plane": -line[0] / line[1]}
    # kept = (length / wavelength - low) / (high - low); lengths and both factors may be scaled alike
    low, per = -float(line[0]), float(line[1])
    apart = length / (2 * math.pi * per) if length else 1 / low
    return {
        "low_freq_factor": low * apart,
        "high_freq_factor": (1 + low) * apart,
        "original_max_position_embeddings": length or 2 * math.pi * per * apart,
    }


def _short(value: float) -> str:
    near = round(value)
    return str(near) if near and abs(value - near) <= 2e-4 * abs(value) else f"{value:.4g}"
