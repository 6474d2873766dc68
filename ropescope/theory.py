"""What a head with few RoPE planes can tell apart: exact gaps of the two constructions, bounds, and where bounds end.

`models.built` holds the constructions. In one plane that turns by `angle` per position, Index gives a key `d` positions
from where it should look the logit cos(d angle), and Retrieval gives a key `d` positions before the query, whose letter is `k`
after the one sought, cos(k omega + d angle), with omega = 2 pi / alphabet. The gap of an input is its largest logit minus
its second largest. Everything here is plain mathematics on numbers; each statement carries its proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

Numbers = Float64[np.ndarray, " n"]
Angles = Float64[np.ndarray, "sets F"]


def _fall(angles: np.ndarray) -> np.ndarray:
    """1 - cos(angle), without losing digits where an angle is small."""
    fall: np.ndarray = 2 * np.sin(angles / 2) ** 2
    return fall


# Index


def farthest(length: int, back: int) -> int:
    """How far from the position it should look at (`back` positions ago) the farthest key of an input lies."""
    if length < 2:
        raise ValueError(f"length must be at least 2, not {length}: a gap needs two keys")
    if not 0 <= back < length:
        raise ValueError(f"back must lie between 0 and {length - 1}, not {back}: it points to one of {length} positions")
    return max(back, length - 1 - back)


def index_gaps(farthest: int, angle: float) -> Float64[np.ndarray, " D"]:
    """The gap of Index on inputs whose farthest key is 1, 2, ... away; exact.

    A query that looks `back` positions back gives logits cos(d angle) for d from -back to length - 1 - back. The largest is
    that of d = 0. Cosine is even, so the second largest is the largest cos(d angle) over d = 1 ... D, with D the farthest:

        gap = min over d = 1 ... D of 1 - cos(d angle).

    A gap depends on length and query through D alone, and never grows with it.
    """
    gaps: np.ndarray = np.minimum.accumulate(_fall(np.arange(1, farthest + 1) * angle))
    return gaps


def index_gap(length: int, back: int, angle: float) -> float:
    """The gap of Index for one length and one query (`back` = 0 for a letter)."""
    return float(index_gaps(farthest(length, back), angle)[-1])


def index_bound_printed(length: int, angle: float) -> float:
    """Theorem 3.2 as printed: min(1 - cos angle, 2 pi^2 / length^2), for every input. True of letters, not of integers."""
    return min(2 * math.sin(angle / 2) ** 2, 2 * math.pi**2 / length**2)


def index_bound(length: int, back: int, angle: float) -> float:
    """Theorem 3.2 repaired: min(1 - cos angle, 2 pi^2 / (D + 1)^2), with D the distance of the farthest key.

    Proof. d = 1 is among the distances, which gives the first term. For the second, put the D + 1 points 0, angle ... D angle
    on the circle. They cut it into D + 1 arcs, of which one is at most 2 pi / (D + 1) long. Its ends are a angle and b angle
    with 1 <= |a - b| <= D, so d = |a - b| is a distance with cos(d angle) >= cos(2 pi / (D + 1)) >= 1 - 2 pi^2 / (D + 1)^2.

    For a letter D + 1 = length: the printed bound. An integer that points to the middle sees only half as far, so what holds
    for every query is 8 pi^2 / (length + 1)^2. Nothing better than 1 - cos(2 pi / (D + 1)) can hold: angle = 2 pi / (D + 1)
    has it.
    """
    return min(2 * math.sin(angle / 2) ** 2, 2 * math.pi**2 / (farthest(length, back) + 1) ** 2)


def least_far(length: int, integers: int) -> int:
    """The smallest distance of the farthest key over all queries: the gap is largest there."""
    back = min(integers, length // 2)
    return farthest(length, back)


# Retrieval


def retrieval_bound_printed(length: int, angle: float, alphabet: int) -> float:
    """Theorem 3.2 as printed: 1 - cos(omega - length angle), said to be above every gap."""
    return 1 - math.cos(2 * math.pi / alphabet - length * angle)


def retrieval_least(length: int, angle: float, alphabet: int) -> float:
    """The smallest gap of Retrieval over all inputs of a length in which one key begins with the letter sought; exact.

        cos((n - 2) angle) - cos(omega - (n - 1) angle)  =  2 sin((omega - angle) / 2) sin((omega - (2 n - 3) angle) / 2)

    Proof, for 0 <= (2 n - 3) angle <= omega <= pi, n >= 2. Let the right key be d positions before the query and another one
    d', two different numbers from 0 to n - 1. The right one's logit cos(d angle) falls with d. The other's is cos(k omega +
    d' angle) with k not 0 modulo the alphabet; as d' angle <= omega, its largest value over letters is that of k = -1,
    cos(omega - d' angle), and it rises with d'. So the difference is smallest with {d, d'} = {n - 1, n - 2}. Of the two ways,
    d = n - 2 has the smaller: with a = (2 n - 3) angle / 2, the differences of the two are 2 sin(angle / 2) (sin a -
    sin(omega - a)) apart, and sin a is at most sin(omega - a) because a <= omega - a <= pi - a. All other keys can hold the
    same letter as that at d' or one farther off, so this input exists. (For n = 2 it is a query that looks at itself. Without
    those, cos angle - cos omega.)

    Hence the construction is right on all lengths with (2 n - 3) angle < omega, and at angle 0 the gap is 1 - cos omega at
    any length.
    """
    if length < 2:
        raise ValueError(f"length must be at least 2, not {length}: a gap needs two keys")
    if alphabet < 2:
        raise ValueError(f"alphabet must be at least 2, not {alphabet}: one letter leaves nothing to tell apart")
    omega = 2 * math.pi / alphabet
    if not 0 <= (2 * length - 3) * angle <= omega:
        raise ValueError(
            f"angle must lie between 0 and 2 pi / alphabet / (2 length - 3) = {omega / (2 * length - 3):.6g}, not {angle}: "
            f"beyond it the right key does not always win"
        )
    return 2 * math.sin((omega - angle) / 2) * math.sin((omega - (2 * length - 3) * angle) / 2)


def retrieval_extremes(longest: int, angle: float, alphabet: int) -> tuple[Numbers, Numbers]:
    """Smallest and largest margin of the right key over all inputs of length 2 ... `longest`, at any angle; tries all places.

    The margin is the gap where the construction is right, and negative where it is wrong. Smallest: one other key alone
    decides, so try the best letter at each place. Largest: every other key holds the letter farthest off for its place, and the
    best of those decides.
    """
    d = np.arange(longest)
    right = np.cos(d * angle)
    letters = np.arange(1, alphabet) * 2 * math.pi / alphabet
    wrong = np.cos(letters[:, None] + d * angle)
    near, far = wrong.max(0), wrong.min(0)
    least, most = np.full(longest, math.inf), np.full(longest, -math.inf)
    lowest, highest, best_near, best_far = [0], [0], [0], [0]  # two places each, as no key is both the right and a wrong one
    for n in range(1, longest):
        lowest = sorted((*lowest, n), key=lambda p: right[p])[:2]
        highest = sorted((*highest, n), key=lambda p: -right[p])[:2]
        best_near = sorted((*best_near, n), key=lambda p: -near[p])[:2]
        best_far = sorted((*best_far, n), key=lambda p: -far[p])[:2]
        least[n] = min(right[p] - near[q] for p in lowest for q in best_near if p != q)
        first, second = best_far
        most[n] = max(right[p] - far[second if p == first else first] for p in (*highest, first))
    return least[1:], most[1:]


# Several planes


def whole_root(number: int, degree: int) -> int:
    """The largest whole number whose power of that degree is at most `number`."""
    root = round(math.pow(number, 1 / degree))
    return root if root**degree <= number else root - 1


def planes_bound(planes: int, offsets: int) -> float:
    """No set of planes with unit weights keeps a larger gap over distances 1 ... `offsets`: 2 pi^2 F / floor(N^(1/F))^2.

    Proof. With k = floor(N^(1/F)), cut the torus of the F angles into k^F boxes with sides of 2 pi / k. The N + 1 points (d
    theta_1 ... d theta_F), d = 0 ... N, are more than the boxes, so two share one, say those of a and b. Then d = |a - b| is
    between 1 and N, every d theta_f is within 2 pi / k of a multiple of 2 pi, and the sum of F terms 1 - cos is at most F (2
    pi / k)^2 / 2.
    """
    return 2 * math.pi**2 * planes / whole_root(offsets, planes) ** 2


DENSEST = {1: 1.0, 2: 2 / math.sqrt(3), 3: math.sqrt(2)}
"""(smallest distance)^F times points per volume, at best: evenly spaced, hexagonal, face-centred cubic."""


def packing_bound(planes: int, offsets: int) -> float:
    """A sharper bound for up to three planes: 2 pi^2 (c_F / (N + 1))^(2/F), c = 1, 2 / sqrt(3), sqrt(2).

    Proof. Let r be the smallest distance on the torus between two of the N + 1 points above. Balls of radius r / 2 around
    them do not overlap and, repeated with period 2 pi, pack space (r <= pi sqrt(F) < 2 pi, so no ball meets its own copies).
    No packing is denser than the best known one (Thue for two planes, Hales for three), which says r <= 2 pi (c_F / (N +
    1))^(1/F). And 1 - cos x <= x^2 / 2, so the two closest points have a gap of at most r^2 / 2.
    """
    if planes not in DENSEST:
        raise ValueError(
            f"planes must be 1, 2 or 3, not {planes}: for more the densest packing is not known to be one of these"
        )
    return 2 * math.pi**2 * float((DENSEST[planes] / (offsets + 1)) ** (2 / planes))


def mean_bound(planes: int, offsets: int) -> float:
    """A bound for few offsets, F (1 + 1 / N): the gap is at most the mean over all pairs of the N + 1 points.

    In each plane the points of a circle have a sum of squared length at least 0, so the cosines of all N (N + 1) ordered
    pairs of different points add up to at least -(N + 1).
    """
    return planes * (1 + 1 / offsets)


def worst_gap(angles: Angles, offsets: int) -> Float64[np.ndarray, " sets"]:
    """The smallest gap over distances 1 ... `offsets` with each set of planes, unit weights."""
    worst = np.full(len(angles), math.inf)
    for start in range(1, offsets + 1, 1024):
        d = np.arange(start, min(start + 1024, offsets + 1))
        worst = np.minimum(worst, _fall(angles[..., None] * d).sum(-2).min(-1))
    return worst


class PlaneSet(NamedTuple):
    """Angles per position, and the smallest gap they leave."""

    angles: Float64[np.ndarray, " F"]
    gap: float


def search_planes(planes: int, offsets: int, draws: int, seed: int, lattice: bool = True) -> PlaneSet:
    """The best of `draws` random plane sets.

    A lattice draws angles 2 pi g_f / (N + 1) with whole g_f: the N + 1 points are then a group, spread alike around each of
    them. Without it angles are uniform. One plane needs no search: g = 1 spaces the points evenly, and that is the best there
    is.
    """
    points = offsets + 1
    if lattice and planes == 1:
        best = np.array([2 * math.pi / points])
        return PlaneSet(best, float(worst_gap(best[None], offsets)[0]))
    rng = np.random.default_rng(seed)
    if lattice:
        candidates = rng.integers(1, points, size=(draws, planes)) * (2 * math.pi / points)
        tried = (offsets + 1) // 2  # d and N + 1 - d have the same gap
    else:
        candidates, tried = rng.uniform(0, math.pi, size=(draws, planes)), offsets
    gaps = np.concatenate([worst_gap(part, tried) for part in np.array_split(candidates, 1 + draws // 64)])
    best = candidates[gaps.argmax()]
    return PlaneSet(best, float(worst_gap(best[None], offsets)[0]))


# What one head of one kind cannot do

Pair = Int64[np.ndarray, "2 T"]
Attention = Callable[[Int64[np.ndarray, "1 T"]], Float64[np.ndarray, " T"]]
"""From the ids of an input to the weights that its last position gives to every position."""


def index_counterexample(letters: int, length: int = 3, back: int = 1) -> Pair:
    """Two inputs of the number task with different answers, between which no symbolic head can tell at their last position.

    Assumed of the head: the logit that its last position gives to a key, and the value taken there, depend on that key's
    token (and on the query's), not on where it stands; nothing of softmax, temperature, width or read-out. Then its output is
    a function of the query and of how often each token occurs before it. Here the same letters stand before the same integer,
    in another order: both inputs hold the letter a everywhere but for one b, `back` positions before the integer `back` in
    the second input and elsewhere in the first. Index demands a of the first, b of the second.
    """
    if letters < 2 or length < 3 or not 1 <= back < length:
        raise ValueError(
            f"letters must be at least 2, length at least 3 and back from 1 to length - 1, not {letters}, {length} and {back}: "
            f"two letters must change places before the query"
        )
    a, b, query, target = 0, 1, letters + back - 1, length - 1 - back
    tokens = np.full((2, length), a, dtype=np.int64)
    tokens[:, -1] = query
    tokens[0, 0 if target else 1] = tokens[1, target] = b
    return tokens


def retrieval_counterexample(attention: Attention, alphabet: int, digits: int, length: int = 3) -> Pair:
    """Two inputs of the letter task with different answers, between which a positional head tells hardly or not at all.

    Assumed of the head: the weights of its last position depend on the query's token and on places, not on the tokens there;
    and its output depends on the query and on the weighted sum of values, a value on its token alone. Both inputs are the
    pair ab after targets a1, but for one place, where the first has the target b1 and the second the pair ba: these are the
    answers. That place is the one with the least weight w, at most 1 / (length - 1), so the two sums differ by w |value(b1) -
    value(ba)|:

    - with hard attention, all weight on one key, by nothing at all (w = 0): no positional head computes Retrieval;
    - with softmax by as little as one likes, when attention is sharp or inputs are long; but not by nothing. It must be so:
      `models.built.uniform_retrieval` weighs all places alike and still is right on every input, as its read-out looks for
      a token that begins with the letter sought among all that occur.
    """
    if alphabet < 2 or length < 3:
        raise ValueError(f"alphabet must be at least 2 and length at least 3, not {alphabet} and {length}")
    pairs = alphabet * digits
    a1, b1, ab, ba = 0, digits, pairs + 1, pairs + alphabet
    tokens = np.full((2, length), a1, dtype=np.int64)
    tokens[:, -1] = ab
    place = int(attention(tokens[:1])[:-1].argmin())
    tokens[:, place] = b1, ba
    return tokens
