"""Which position numbers, in which precision, explain turns that claimed frequencies do not."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .fit import Seen
from .planes import Array

Complex = NDArray[np.complex128]

DIGITS = {"bfloat16": 8, "float16": 11, "TF32": 11}
"""Binary digits of a number in each precision. TF32, in which some processors multiply float32, has more exponents."""


def rounded(x: Array, precision: str) -> Array:
    """Numbers rounded to a precision."""
    if precision == "float16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(np.float64)
    parts, exponents = np.frexp(x)
    found: Array = np.ldexp(np.round(parts * 2.0 ** DIGITS[precision]), exponents - DIGITS[precision])
    return found


def explained(seen: Seen, turns: Complex, frequencies: Array) -> float:
    """Largest difference of angles from given turns, over the one that rounding explains: at most 1 if they explain all."""
    if not seen.absolute:
        turns = turns * turns[:1].conj()
    if not np.isfinite(turns).all():  # numbers beyond a precision
        return math.inf
    apart = np.abs(np.angle(seen.turns * turns.conj()))
    return float((apart / seen.allowed(frequencies)).max(initial=0.0))


def explanation(seen: Seen, frequencies: Array) -> str | None:
    """What about positions or precision explains the turns seen, given the right frequencies; None if nothing we know."""
    angles = np.outer(seen.positions, frequencies)
    # Several may do at few positions: the nearest is the likeliest, and of equal ones the first.
    tried = [(explained(seen, turns, frequencies), cause) for cause, turns in _precisions(seen.positions, frequencies)]
    off, nearest = min(tried, key=lambda each: each[0])
    if off <= 1 and off < 0.5 * explained(seen, np.exp(1j * angles), frequencies):
        return nearest
    for cause, numbers in _numberings(seen):
        changed = not np.array_equal(numbers, seen.positions)
        if changed and explained(seen, np.exp(1j * np.outer(numbers, frequencies)), frequencies) <= 1:
            return cause
    return None


def coarse_turns(seen: Seen, frequencies: Array, precision: str) -> Complex:
    """Turns by angles that are computed in a precision; NaN where numbers are beyond it."""
    with np.errstate(invalid="ignore", over="ignore"):
        angles = np.outer(rounded(seen.positions, precision), rounded(frequencies, precision))
        turns: Complex = np.exp(1j * rounded(angles, precision))
    return turns


def _precisions(where: Array, frequencies: Array) -> Iterator[tuple[str, Complex]]:
    """Turns with roundings in different places."""
    for name in DIGITS:
        low, rates = rounded(where, name), rounded(frequencies, name)
        if not np.isfinite(low).all():
            continue
        yield f"frequencies are rounded to {name}", np.exp(1j * np.outer(where, rates))
        yield f"position numbers are rounded to {name}", np.exp(1j * np.outer(low, frequencies))
        yield f"angles are computed in {name}", np.exp(1j * rounded(np.outer(low, rates), name))
        yield f"angles are rounded to {name}", np.exp(1j * rounded(np.outer(where, frequencies), name))
        yield f"positions and frequencies are rounded to {name}", np.exp(1j * np.outer(low, rates))
        if name != "TF32":
            angles = np.outer(where, frequencies)
            yield f"cosines and sines are rounded to {name}", rounded(np.cos(angles), name) + 1j * rounded(np.sin(angles), name)


def _numberings(seen: Seen) -> Iterator[tuple[str, Array]]:
    """Position numbers that faulty code gives."""
    where = seen.positions
    yield "all positions have the same number", np.zeros_like(where)
    if seen.absolute:
        for shift in (1, -1, 2, -2, *range(3, 65), *range(-64, -2)):
            yield f"position numbers are off by {shift}", where + shift
    for times in (2.0, 0.5, 4.0, 0.25, 8.0, 0.125, 16.0, 0.0625, 32.0, 0.03125):
        yield f"position numbers are multiplied by {times:g}", where * times
    yield "positions are numbered backwards", where[-1] - where
    sizes = sorted({int(p) for p in where if p > 0} | {2**n for n in range(1, 18)})
    for size in sizes:
        yield f"position numbers start again at 0 every {size} tokens", where % size
        yield f"position numbers stop growing at {size}", np.minimum(where, size)
    for size in range(2, 17):
        yield f"{size} tokens in a row have the same position number", where // size
    for start in sizes:  # a chunk of the prompt is numbered from 0 again
        yield f"position numbers start again at 0 after {start} tokens", np.where(where >= start, where - start, where)
