"""Swap scores of long contexts without the square matrix, with a bound on the error.

The weighting of swaps, `alpha ~ exp(|D_i - D_j| / tau)`, needs only the real attention weights, which cost O(keys). With keys
sorted by weight, `exp((D_a - D_b) / tau)` is a product of a function of `a` and one of `b`, so the share of alpha in any
rectangle of swaps is known exactly before any swap is computed. Rectangles are processed from the densest on, until the rest
has a share of at most `tolerance`. A cosine lies between 0 and 1, so no score can be off by more, up to rounding.

Rounding is bounded too. If each exponent of alpha is off by at most `d`, a mean of numbers between 0 and 1 is off by at most
`tanh(d / 2)`. The exponents are differences of weights divided by tau, so a small tau magnifies the rounding of weights.

A peaked head needs a few rows. A head that spreads its weight evenly needs all swaps, which takes more time but no more
memory.
"""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..inputs import shown
from ..logits import LogitFactors
from .scores import check_taus, pair_cosines
from .visible import Blocks, Spans, movable_spans, slot_logits

TILE = 256
"""Largest side of a rectangle of swaps, in keys. Memory is a few times TILE squared numbers."""


class BoundedScores(NamedTuple):
    """Scores and their certificate: each score is within `omitted + rounding` of the exact one.

    positional  (...), 0 to 1
    symbolic    (...), 0 to 1
    omitted     (...), share of swaps that was not computed, at most the given tolerance
    rounding    (...), bound of the rounding of floating-point numbers, in proportion to 1 / tau

    >>> import torch, ropescope as rs
    >>> scores = rs.bounded_swap_scores(rs.logit_factors(torch.randn(8), torch.randn(50, 8), rs.Rope(head_dim=8)), tolerance=0)
    >>> float(scores.omitted)
    0.0
    """

    positional: Float[Tensor, "*batch"]
    symbolic: Float[Tensor, "*batch"]
    omitted: Float[Tensor, "*batch"]
    rounding: Float[Tensor, "*batch"]


@torch.no_grad()
def bounded_swap_scores(
    factors: LogitFactors, tau: float = 1e-4, blocks: Blocks | None = None, tolerance: float = 1e-6
) -> BoundedScores:
    """`swap_scores` of contexts of any length in little memory; up to rounding, no score is off by more than `tolerance`.

    factors    from `logit_factors` or `layer_factors`, with any leading axes
    tau        one temperature
    blocks     as in `swap_scores`
    tolerance  largest share of swaps, by weight, that is not computed; from 0 to below 1

    Raises ValueError in the same cases as `swap_scores`, or if the tolerance is not from 0 to below 1.

    >>> import torch, ropescope as rs
    >>> factors = rs.logit_factors(3 * torch.randn(64), torch.randn(4096, 64), rs.Rope(head_dim=64))
    >>> scores = rs.bounded_swap_scores(factors)
    >>> bool(scores.omitted <= 1e-6), bool(scores.rounding <= 1e-6)
    (True, True)
    """
    taus = check_taus(tau)
    if np.ndim(tau):
        raise ValueError(f"tau must be one number, not {shown(tau)}")
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance must be at least 0 and below 1, not {tolerance}")
    batch = factors.content.shape[:-2]
    heads = [factors.item(*index) for index in product(*map(range, batch))]
    scores = torch.stack([torch.stack(_one_head(head, taus[0], blocks, tolerance)) for head in heads], -1)
    return BoundedScores(*scores.reshape(4, *batch))


def _one_head(head: LogitFactors, tau: float, blocks: Blocks | None, tolerance: float) -> tuple[Tensor, ...]:
    diagonal, first = head.diagonal(), 0
    if head.visible is not None:
        seen = head.visible.nonzero()[:, 0]
        first = int(seen[0])
        diagonal = diagonal[seen]
    spans = movable_spans(blocks, len(diagonal), first, diagonal.device)
    shifted = Spans(spans.starts + first, spans.stops + first)
    before = _block_means(diagonal, spans)
    weight = (before - diagonal.logsumexp(-1)).exp()
    order = weight.argsort(descending=True)
    sorted_weight = weight[order]
    # Subtracting before dividing keeps all exponents near 0 where alpha is large: at 1 / tau they would lose their digits.
    heavy, light = (sorted_weight - sorted_weight[0]) / tau, (sorted_weight[-1] - sorted_weight) / tau
    rounding = _rounding(head, diagonal, sorted_weight[0], tau)

    groups = _graded_groups(len(order))
    share, pairs = _alpha_shares(heavy, light, groups)
    heavy, light = heavy.exp(), light.exp()
    # Densest rectangles first, until the rest has a share of at most the tolerance.
    tiles = (share / pairs).flatten().argsort(descending=True)
    rest = share.flatten()[tiles].flip(-1).cumsum(-1).flip(-1)
    needed = int((rest > tolerance * rest[0]).sum())
    omitted = (rest[needed] if needed < len(rest) else rest.new_zeros(())) / rest[0]

    if spans.single:
        ordered = head.select(shifted.starts[order])  # now each rectangle is a slice of both factors

    def placed(contents: slice, slots: slice) -> Tensor:
        if spans.single:
            return ordered.piece(contents, slots)
        return slot_logits(head.piece, shifted, order[contents], order[slots])

    sums = diagonal.new_zeros(3)
    for tile in tiles[:needed].tolist():
        (a0, a1), (b0, b1) = groups[tile // len(groups)], groups[tile % len(groups)]
        x, y = slice(a0, a1), slice(b0, b1)
        after = placed(y, x).mT - placed(x, y)
        positional, symbolic = pair_cosines(before[order[x], None] - before[order[y]], after)
        if a0 == b0:
            positional, symbolic = positional.triu_(1), symbolic.triu_(1)
        parts = [heavy[x] @ cosines @ light[y] for cosines in (positional, symbolic)]
        sums += torch.stack((share.flatten()[tile], *parts))
    return (sums[1] / sums[0]).clamp(max=1), (sums[2] / sums[0]).clamp(max=1), omitted, rounding


def _rounding(head: LogitFactors, diagonal: Tensor, largest: Tensor, tau: float) -> Tensor:
    """Bound of how far rounding moves a score, from the largest weight of a key that moves."""
    eps, (keys, columns) = torch.finfo(diagonal.dtype).eps, head.content.shape
    # Of a logit: a sum of products with one rounding each, then soft cap and bias, which do not magnify what came before.
    terms = float((head.content.abs().amax(-2) * head.place.abs().amax(-2)).sum())
    logit = eps * ((columns + 2) * terms + 4 * float(diagonal.abs().max()))
    # Of a weight, relative to itself: its logit, those in the normaliser, and sums and exponentials of about `keys` terms.
    weight = 2 * logit + eps * (8 + 2 * math.log2(keys) + 4 * float(diagonal.abs().max()))
    exponent = float(largest) * (2 * weight + eps) / tau
    return largest.new_tensor(math.tanh(exponent / 2) + 4 * logit + eps * (32 + 4 * math.log2(keys)))


def _block_means(diagonal: Tensor, spans: Spans) -> Tensor:
    """Log of the mean weight of each block in its own place, up to the normaliser."""
    if spans.single:
        return diagonal[spans.starts]
    parts = [diagonal[a:b].logsumexp(-1) for a, b in zip(spans.starts.tolist(), spans.stops.tolist(), strict=True)]
    return torch.stack(parts) - spans.lengths.to(diagonal.dtype).log()


def _graded_groups(keys: int) -> list[tuple[int, int]]:
    """Ranges of keys sorted by weight: of one key at both ends, where alpha changes fastest, then doubling up to TILE."""
    edges, size = [0], 1
    while edges[-1] < keys // 2:
        edges.append(min(edges[-1] + size, keys // 2))
        size = min(2 * size, TILE)
    edges = sorted({*edges, *(keys - edge for edge in edges)})
    return list(pairwise(edges))


def _alpha_shares(heavy: Tensor, light: Tensor, groups: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    """Alpha of each rectangle (group, later group) of swaps, up to a factor, and its number of swaps.

    heavy, light  log of the factor of alpha of the heavier and of the lighter key of a swap, at most 0
    """
    above = torch.stack([heavy[a:b].logsumexp(-1) for a, b in groups])
    below = torch.stack([light[a:b].logsumexp(-1) for a, b in groups])
    sizes = torch.tensor([b - a for a, b in groups], dtype=heavy.dtype, device=heavy.device)
    pairs = sizes[:, None] * sizes
    later = torch.ones_like(pairs, dtype=torch.bool).triu(1)
    share = (above[:, None] + below).masked_fill(~later, -torch.inf)
    for n, (a, b) in enumerate(groups):
        if b - a > 1:  # swaps within a group
            after = light[a:b].flip(-1).logcumsumexp(-1).flip(-1)[1:]
            share[n, n] = (heavy[a : b - 1] + after).logsumexp(-1)
            pairs[n, n] = (b - a) * (b - a - 1) / 2
    return share.exp(), pairs
