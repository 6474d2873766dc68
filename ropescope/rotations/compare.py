"""A fitted rotation against the one that is claimed: what departs, from which position on, and the likely cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from .fit import Rotation, Seen
from .planes import Array, Planes
from .positions import explained, explanation
from .scaling import SINGLE, SURE, name_scaling, plain

What = Literal["rotation", "pairing", "dimensions", "direction", "frequencies", "positions", "precision", "factor", "agreement"]


@dataclass(frozen=True)
class Claim:
    """The rotation that a layer should apply.

    frequencies  radians per position of each plane; empty for layers that do not rotate
    pairing      "half" or "interleaved"; None if it is not claimed
    first        the first dimension that turns; None if it is not claimed
    factor       on lengths (YaRN's attention factor); None if it is not claimed
    scaling      how that is called, with its constants
    constants    base, factor, original length and so on
    others       other frequencies that a fault may use, by what they are: those of other layers, or without scaling
    """

    frequencies: Array
    pairing: Literal["half", "interleaved"] | None = None
    first: int | None = None
    factor: float | None = None
    scaling: str = ""
    constants: Mapping[str, float] = field(default_factory=dict)
    others: Mapping[str, Array] = field(default_factory=dict)

    @property
    def planes(self) -> Planes | None:
        """The planes that are claimed, where they are."""
        if not len(self.frequencies) or self.pairing is None:
            return None
        return Planes(self.pairing, self.first or 0, len(self.frequencies))


@dataclass(frozen=True)
class Departure:
    """One difference from what is claimed.

    what      which property of the rotation
    cause     in one sentence, where it is known
    position  the first position number at which angles part; None if it is not about angles
    plane     the plane that parts first
    """

    what: What
    cause: str
    position: float | None = None
    plane: int | None = None

    @property
    def said(self) -> str:
        """The older name of `cause`."""
        return self.cause


def departures(found: Rotation, claim: Claim) -> list[Departure]:
    """All differences between a fitted rotation and the claimed one; an empty list if it is as claimed.

    >>> import numpy as np, ropescope as rs, torch
    >>> from ropescope.rotations import Claim, departures
    >>> keys = rs.Rope(8, base=500.0).rotate(torch.randn(2, 1, 8).double().expand(2, 32, 8), range(32)).numpy()
    >>> claim = Claim(10000.0 ** (-np.arange(4) / 4), "half", constants={"base": 10000.0})
    >>> print(departures(rs.fit_rotation(keys), claim)[0].cause)
    base is 500, not 10000
    """
    claimed = bool(np.any(claim.frequencies))
    turns = bool(found.turning.any())
    if not claimed:
        if not turns and found.planes.residual < 0.5:
            return []
        scaling = name_scaling(found.frequencies, found.errors)
        return [Departure("rotation", f"it rotates ({scaling}), but should not", _start(found.seen), 0)]
    if found.planes.pairing == "none" or not turns:
        visible = np.abs(claim.frequencies).max() * np.ptp(found.seen.positions)
        if visible < 8 * (found.seen.noise.max(initial=0.0) or 1e-6):
            return []
        return [Departure("rotation", "it does not rotate, but should", _start(found.seen), 0)]
    wrong = _layout(found, claim)
    if wrong:
        return wrong
    return [*_angles(found, claim), *_lengths(found, claim)]


def _start(seen: Seen) -> float:
    return float(np.sort(seen.positions)[min(1, len(seen.positions) - 1)])


def _layout(found: Rotation, claim: Claim) -> list[Departure]:
    """Departures of pairing, dimensions and direction."""
    start = _start(found.seen)
    if found.planes.residual > 0.05:
        share = f"{found.planes.residual:.0%} of what changes"
        return [
            Departure("rotation", f"it is no rotation: {share} does not stay within planes (wrong sign of a sine?)", start, 0)
        ]
    planes, claimed = found.planes, claim.planes
    if claimed is not None:
        if planes.pairing != claimed.pairing:
            return [Departure("pairing", f"dimensions are paired {planes.pairing}, not {claimed.pairing}", start, 0)]
        turning = np.flatnonzero(found.turning)
        ours = (planes.first, planes.count)
        theirs = (claimed.first if claim.first is not None else planes.first, claimed.count)
        if planes.pairing == "interleaved":  # planes outside of the claimed ones must stand still, and slow ones look so
            begin = (theirs[0] - planes.first) // 2
            inside = (turning >= begin) & (turning < begin + claimed.count)
            ours = theirs if inside.all() else (planes.first + 2 * int(turning[0]), int(np.ptp(turning)) + 1)
            due = begin + np.flatnonzero(np.abs(claim.frequencies) > 16 * _errors(found, claim))
            if (
                inside.all()
                and turning[0] == begin
                and len(missing := due[due > turning[-1]]) >= 2
                and len(due) - len(missing) > 0
            ):
                ours = (theirs[0], int(turning[-1]) - begin + 1)
        if ours != theirs:
            cause = f"dimensions {_range(*ours)} turn, not {_range(*theirs)}"
            return [Departure("dimensions", f"{cause} ({2 * ours[1]} instead of {2 * theirs[1]})", start, int(turning[0]))]
    rates = _inside(found, claim)
    number = min(len(rates), len(claim.frequencies))
    both = rates[:number] * claim.frequencies[:number]
    sure = np.abs(both) > 0
    weights = np.abs(claim.frequencies[:number]) * (np.abs(rates[:number]) > 6 * _errors(found, claim)[:number])
    if not sure.any() or (np.sign(both) * weights).sum() >= -0.5 * weights.sum():
        return []
    whole = _padded(found, claim)
    mirrored = explained(found.seen, np.exp(-1j * np.outer(found.seen.positions, whole)), whole) <= 1
    return [Departure("direction", "it turns backwards", start, 0)] if mirrored else []


def _range(first: int, count: int) -> str:
    return f"{first} to {first + 2 * count - 1}"


def _inside(found: Rotation, claim: Claim) -> Array:
    """Fitted frequencies of the claimed planes."""
    return found.frequencies[_begin(found, claim) :][: len(claim.frequencies)]


def _errors(found: Rotation, claim: Claim) -> Array:
    return found.errors[_begin(found, claim) :][: len(claim.frequencies)]


def _begin(found: Rotation, claim: Claim) -> int:
    claimed = claim.planes
    if claimed is None or found.planes.pairing != "interleaved" or claim.first is None:
        return 0
    return max(0, (claim.first - found.planes.first) // 2)


def _padded(found: Rotation, claim: Claim, frequencies: Array | None = None) -> Array:
    """Claimed frequencies for all fitted planes; planes that are not claimed stand still."""
    rates = claim.frequencies if frequencies is None else frequencies
    whole = np.zeros(len(found.frequencies))
    begin = _begin(found, claim)
    number = min(len(rates), len(whole) - begin)
    whole[begin : begin + number] = rates[:number]
    return whole


def differences(found: Rotation, claim: Claim) -> tuple[Array, Array] | None:
    """Angles by which turns differ from those claimed, and those that rounding explains; None where planes are not the same."""
    claimed = claim.planes
    if claimed is None or found.pairing != claimed.pairing or len(found.frequencies) < claimed.count:
        return None
    seen = found.seen if not found.offset else replace(found.seen, positions=found.seen.positions + found.offset)
    rates = _padded(found, claim)
    turns = np.exp(1j * np.outer(seen.positions, rates))
    turns = turns if seen.absolute else turns * turns[:1].conj()
    return np.angle(seen.turns * turns.conj()), seen.allowed(rates)


def parting(seen: Seen, rates: Array) -> tuple[float, int] | None:
    """The first position number, and its plane, at which angles are not those of the frequencies; None if they all are."""
    turns = np.exp(1j * np.outer(seen.positions, rates))
    turns = turns if seen.absolute else turns * turns[:1].conj()
    apart = np.abs(np.angle(seen.turns * turns.conj())) / seen.allowed(rates)
    bad = np.flatnonzero((apart > 1).any(1))
    if not len(bad):
        return None
    return float(seen.positions[bad[0]]), int(apart[bad[0]].argmax())


def _angles(found: Rotation, claim: Claim) -> list[Departure]:
    """Departures of frequencies, position numbers and precision."""
    rates = _padded(found, claim)
    if found.offset:  # where counting starts does not matter, as long as queries and keys agree
        found = replace(found, seen=replace(found.seen, positions=found.seen.positions + found.offset))
    allowed = SURE * found.errors + SINGLE * np.abs(rates)
    parted = parting(found.seen, rates)
    slopes = np.abs(found.frequencies - rates) > allowed
    off = bool((slopes & found.linear).any())
    if parted is None and not off:
        return []
    place, plane = parted or (None, int((np.abs(found.frequencies - rates) / allowed).argmax()))
    for cause, other in _candidates(found, claim):
        if explained(found.seen, np.exp(1j * np.outer(found.seen.positions, other)), other) <= 1 and not _beyond(found, other):
            return [Departure("frequencies", cause, place, plane)]
    if (why := explanation(found.seen, rates)) is not None:
        what: What = "precision" if "rounded" in why or "computed" in why else "positions"
        return [Departure(what, why, place, plane)]
    if not found.linear:
        cause = f"angles do not grow evenly with the position (by {found.residual:.2g} radians)"
        return [Departure("positions", cause, place, plane)]
    return [Departure("frequencies", _scaling_of(found, claim), place, plane)]


def _beyond(found: Rotation, rates: Array) -> bool:
    return found.linear and bool((np.abs(found.frequencies - rates) > SURE * found.errors + SINGLE * np.abs(rates)).any())


def _candidates(found: Rotation, claim: Claim) -> Iterator[tuple[str, Array]]:
    """Frequencies that known faults lead to."""
    for name, rates in claim.others.items():
        yield f"frequencies are those {name}", _padded(found, claim, rates)
    number, base = len(claim.frequencies), claim.constants.get("base")
    if base:
        if claim.scaling not in ("", "default"):
            yield (
                f"scaling is missing ({claim.scaling}): frequencies are those of base {base:g}",
                _padded(found, claim, plain(base, number)),
            )
        for size in {found.head_dim, 4 * number, number, 2 * found.head_dim} - {2 * number}:
            cause = f"frequencies are computed for {size} dimensions, not {2 * number}"
            yield cause, _padded(found, claim, base ** (-2 * np.arange(number) / size))
        unscaled = plain(base, number)
        twice = claim.frequencies**2 / unscaled
        if claim.scaling not in ("", "default"):
            yield f"scaling is applied twice ({claim.scaling})", _padded(found, claim, twice)
    yield "frequencies are in reverse order", _padded(found, claim, claim.frequencies[::-1])
    yield "frequencies are those of the next plane", _padded(found, claim, np.append(claim.frequencies[1:], 0.0))
    yield "frequencies are those of the plane before", _padded(found, claim, np.append(1.0, claim.frequencies[:-1]))


def _scaling_of(found: Rotation, claim: Claim) -> str:
    """What the fitted frequencies are, in contrast to what is claimed."""
    seen = name_scaling(_inside(found, claim), _errors(found, claim), claim.constants.get("original_max_position_embeddings"))
    base, number = claim.constants.get("base"), len(claim.frequencies)
    rates = _inside(found, claim)
    turns = np.flatnonzero(claim.frequencies[: len(rates)])[:8]
    ratio = np.median(rates[turns] / claim.frequencies[turns])
    even = _padded(found, claim, ratio * claim.frequencies)
    if not _beyond(found, even):
        return f"all angles are {ratio:.5g} times those claimed: position numbers or frequencies are scaled"
    if seen.name == "none" and base is not None:
        own = seen.constants["base"]
        factor = (own / base) ** ((number - 1) / number) if number > 1 else 1.0
        near = f" (NTK-aware scaling by {factor:.3g})" if own > 1.01 * base and claim.scaling in ("", "default") else ""
        return f"base is {own:.6g}{near}, not {base:.6g}" + (f", and {claim.scaling} is missing" if _scaled(claim) else "")
    wanted = f"{claim.scaling or 'none'}" + (f" of base {base:g}" if base else "")
    if seen.name == "unknown":
        off = np.abs(_inside(found, claim) / np.where(claim.frequencies == 0, np.inf, claim.frequencies) - 1)
        return f"frequencies fit no scaling we know, and differ by up to {off.max():.1%} from those claimed ({wanted})"
    return f"scaling is {seen}, not {wanted}"


def _scaled(claim: Claim) -> bool:
    return claim.scaling not in ("", "default")


def _lengths(found: Rotation, claim: Claim) -> list[Departure]:
    """Departures of the factor on lengths."""
    if claim.factor is None or found.factor is None:
        return []
    if abs(found.factor / claim.factor - 1) <= 8 * float(np.median(found.seen.noise)) + 1e-6:
        return []
    cause = f"the factor on lengths is {found.factor:.4g}, not {claim.factor:.4g}"
    return [Departure("factor", cause, _start(found.seen))]


def agreement(query: Rotation, key: Rotation) -> list[Departure]:
    """Departures of the rotation of queries from that of keys."""
    if query.pairing != key.pairing or query.planes.count != key.planes.count:
        cause = f"queries are paired {_layout_text(query)}, keys {_layout_text(key)}"
        return [Departure("agreement", cause)] if "none" in (query.pairing, key.pairing) or query.turning.any() else []
    apart = np.abs(query.frequencies - key.frequencies)
    rounding = SURE * (query.errors + key.errors) + 2 * SINGLE * np.abs(key.frequencies)
    if query.linear and key.linear and (apart > rounding).any():
        plane = int((apart / rounding).argmax())
        rates = query.frequencies[plane], key.frequencies[plane]
        return [Departure("agreement", f"queries turn by {rates[0]:.6g} in plane {plane}, keys by {rates[1]:.6g}", plane=plane)]
    if query.offset is not None and key.offset is not None and query.offset != key.offset:
        return [Departure("agreement", f"position 0 has number {query.offset:g} for queries and {key.offset:g} for keys")]
    return []


def _layout_text(rotation: Rotation) -> str:
    return "not at all" if rotation.pairing == "none" else f"{rotation.pairing} in {rotation.planes.count} planes"
