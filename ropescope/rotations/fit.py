"""The rotation that turns vectors before into vectors after it: one frequency per plane, fitted to the angles seen."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .planes import Array, Pairing, Planes, find_planes

Complex = NDArray[np.complex128]

NEAR = 64
"""Positions from the first one within which frequencies are searched; farther ones refine them."""
GRID = 8
"""Frequencies tried from minus pi to pi, for each position of the range within which they are searched."""
ANGLE = 2.0**-20
"""Relative rounding of angles in single precision, which is usual: 16 roundings of 2**-24, of which the power of a base of 1e6
multiplies that of its exponent by 14."""


@dataclass(frozen=True)
class Seen:
    """Turns of every plane at every position, as seen.

    positions  position numbers (token)
    turns      complex factors (token, plane); unless `absolute`, relative to the first position
    noise      rounding of the angle of each plane, in radians
    absolute   whether vectors before the rotation are known
    """

    positions: Array
    turns: Complex
    noise: Array
    absolute: bool

    def allowed(self, frequencies: Array) -> Array:
        """The largest difference of angles that rounding explains (token, plane)."""
        far = np.abs(self.positions[:, None] - (0 if self.absolute else self.positions[0]))
        found: Array = 8 * self.noise + ANGLE * np.maximum(np.abs(self.positions[:, None]), far) * np.abs(frequencies)
        return found


@dataclass(frozen=True)
class Rotation:
    """A fitted rotation of the queries or keys of one layer.

    head_dim     dimensions of a head
    planes       how they are paired
    frequencies  radians per position of each plane; negative ones turn backwards
    errors       standard error of each
    residual     root mean square of the angles left over, in radians
    linear       whether angles grow with the position, as a rotation's do, up to rounding
    factor       length of a vector after the rotation over that before; None if those before are not known
    offset       position number of position 0; None if vectors before are not known
    growth       largest change of lengths with the position, which no rotation makes; it is taken out before the fit
    seen         what all this was fitted to

    >>> import ropescope as rs, torch
    >>> keys = rs.Rope(head_dim=8, pairing="interleaved").rotate(torch.ones(1, 16, 8).double(), range(16)).numpy()
    >>> found = rs.fit_rotation(keys)
    >>> found.pairing, found.linear, found.offset
    ('interleaved', True, None)
    """

    head_dim: int
    planes: Planes
    frequencies: Array
    errors: Array
    residual: float
    linear: bool
    factor: float | None
    offset: float | None
    growth: float
    seen: Seen

    @property
    def pairing(self) -> Pairing:
        """How dimensions are paired."""
        return self.planes.pairing

    @property
    def turning(self) -> NDArray[np.bool_]:
        """Which planes turn by more than rounding explains."""
        found: NDArray[np.bool_] = np.abs(self.frequencies) > 6 * self.errors
        return found


def fit_rotation(
    after: Array,
    before: Array | None = None,
    positions: Array | None = None,
    noise: float = 2.0**-24,
    prefer: Planes | None = None,
    tokens: NDArray[np.int64] | None = None,
    drift: bool = False,
) -> Rotation:
    """The rotation of queries or keys, from vectors after it, and if they are known, before it.

    after      vectors after the rotation, (head, token, dimension)
    before     the same vectors before it. Without it, equal tokens must have equal vectors before the rotation
    positions  position number of each token, by default 0, 1, ...
    noise      rounding of a number relative to it: half the eps of the precision of the runtime
    prefer     planes to assume where others explain no more
    tokens     token ids, without `before`; by default all are equal
    drift      whether errors of neighbouring positions may be alike, as those of hidden states are

    Raises ValueError if shapes do not match or there are too few tokens.

    >>> import ropescope as rs, torch
    >>> rope = rs.Rope(head_dim=8, base=100.0)
    >>> keys = rope.rotate(torch.randn(2, 1, 8).double().expand(2, 32, 8), range(32)).numpy()  # one key, 32 times
    >>> found = rs.fit_rotation(keys)
    >>> found.pairing, found.frequencies.round(6).tolist()
    ('half', [1.0, 0.316228, 0.1, 0.031623])
    """
    after = np.asarray(after, dtype=np.float64)
    if after.ndim != 3 or after.shape[1] < 4:
        raise ValueError(f"after must be (head, token, dimension) with at least 4 tokens, not {after.shape}")
    where = np.arange(after.shape[1], dtype=float) if positions is None else np.asarray(positions, dtype=float)
    if where.shape != after.shape[1:2]:
        raise ValueError(f"positions must be one number for each of {after.shape[1]} tokens, not {where.shape}")
    if before is not None:
        before = np.asarray(before, dtype=np.float64)
        if before.shape != after.shape:
            raise ValueError(f"before must have the shape of after, {after.shape}, not {before.shape}")
    elif tokens is not None:
        after, where, before = _repeated(after, where, np.asarray(tokens))
    even, growth = _evened(after, before)
    planes = find_planes(even, before, noise, prefer)
    if before is not None and planes.residual > 1e-3:  # a factor on some dimensions alone changes lengths too
        own = find_planes(after, before, noise, prefer)
        even, planes = (after, own) if own.residual < planes.residual else (even, planes)
    after = even
    if planes.pairing == "none":
        nothing = np.zeros(0)
        seen = Seen(where, np.zeros((len(where), 0), complex), nothing, before is not None)
        return Rotation(after.shape[-1], planes, nothing, nothing, 0.0, True, _factor(after, before), None, growth, seen)
    seen = _turns(planes.split(after), None if before is None else planes.split(before), where, noise, drift)
    found = _fitted(after.shape[-1], planes, seen, growth, drift)
    return found if tokens is None else replace(found, factor=None, offset=None)  # the first of a kind is rotated as well


def _evened(after: Array, before: Array | None) -> tuple[Array, float]:
    """Vectors whose lengths do not depend on the position, and by how much they did: some models scale queries by position."""
    sizes = np.sqrt((after**2).sum(-1))
    if before is not None:
        sizes = sizes / np.maximum(np.sqrt((before**2).sum(-1)), 1e-300)
    first = sizes[:, :1]
    if not (sizes > 0).all():
        return after, 0.0
    return after * (first / sizes)[..., None], float(np.abs(sizes / first - 1).max())


def _repeated(after: Array, where: Array, tokens: NDArray[np.int64]) -> tuple[Array, Array, Array]:
    """Vectors of tokens that came before, how far they are from the first of their kind, and the vectors of that first one."""
    firsts: dict[int, int] = {}
    at, of = [], []
    for place, token in enumerate(tokens.tolist()):
        if token in firsts:
            at.append(place)
            of.append(firsts[token])
        firsts.setdefault(token, place)
    if len(at) < 4:
        raise ValueError(f"tokens must repeat at least 4 times to show a rotation, not {len(at)}: take a longer text")
    return after[:, at], where[at] - where[of], after[:, of]


def _turns(after: Complex, before: Complex | None, where: Array, noise: float, drift: bool) -> Seen:
    """Turns by least squares over heads; rounding is larger, relative to them, in planes of small vectors.

    Where vectors drift, lengths within a plane show by how much: an error has no reason to change angles more than lengths.
    """
    start = after[:, :1] if before is None else before
    sizes = (np.abs(start) ** 2).sum(0)
    turns = (after * start.conj()).sum(0) / np.maximum(sizes, 1e-300)
    usual = np.sqrt((np.abs(after) ** 2).mean())
    own = np.sqrt((np.abs(after) ** 2).mean((0, 1)))
    grown = noise * np.maximum(1.0, 0.1 * usual / np.maximum(own, 1e-300))
    if drift:
        lengths = np.abs(after)
        varied = np.sqrt(((lengths - lengths.mean(1, keepdims=True)) ** 2).mean((0, 1)))
        grown = np.maximum(grown, 2 * np.maximum(varied, np.sqrt((varied**2).mean())) / np.maximum(own, 1e-300))
    return Seen(where, turns, np.maximum(grown, 1e-13), before is not None)


def _fitted(head_dim: int, planes: Planes, seen: Seen, growth: float, drift: bool) -> Rotation:
    steps = seen.positions - (0 if seen.absolute else seen.positions[0])
    order = np.argsort(steps)
    steps, units = steps[order], seen.turns[order] / np.maximum(np.abs(seen.turns[order]), 1e-300)
    near = steps <= steps[0] + max(NEAR, steps[min(3, len(steps) - 1)] - steps[0])
    rates = _search(steps[near], units[near])
    limit = float(steps[near].max())
    starts, left = np.zeros_like(rates), np.zeros(units.shape)
    clear = seen.noise <= max(0.02, float(seen.noise.min()))  # planes of next to no length show nothing
    while True:
        use = steps <= limit
        for _ in range(3):
            left = np.angle(units[use] * np.exp(-1j * (steps[use, None] * rates + starts)))
            rates, starts = _regressed(steps[use], left, rates, starts, free=seen.absolute)
        left = np.angle(units * np.exp(-1j * (steps[:, None] * rates + starts)))
        if use.all() or np.sqrt((left[use][:, clear] ** 2).mean()) > 0.3:
            break
        limit = max(2 * limit, float(steps[~use].min()))
    spread = np.sqrt(((steps - steps.mean()) ** 2).sum()) if seen.absolute else np.sqrt((steps**2).sum())
    spread = float(np.abs(steps).max()) if drift else spread
    typical = np.sqrt((left**2).mean(0))
    errors = np.maximum(typical, seen.noise) / max(float(spread), 1e-300)
    whole = Seen(seen.positions[order], seen.turns[order], seen.noise, seen.absolute)
    linear = bool((np.abs(left) <= 2 * whole.allowed(rates)).all()) and planes.residual < 0.05
    factor = float(np.median(np.abs(seen.turns))) if seen.absolute else None
    offset = _offset(rates, starts, errors) if seen.absolute and linear else None
    return Rotation(
        head_dim, planes, rates, errors, float(np.sqrt((left[:, clear] ** 2).mean())), linear, factor, offset, growth, whole
    )


def _search(steps: Array, units: Complex) -> Array:
    """The frequency of every plane with the largest peak of its periodogram."""
    tries = GRID * int(min(max(np.ptp(steps), 16), 4096))
    grid = np.linspace(-np.pi, np.pi, tries, endpoint=False)
    peaks = np.abs(np.exp(-1j * grid[:, None] * steps) @ units)
    peaks *= 1 - 1e-6 * np.abs(grid[:, None])  # of equal ones the slowest
    found: Array = grid[peaks.argmax(0)]
    return found


def _regressed(steps: Array, left: Array, rates: Array, starts: Array, free: bool) -> tuple[Array, Array]:
    """Frequencies and angles at 0, corrected by a line through the angles that are left over."""
    middle = steps.mean() if free else 0.0
    slopes = ((steps - middle)[:, None] * left).sum(0) / max(float(((steps - middle) ** 2).sum()), 1e-300)
    return rates + slopes, starts + (left.mean(0) - slopes * middle if free else 0.0)


def _offset(rates: Array, starts: Array, errors: Array) -> float | None:
    """The position number of position 0 that explains the angles there; None if no number does."""
    grid = np.arange(-256, 257)
    strong = np.abs(rates) > 6 * errors
    if not strong.any():
        return None
    fits = np.cos(starts[strong] - grid[:, None] * rates[strong]).mean(1)
    best = int(fits.argmax())
    return float(grid[best]) if fits[best] > 0.999 else None


def anchored(rotation: Rotation, after: Array, before: Array) -> Rotation:
    """The same rotation of equal tokens with its factor and offset, from the vector of each head before it (head, dimension).

    Both stay unknown if the vectors are not those before the rotation, or are scaled differently in different heads.
    """
    noise = float(np.median(rotation.seen.noise)) if len(rotation.seen.noise) else 2.0**-24
    if rotation.pairing == "none":
        return rotation
    start, end = rotation.planes.split(before), rotation.planes.split(after[:, 0])
    turn = (end * start.conj()).sum(0) / np.maximum((np.abs(start) ** 2).sum(0), 1e-300)
    left = np.linalg.norm(end - turn * start) / max(float(np.linalg.norm(end)), 1e-300)
    factor = float(np.median(np.abs(turn)))
    if left > 4 * noise or np.abs(np.abs(turn) - factor)[rotation.turning].max(initial=0.0) > 8 * noise * factor:
        return rotation
    offset = _offset(rotation.frequencies, np.angle(turn), rotation.errors)
    first = float(rotation.seen.positions[0])
    return replace(rotation, factor=factor, offset=None if offset is None else offset - first)


def _factor(after: Array, before: Array | None) -> float | None:
    return None if before is None else float(np.sqrt((after**2).sum() / max((before**2).sum(), 1e-300)))
