"""Positional and symbolic scores: how attention changes when keys change places.

Swap two keys with attention weights `v = (D_i, D_j)` before and `v'` after. The positional score is the cosine of `v'` and `v`
(weights stay in place), the symbolic score that of `v'` and `(D_j, D_i)` (weights follow the keys). Swaps are averaged with
weights `softmax(|D_i - D_j| / tau)`, because only a swap of unequal weights can distinguish the two.

The normaliser of the attention softmax cancels in a cosine, so each cosine is a function of two log-ratios alone,
`u = log(D_i / D_j)` before and `w` after. Hence theory about logits applies to weights, and nothing here overflows: weights of
1e-4000 are as good as any.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..inputs import number, whole, whole_array
from .visible import Blocks, Spans, movable_logits, movable_spans, over_visible

CHUNK = 1 << 16
"""Number of pairs processed at a time, so that temporaries fit in the cache of a core."""


MANY_KEYS = 48
"""From this number of keys on, pairs are processed as rows of a square instead of by index."""
WIDEST_LOGITS = 160.0
"""Range of logits up to which weights are used directly: exp(-160) to the fourth power is 1e-278, still of full precision."""


class SwapScores(NamedTuple):
    """Scores in [0, 1], shaped like the leading axes of `M`, with an axis for tau in front if several were given.

    positional  how far attention stays at its positions when keys move
    symbolic    how far attention follows the keys

    >>> import torch, ropescope as rs
    >>> positional, symbolic = rs.swap_scores(torch.zeros(4, 4))  # uniform attention: no difference
    >>> float(positional), float(symbolic)
    (1.0, 1.0)
    """

    positional: Float[Tensor, "..."]
    symbolic: Float[Tensor, "..."]


@torch.no_grad()
def swap_scores(
    M: Float[Tensor, "*batch T T"], tau: float | Sequence[float] = 1e-4, blocks: Blocks | None = None
) -> SwapScores:
    """Positional and symbolic score of each head and query, exactly, over all swaps of two keys (or of two `blocks`).

    M       logits (..., content, position), the query last, as from `counterfactual_logits`; -inf where it cannot see
    tau     temperature of the weighting of swaps, in units of attention weight; several add a first axis
    blocks  half-open `(start, stop)` ranges of positions that move as a whole, of equal or unequal length; other tokens stay.
            By default, every key before the query is a block of its own.

    Raises ValueError if `M` is not square or holds NaN or inf, fewer than two keys or blocks can move, blocks overlap or
    contain the query or positions it cannot see, or tau is not positive.

    >>> import torch, ropescope as rs
    >>> M = torch.tensor([1.0, 2.0, 6.0, 1.0]).log().expand(4, 4)  # weights 0.1, 0.2, 0.6, 0.1 whatever the contents
    >>> s = rs.swap_scores(M)
    >>> print(f"{s.positional:.3f} {s.symbolic:.3f}")
    1.000 0.324
    >>> rs.swap_scores(M, tau=[1e-4, 1.0]).symbolic.numpy().round(3).tolist()
    [0.324, 0.545]
    >>> print(f"{rs.swap_scores(M, blocks=[(0, 1), (1, 2)]).symbolic:.3f}")  # the third key stays
    0.800
    """
    taus = check_taus(tau)

    def measure(logits: Tensor, offset: int) -> Tensor:
        log_total = logits.diagonal(dim1=-2, dim2=-1).logsumexp(-1)
        return _all_pairs(movable_logits(logits, blocks, offset), log_total, taus)

    return _named(over_visible(M, measure), tau)


def _all_pairs(logits: Float[Tensor, "N m m"], log_total: Float[Tensor, " N"], taus: Sequence[float]) -> Tensor:
    """(score, tau, N) over all pairs of keys."""
    keys = logits.shape[-1]
    if keys >= MANY_KEYS:
        scores = logits.new_empty(2, len(taus), len(logits))
        narrow = logits.amax((-2, -1)) - logits.amin((-2, -1)) < WIDEST_LOGITS
        step = max(1, 4 * CHUNK // (keys * keys))
        for start in range(0, len(logits), step):
            some = slice(start, start + step)
            for as_weights in (True, False):
                which = narrow[some] == as_weights
                if which.all():
                    scores[..., some] = _squares(logits[some], log_total[some], taus, as_weights)
                elif which.any():
                    scores[..., some][..., which] = _squares(logits[some][which], log_total[some][which], taus, as_weights)
        return scores.clamp_(max=1)
    chunks: list[Tensor] = []
    items = max(1, CHUNK // (keys * keys))
    for start in range(0, len(logits), items):
        flat = logits[start : start + items].flatten(1).T.contiguous()  # rows, which pairs index
        before = flat[:: keys + 1]
        weight = (before - log_total[start : start + items]).exp()
        widest = weight.amax(0) - weight.amin(0)
        sums = flat.new_zeros(3, len(taus), flat.shape[1])
        for i, j in _pairs(keys, flat.device):
            difference = (weight.index_select(0, i) - weight.index_select(0, j)).abs_().sub_(widest)
            positional, symbolic = pair_cosines(
                before.index_select(0, i) - before.index_select(0, j),
                flat.index_select(0, j * keys + i) - flat.index_select(0, i * keys + j),
            )
            for k, tau in enumerate(taus):
                alpha = (difference / tau).exp_()
                parts = alpha, alpha * positional, alpha * symbolic
                sums[:, k] += torch.stack([part.sum(0) for part in parts])
        chunks.append(sums[1:] / sums[0])
    return torch.cat(chunks, -1).clamp_(max=1)


def _squares(logits: Float[Tensor, "N m m"], log_total: Float[Tensor, " N"], taus: Sequence[float], as_weights: bool) -> Tensor:
    """(score, tau, N) of heads with many keys, some rows of the square of pairs at a time, without indexing.

    With D_i > D_j a swap has the weight exp((D_i - D_max) / tau) exp((D_min - D_j) / tau), and with i and j exchanged that is
    smaller, so one exponential per key is enough. Cosines are computed from attention weights up to a factor if their fourth
    powers do not underflow (`as_weights`), and from log-ratios otherwise.
    """
    keys = logits.shape[-1]
    weight = (logits.diagonal(dim1=-2, dim2=-1) - log_total[:, None]).exp()
    low, high = weight.amin(-1, keepdim=True), weight.amax(-1, keepdim=True)
    heavy, light = ([(difference / tau).exp() for tau in taus] for difference in (weight - high, low - weight))
    values = (logits - logits.amax((-2, -1), keepdim=True)).exp_() if as_weights else logits
    diagonal = values.diagonal(dim1=-2, dim2=-1)
    sums = logits.new_zeros(3, len(taus), len(logits))
    rows = max(1, min(CHUNK // keys, keys // 3))  # rows start at their own diagonal: few at a time waste little
    for start in range(0, keys - 1, rows):
        some, rest = slice(start, start + rows), slice(start, None)
        here, there = values[:, some, rest], values[:, rest, some].mT.contiguous()  # content i at position j, and j at i
        one, other = diagonal[:, some, None], diagonal[:, None, rest]
        if as_weights:
            norm = (one * one + other * other).mul_((here * here).addcmul_(there, there)).rsqrt_()
            positional = (one * there).addcmul_(other, here).mul_(norm)
            symbolic = (other * there).addcmul_(one, here).mul_(norm)
        else:
            positional, symbolic = pair_cosines(one - other, there - here)
        for k, (e, f) in enumerate(zip(heavy, light, strict=True)):
            alpha = torch.maximum(e[:, some, None] * f[:, None, rest], f[:, some, None] * e[:, None, rest])
            alpha = alpha.triu_(1).flatten(1)
            sums[0, k] += alpha.sum(-1)
            sums[1, k] += torch.linalg.vecdot(alpha, positional.flatten(1))
            sums[2, k] += torch.linalg.vecdot(alpha, symbolic.flatten(1))
    return sums[1:] / sums[0]


def _pairs(keys: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """All `i < j`, some rows at a time."""
    rows = max(1, CHUNK // keys)
    for first in range(0, keys - 1, rows):
        i, j = torch.triu_indices(min(rows, keys - first), keys - first, offset=1, device=device) + first
        yield i, j


def pair_cosines(u: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines of a pair of weights after a swap with the pair before it, and with that pair exchanged.

    u, w  log-ratios before and after the swap

    Each pair is scaled so that its larger weight is 1 and the other `exp(-|log-ratio|)`, which cannot overflow.
    """
    first, second = _pair(u)
    first_after, second_after = _pair(w)
    norm = (first * first).addcmul_(second, second)
    norm = norm.mul_((first_after * first_after).addcmul_(second_after, second_after)).rsqrt_()
    positional = (first * first_after).addcmul_(second, second_after).mul_(norm)
    symbolic = first.mul_(second_after).addcmul_(second, first_after).mul_(norm)
    return positional, symbolic


def _pair(log_ratio: Tensor) -> tuple[Tensor, Tensor]:
    return log_ratio.clamp(max=0).exp_(), log_ratio.neg().clamp_(max=0).exp_()


@torch.no_grad()
def permutation_scores(
    M: Float[Tensor, "*batch T T"],
    permutations: int | Int[Tensor, "P m"] = 1000,
    tau: float | Sequence[float] = 1e-4,
    blocks: Blocks | None = None,
    seed: int = 0,
) -> SwapScores:
    """Both scores over permutations of all keys (or `blocks`) instead of swaps of two.

    permutations  number of random permutations, or the permutations themselves, (P, m): slot `k` gets key (block) `row[k]`
    seed          seed of the random permutations, which are the same for every head and query

    Other arguments are those of `swap_scores`, whose definition is extended to more than two slots: cosines run over the slots
    whose key changes, and a permutation is weighted by half the sum of |D_p - D_row(p)|, the attention that a symbolic head
    would move. With all swaps as permutations, the result equals that of `swap_scores`.

    Raises ValueError in the same cases as `swap_scores`, or if permutations are not rows of 0 to m - 1, or one is the
    identity.

    >>> import torch, ropescope as rs
    >>> M = torch.tensor([1.0, 2.0, 6.0, 1.0]).log().expand(4, 4)
    >>> swaps = torch.tensor([[1, 0, 2], [2, 1, 0], [0, 2, 1]])
    >>> print(f"{rs.permutation_scores(M, swaps).symbolic:.3f}")
    0.324
    >>> print(f"{rs.permutation_scores(M, 1000, tau=1.0).positional:.3f}")  # equal columns: no permutation changes a weight
    1.000
    """
    taus = check_taus(tau)

    def measure(logits: Tensor, offset: int) -> Tensor:
        spans = movable_spans(blocks, logits.shape[-1], offset, logits.device)
        rows = _permutation_rows(permutations, len(spans.starts), seed).to(logits.device)
        log_total = logits.diagonal(dim1=-2, dim2=-1).logsumexp(-1)
        still = torch.arange(rows.shape[-1], device=rows.device)[None]
        fixed = rows == still
        chunks: list[Tensor] = []
        items = max(1, 16 * CHUNK // (rows.numel() * int(spans.lengths.max())))
        for part, total in zip(logits.split(items), log_total.split(items), strict=True):
            before = _placed(part, spans, still)
            after = _placed(part, spans, rows)
            follows = before[:, 0][:, rows]
            weight = (before - total[:, None, None]).exp()
            moved = (weight[:, 0][:, rows] - weight).abs().sum(-1) / 2
            positional, symbolic = (_log_space_cosine(after, other, fixed) for other in (before, follows))
            alpha = torch.stack([torch.softmax(moved / tau, -1) for tau in taus])
            chunks.append(torch.stack(((alpha * positional).sum(-1), (alpha * symbolic).sum(-1))))
        return torch.cat(chunks, -1).clamp_(max=1)

    return _named(over_visible(M, measure), tau)


def _permutation_rows(given: int | Tensor, keys: int, seed: int) -> Tensor:
    still = torch.arange(keys)
    if np.ndim(given) == 0:
        count = whole("permutations", given)
        if count < 1:
            raise ValueError(f"permutations must be at least 1, not {given}")
        generator = torch.Generator().manual_seed(whole("seed", seed))
        rows = torch.rand(count, keys, generator=generator).argsort(-1)
        while (idle := (rows == still).all(-1)).any():
            rows[idle] = torch.rand(int(idle.sum()), keys, generator=generator).argsort(-1)
        return rows
    rows = torch.from_numpy(whole_array("permutations", given))
    if rows.ndim != 2 or rows.shape[-1] != keys or not (rows.sort(-1).values == still).all():
        raise ValueError(f"permutations must be rows of 0 .. {keys - 1} in any order, one number per key or block")
    if (rows == still).all(-1).any():
        raise ValueError("permutations must move something: omit the identity")
    return rows


def _placed(logits: Float[Tensor, "N t t"], spans: Spans, rows: Int[Tensor, "P m"]) -> Float[Tensor, "N P m"]:
    """Log of the mean weight (up to the normaliser) at each slot when slot `k` holds block `row[k]`."""
    lengths = spans.lengths[rows]
    gaps = torch.cat((spans.starts[:1], spans.starts[1:] - spans.stops[:-1]))
    starts = (lengths + gaps).cumsum(-1) - lengths
    t = torch.arange(int(spans.lengths.max()), device=rows.device)
    reach = torch.minimum(t, lengths[..., None] - 1)
    placed = logits[:, spans.starts[rows][..., None] + reach, starts[..., None] + reach]
    return placed.masked_fill(t >= lengths[..., None], -math.inf).logsumexp(-1) - lengths.to(logits.dtype).log()


def _log_space_cosine(x: Tensor, y: Tensor, left_out: Tensor) -> Tensor:
    """Cosine of exp(x) and exp(y) over the last axis."""
    # A cosine does not depend on lengths: with the largest entries at 0, sums of logits cannot overflow.
    x, y = (z.masked_fill(left_out, -math.inf) for z in (x, y))
    x, y = (z - z.amax(-1, keepdim=True) for z in (x, y))
    return ((x + y).logsumexp(-1) - ((2 * x).logsumexp(-1) + (2 * y).logsumexp(-1)) / 2).exp()


def check_taus(tau: float | Sequence[float]) -> tuple[float, ...]:
    """Temperatures as a tuple.

    Raises ValueError if one is not positive.
    """
    if isinstance(tau, str | bytes):
        number("tau", tau)
    taus = tuple(number("tau", each) for each in np.atleast_1d(np.asarray(tau, dtype=object)).tolist())
    if not taus or not all(math.isfinite(t) and t > 0 for t in taus):
        raise ValueError(f"tau must be a positive number, or several, not {tau}: the papers use 1e-4")
    return taus


def _named(scores: Tensor, tau: float | Sequence[float]) -> SwapScores:
    if np.ndim(tau) == 0:
        scores = scores[:, 0]
    return SwapScores(scores[0], scores[1])
