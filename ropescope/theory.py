"""What a head with few RoPE planes can distinguish: exact gaps of the two constructions, bounds, and where bounds fail.

`models.built` holds the constructions. In one plane that rotates by `angle` per position, Index gives the logit cos(d angle) to
a key `d` positions from the one it should attend to. Retrieval gives cos(k omega + d angle), with omega = 2 pi / alphabet, to a
key `d` positions before the query whose letter comes `k` after the one sought. The gap of an input is its largest logit minus
its second largest. Everything here is mathematics on plain numbers, and each statement is proved in its docstring.
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
    """1 - cos(angle), accurate for small angles too."""
    fall: np.ndarray = 2 * np.sin(angles / 2) ** 2
    return fall


# Index


def farthest(length: int, back: int) -> int:
    """Distance of the farthest key from the position the query should attend to, `back` positions before its own."""
    if length < 2:
        raise ValueError(f"length must be at least 2, not {length}: a gap needs two keys")
    if not 0 <= back < length:
        raise ValueError(f"back must lie between 0 and {length - 1}, not {back}: it points to one of {length} positions")
    return max(back, length - 1 - back)


def index_gaps(farthest: int, angle: float) -> Float64[np.ndarray, " D"]:
    """Exact gap of Index on inputs whose farthest key is 1, 2, ..., `farthest` away.

    A query that points `back` positions back gives logits cos(d angle) for d from -back to length - 1 - back. The largest is
    that of d = 0. Cosine is even, so the second largest is the largest cos(d angle) over d = 1 ... D, with D the farthest:

        gap = min over d = 1 ... D of 1 - cos(d angle).

    The gap depends on length and query only through D, and never increases with it.
    """
    gaps: np.ndarray = np.minimum.accumulate(_fall(np.arange(1, farthest + 1) * angle))
    return gaps


def index_gap(length: int, back: int, angle: float) -> float:
    """The gap of Index for one length and one query (`back` = 0 for a letter)."""
    return float(index_gaps(farthest(length, back), angle)[-1])


def index_bound_printed(length: int, angle: float) -> float:
    """Theorem 3.2 as printed: min(1 - cos angle, 2 pi^2 / length^2), for every input. True for letters, not for integers."""
    return min(2 * math.sin(angle / 2) ** 2, 2 * math.pi**2 / length**2)


def index_bound(length: int, back: int, angle: float) -> float:
    """Theorem 3.2 repaired: min(1 - cos angle, 2 pi^2 / (D + 1)^2), with D the distance of the farthest key.

    Proof. d = 1 is among the distances, which gives the first term. For the second, put the D + 1 points 0, angle ... D angle
    on the circle. They cut it into D + 1 arcs, of which one is at most 2 pi / (D + 1) long. Its ends are a angle and b angle
    with 1 <= |a - b| <= D, so d = |a - b| is a distance with cos(d angle) >= cos(2 pi / (D + 1)) >= 1 - 2 pi^2 / (D + 1)^2.

    For a letter D + 1 = length, which is the printed bound. For an integer that points to the middle D is only half as large,
    so the bound for every query is 8 pi^2 / (length + 1)^2. No bound below 1 - cos(2 pi / (D + 1)) can hold, because
    angle = 2 pi / (D + 1) has this gap.
    """
    return min(2 * math.sin(angle / 2) ** 2, 2 * math.pi**2 / (farthest(length, back) + 1) ** 2)


def least_far(length: int, integers: int) -> int:
    """Smallest distance of the farthest key over all queries; the gap is largest there."""
    back = min(integers, length // 2)
    return farthest(length, back)


# Retrieval


def retrieval_bound_printed(length: int, angle: float, alphabet: int) -> float:
    """Theorem 3.2 as printed: 1 - cos(omega - length angle), claimed to be above every gap."""
    return 1 - math.cos(2 * math.pi / alphabet - length * angle)


def retrieval_least(length: int, angle: float, alphabet: int) -> float:
    """Exact smallest gap of Retrieval over all inputs of a length in which one key begins with the letter sought.

        cos((n - 2) angle) - cos(omega - (n - 1) angle)  =  2 sin((omega - angle) / 2) sin((omega - (2 n - 3) angle) / 2)

    Proof, for 0 <= (2 n - 3) angle <= omega <= pi, n >= 2. Let the right key be d positions before the query and another one
    d', two different numbers from 0 to n - 1. The right one's logit cos(d angle) falls with d. The other's is cos(k omega +
    d' angle) with k not 0 modulo the alphabet; as d' angle <= omega, its largest value over letters is that of k = -1,
    cos(omega - d' angle), and it rises with d'. So the difference is smallest with {d, d'} = {n - 1, n - 2}. Of the two ways,
    d = n - 2 has the smaller: with a = (2 n - 3) angle / 2, the differences of the two are 2 sin(angle / 2) (sin a -
    sin(omega - a)) apart, and sin a is at most sin(omega - a) because a <= omega - a <= pi - a. All other keys can have the
    same letter as that at d' or one farther off, so this input exists. (For n = 2 it is a query that attends to itself. Without
    those, it is cos angle - cos omega.)

    Hence the construction is right at all lengths with (2 n - 3) angle < omega, and at angle 0 the gap is 1 - cos omega at
    any length.
    """
    if length < 2:
        raise ValueError(f"length must be at least 2, not {length}: a gap needs two keys")
    if alphabet < 2:
        raise ValueError(f"alphabet must be at least 2, not {alphabet}: with one letter there is nothing to distinguish")
    omega = 2 * math.pi / alphabet
    if not 0 <= (2 * length - 3) * angle <= omega:
        raise ValueError(
            f"angle must lie between 0 and 2 pi / alphabet / (2 length - 3) = {omega / (2 * length - 3):.6g}, not {angle}: "
            f"beyond it the right key does not always win"
        )
    return 2 * math.sin((omega - angle) / 2) * math.sin((omega - (2 * length - 3) * angle) / 2)


def retrieval_extremes(longest: int, angle: float, alphabet: int) -> tuple[Numbers, Numbers]:
    """Smallest and largest margin of the right key over all inputs of length 2 ... `longest`, at any angle.

    The margin is the gap where the construction is right, and negative where it is wrong. For the smallest, one other key
    decides, so the best letter is tried at each place. For the largest, every other key has the letter farthest off for its
    place, and the best of those decides.
    """
    d = np.arange(longest)
    right = np.cos(d * angle)
    letters = np.arange(1, alphabet) * 2 * math.pi / alphabet
    wrong = np.cos(letters[:, None] + d * angle)
    near, far = wrong.max(0), wrong.min(0)
    least, most = np.full(longest, math.inf), np.full(longest, -math.inf)
    lowest, highest, best_near, best_far = [0], [0], [0], [0]  # two places each, because no key is both right and wrong
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
    """Largest integer whose power of this degree is at most `number`."""
    root = round(math.pow(number, 1 / degree))
    return root if root**degree <= number else root - 1


def planes_bound(planes: int, offsets: int) -> float:
    """Upper bound 2 pi^2 F / floor(N^(1/F))^2 on the gap of F planes with unit weights over distances 1 ... N = `offsets`.

    Proof. With k = floor(N^(1/F)), cut the torus of the F angles into k^F boxes with sides of 2 pi / k. The N + 1 points (d
    theta_1 ... d theta_F), d = 0 ... N, are more than the boxes, so two share one, say those of a and b. Then d = |a - b| is
    between 1 and N, every d theta_f is within 2 pi / k of a multiple of 2 pi, and the sum of F terms 1 - cos is at most F (2
    pi / k)^2 / 2.
    """
    return 2 * math.pi**2 * planes / whole_root(offsets, planes) ** 2


DENSEST = {1: 1.0, 2: 2 / math.sqrt(3), 3: math.sqrt(2)}
"""Largest (smallest distance)^F times points per volume: evenly spaced, hexagonal, face-centred cubic."""


def packing_bound(planes: int, offsets: int) -> float:
    """Sharper upper bound for up to three planes: 2 pi^2 (c_F / (N + 1))^(2/F), c = 1, 2 / sqrt(3), sqrt(2).

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
    """Upper bound for few offsets, F (1 + 1 / N): the gap is at most the mean over all pairs of the N + 1 points.

    In each plane the squared length of the sum of the points on the circle is at least 0, so the cosines of all N (N + 1)
    ordered pairs of different points add up to at least -(N + 1).
    """
    return planes * (1 + 1 / offsets)


def worst_gap(angles: Angles, offsets: int) -> Float64[np.ndarray, " sets"]:
    """Smallest gap over distances 1 ... `offsets` of each set of planes with unit weights."""
    worst = np.full(len(angles), math.inf)
    for start in range(1, offsets + 1, 1024):
        d = np.arange(start, min(start + 1024, offsets + 1))
        worst = np.minimum(worst, _fall(angles[..., None] * d).sum(-2).min(-1))
    return worst


class PlaneSet(NamedTuple):
    """Angles per position of some planes, and their smallest gap."""

    angles: Float64[np.ndarray, " F"]
    gap: float


def search_planes(planes: int, offsets: int, draws: int, seed: int, lattice: bool = True) -> PlaneSet:
    """The best of `draws` random sets of planes.

    With `lattice`, angles are 2 pi g_f / (N + 1) with random integers g_f: the N + 1 points are then a group, and look the same
    from each of them. Without it angles are uniform. One plane needs no search: g = 1 spaces the points evenly, which is
    optimal.
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


# Canonical tasks: leads of the built heads, and the weight of the right key by its place


def aimed_gap(items: int, symbols: int, angle: float) -> float:
    """Smallest lead of the right pair of `models.built.h_sym`: 2 sin(omega / 2) sin(omega / 2 - r), r = (n - 1) angle / 2.

    Proof, for 0 <= 2 r < omega <= pi. The right pair has cos((c - p) angle) >= cos r. Another has cos(k omega + (c - p')
    angle), k not 0, at most cos(omega - r). The difference cos r - cos(omega - r) is that product, and it occurs, with the
    two at opposite ends and neighbouring symbols. The query itself has the logit 0, which is cos r less.
    """
    omega, r = 2 * math.pi / symbols, (items - 1) * angle / 2
    return min(2 * math.sin(omega / 2) * math.sin(omega / 2 - r), math.cos(r))


def latest_gap(items: int, angle: float) -> float:
    """Smallest rise of sin((p - (n - 1) / 2) angle) from a place to the next: 2 sin(angle / 2) cos((n - 2) angle / 2).

    It occurs at either end, because the sine is steepest in the middle, and is positive while 0 < (n - 2) angle < pi. A single
    item competes only with the query itself, over which `models.built.h_mix` has the same lead.
    """
    return 2 * math.sin(angle / 2) * math.cos(max(0, items - 2) * angle / 2)


def single_gap(items: int, symbols: int, angle: float, aim: float) -> float:
    """Smallest lead of the right pair of `models.built.h_single`; positive exactly where that head is right.

    Against an earlier match: cos(aim + d angle) - cos(aim + (d + 1) angle), which grows with d, so it is smallest at d = 0.
    Against another symbol: cos(aim + d angle) - cos(omega - aim - d' angle) falls with d and d', which are two of 0 ... n -
    1. Against the query itself, whose logit is 0: cos(aim + (n - 1) angle).
    """
    omega, last = 2 * math.pi / symbols, items - 1
    return min(
        math.cos(aim) - math.cos(aim + angle),
        math.cos(aim + last * angle) - math.cos(omega - aim - (last - 1) * angle),
        math.cos(aim + (last - 1) * angle) - math.cos(omega - aim - last * angle),
        math.cos(aim + last * angle),
    )


class Single(NamedTuple):
    """Angle and aim of a head that computes partial induction in one plane, and its smallest lead."""

    angle: float
    aim: float
    gap: float


def single_best(items: int, symbols: int, grid: int = 100) -> Single:
    """The head with the largest smallest lead over a grid of angles and aims with 2 aim + (2 n - 3) angle < omega."""
    if items < 2 or symbols < 2:
        raise ValueError(f"items and symbols must be at least 2, not {items} and {symbols}")
    omega = 2 * math.pi / symbols
    tried = []
    for share in np.arange(1, grid) / grid:  # share of the available angle that the aim uses
        for used in np.arange(1, grid) / grid:
            aim, angle = share * used * omega / 2, (1 - share) * used * omega / (2 * items - 3)
            tried.append(Single(float(angle), float(aim), single_gap(items, symbols, angle, aim)))
    return max(tried, key=lambda one: one.gap)


def index_weights(items: int, angle: float, beta: float) -> Numbers:
    """Largest weight of `models.built.h_pos` for each place j = 0 ... n - 1 that a query asks for: U-shaped in j (theorem 7).

        1 / weight(j) = 1 + sum over p != j of exp(beta (cos((p - j) angle) - 1)) + exp(-beta)

    Proof of the shape, for (n - 1) angle <= pi. Write f(d) for the term of distance d, which falls with d. Going from j to j
    + 1 the input gains a key at distance j + 1 on one side and loses that at n - 1 - j on the other, so the sum changes by
    f(j + 1) - f(n - 1 - j): it grows up to the middle and falls after it. A place at an end has neighbours on one side only.
    """
    places = np.arange(items)
    weights: np.ndarray = 1 / (np.exp(-beta * _fall((places[:, None] - places) * angle)).sum(1) + math.exp(-beta))
    return weights


def retrieval_weights(items: int, angle: float, beta: float) -> Numbers:
    """Largest weight of `models.built.h_sym` for each place j of the right pair, if all others have the opposite symbol.

    An inverted U in j (theorem 7). With x(p) = cos((p - (n - 1) / 2) angle), the right pair has the logit beta x(j), the pair
    at any other place p has -beta x(p), and the query itself 0:

        weight(j) = exp(beta x(j)) / (exp(beta x(j)) + C - exp(-beta x(j))),    C = 1 + sum over all p of exp(-beta x(p))

    Proof of the shape, for (n - 1) angle <= 2 pi, where x falls from the middle to both ends. The weight grows with exp(beta
    x) / (C - exp(-beta x)), whose derivative in x has the sign of C - 2 exp(-beta x). Both ends have the same, largest
    exp(-beta x(p)), and C holds the two of them and 1, so it is positive.
    """
    x = np.cos((np.arange(items) - (items - 1) / 2) * angle)
    others = 1 + np.exp(-beta * x).sum() - np.exp(-beta * x)
    weights: np.ndarray = np.exp(beta * x) / (np.exp(beta * x) + others)
    return weights


# What a single positional or symbolic head cannot compute

Pair = Int64[np.ndarray, "2 T"]
Attention = Callable[[Int64[np.ndarray, "1 T"]], Float64[np.ndarray, " T"]]
"""Function from the ids of an input to the weights of its last position on every position."""


def index_counterexample(letters: int, length: int = 3, back: int = 1) -> Pair:
    """Two inputs of the number task with different answers that no symbolic head can distinguish at their last position.

    Assumption: the logit that the last position gives to a key, and the value there, depend on the tokens of key and query,
    not on the key's position. Nothing is assumed about softmax, temperature, width or read-out. Then the output is a function
    of the query and of how often each token occurs before it. Both inputs have the same letters before the same integer, in
    another order: the letter a everywhere except one b, which is `back` positions before the integer `back` in the second
    input and elsewhere in the first. Index requires a for the first and b for the second.
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
    """Two inputs of the letter task with different answers that a positional head can hardly distinguish, or not at all.

    Assumption: the weights of the last position depend on the query's token and on positions, not on the tokens there; the
    output depends on the query and on the weighted sum of values, and a value on its token alone. Both inputs are the pair ab
    after targets a1, except at one place, where the first has the target b1 and the second the pair ba, which are the answers.
    This place has the smallest weight w, at most 1 / (length - 1), so the two sums differ by w |value(b1) - value(ba)|:

    - with hard attention (all weight on one key), by 0 since w = 0: no positional head computes Retrieval;
    - with softmax, by an arbitrarily small but positive amount if attention is sharp or inputs are long. It cannot be 0:
      `models.built.uniform_retrieval` has equal weights on all places and is still right on every input, because its read-out
      looks among all tokens that occur for one that begins with the letter sought.
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


# The same for the canonical tasks

Leads = Callable[[Int64[np.ndarray, "B T"]], Float64[np.ndarray, " B"]]
"""Function from inputs to the read-out of the first attribute minus that of the second."""


def place_counterexample(items: int, symbols: int, asked: int = 0) -> Pair:
    """Two inputs of `IndexTask` with different answers but the same output of every symbolic head (theorem 2).

    Assumption: logits and values depend on tokens, not on positions. Nothing is assumed about softmax, width or read-out, which
    may be any function of the query and of the result of attention. That result is the same, because both inputs have the same
    letters. One b among letters a is at the place asked for in the second input, and at another in the first.
    """
    if items < 2 or symbols < 2 or not 0 <= asked < items:
        raise ValueError(f"items and symbols must be at least 2 and asked below items, not {items}, {symbols} and {asked}")
    tokens = np.zeros((2, items + 1), dtype=np.int64)
    tokens[:, -1] = symbols + asked
    tokens[0, (asked + 1) % items] = tokens[1, asked] = 1
    return tokens


def order_counterexample(items: int, symbols: int, attributes: int) -> Pair:
    """Two inputs of `PartialInductionTask` with different answers but the same output of every symbolic head (corollary 1).

    As above, with any read-out: the pairs a1 and a2 change places, and the query is a. All pairs before them are a1.
    """
    if items < 2 or symbols < 2 or attributes < 2:
        raise ValueError(f"items, symbols and attributes must be at least 2, not {items}, {symbols} and {attributes}")
    tokens = np.zeros((2, items + 1), dtype=np.int64)
    tokens[0, -3] = tokens[1, -2] = 1
    tokens[:, -1] = symbols * attributes
    return tokens


def attribute_counterexample(leads: Leads, items: int, symbols: int, attributes: int) -> Pair:
    """Two inputs of `RetrievalTask` with different answers, of which a given positional head gets one wrong (theorem 4).

    They are inputs of `PartialInductionTask` too, which is the other half of corollary 1. Assumption: weights depend on the
    query's token and on positions, not on the tokens there; values depend on tokens; and the read-out is linear: the output of
    an attribute is a sum over places of weight times value, plus any function of the query. Softmax may have any temperature,
    including hard attention.

    Proof. Let L be the output of attribute 1 minus that of attribute 2, `leads`. Take the pairs a1 b2 at the first two places
    in both orders, and a2 b1 in both orders; further places hold the same in all four. Summed over the two orders, places
    cancel: L(a1 b2) + L(b2 a1) - L(a2 b1) - L(b1 a2) = W(q) G, where W(q) >= 0 is the weight of both places under
    query q, and G the same combination of values, whatever q is. The query a requires L > 0 > L, in this order, so W(a) G > 0;
    the query b requires W(b) G < 0. One of them fails, hence for that query the smaller L of the two that should be
    positive is no larger than the larger one of those that should be negative: these two inputs are returned.

    A read-out that is not linear can succeed: uniform attention shows which pairs occur, and a read-out that multiplies this
    with the query selects the attribute (`studies.canonical.built.bilinear_wrong`). So does a linear one if the answer is the
    pair and not its attribute (`models.built.uniform_retrieval`).
    """
    if items < 2 or symbols < items or attributes < 2:
        raise ValueError(
            f"items and attributes must be at least 2 and symbols at least items, not {items}, {attributes} and {symbols}"
        )
    a1, a2, b1, b2 = 0, 1, attributes, attributes + 1
    rest = np.arange(2, items) * attributes
    right, crossed = ((a1, b2), (b2, a1)), ((a2, b1), (b1, a2))
    for query, pairs in ((0, (right, crossed)), (1, (crossed, right))):
        ask = symbols * attributes + query
        first, second = (np.array([[*pair, *rest, ask] for pair in orders], dtype=np.int64) for orders in pairs)
        lead, lag = leads(first), leads(second)
        if lead.min() <= lag.max():
            return np.stack((first[lead.argmin()], second[lag.argmax()]))
    raise ValueError("the head distinguishes all eight inputs, so it is not positional with a linear read-out")
