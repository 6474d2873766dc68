"""Scores of a layer at many queries of one text, with everything that depends on keys alone computed once for all queries.

With rotated vectors as complex numbers, `M[c, p]` is the real part of the sum over planes of

    key_c * turn_p * conj(query * turn_t)        for the query at position t.

Single tokens: the weighting of swaps is known from the real weights, and nearly all of it is on swaps with the few heaviest
keys (see `bounded`). For each of them two products with all keys or all places give the logits of all its swaps. Blocks: the
keys of a block, rotated to the place of another, are the same for all queries and heads that read them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor

from ..heads import Heads
from ..logits import exact_dtype
from .contrast import ROWS, centred, heavy_rows, identifiable, row_weights, score_floor, swap_weights
from .scores import check_taus, pair_cosines, swap_scores
from .shares import logit_entropy
from .visible import Blocks

TOLERANCE = 1e-6
"""Largest share of swaps of single tokens, by weight, that is not computed."""
AT_ONCE = 1 << 22
"""Numbers of `M` of blocks that are held at a time."""
LEAST_BLOCKS = 8
"""A query must see so many blocks, or half of them if a text has fewer than twice as many."""


class QueryScores(NamedTuple):
    """Measures of every head at every query, each (B, H, Q); NaN where a query sees fewer than two blocks.

    positional          score over swaps of two blocks
    symbolic            the other score
    entropy             of attention at the query, 0 to 1
    on_blocks           weight on all that moves
    contrast            how much swaps can show
    identifiable        1 if the head can be judged, else 0
    positional_centred  positional score, with 0 for a purely symbolic head of the same weights
    symbolic_centred    the other, with 0 for a purely positional head
    heaviest            position of the heaviest block that moves
    heaviest_weight     its weight, mean over its tokens
    score_error         share of swaps, by weight, that was not computed: neither score is off by more

    They are the registered measures of these names, each at its query instead of the last.

    >>> import torch, ropescope as rs
    >>> heads = rs.Heads(torch.randn(1, 4, 40, 8), torch.randn(1, 2, 40, 8), rs.Rope(head_dim=8), scale=8**-0.5)
    >>> found = rs.query_scores(heads, [19, 29, 39])
    >>> found.positional.shape, bool((found.score_error <= 1e-6).all())
    (torch.Size([1, 4, 3]), True)
    """

    positional: Float[Tensor, "B H Q"]
    symbolic: Float[Tensor, "B H Q"]
    entropy: Float[Tensor, "B H Q"]
    on_blocks: Float[Tensor, "B H Q"]
    contrast: Float[Tensor, "B H Q"]
    identifiable: Float[Tensor, "B H Q"]
    positional_centred: Float[Tensor, "B H Q"]
    symbolic_centred: Float[Tensor, "B H Q"]
    heaviest: Float[Tensor, "B H Q"]
    heaviest_weight: Float[Tensor, "B H Q"]
    score_error: Float[Tensor, "B H Q"]


def query_positions(blocks: Blocks, tokens: int, count: int) -> list[int]:
    """Positions of `count` queries, evenly spread from the first that sees enough blocks to the last; all if there are fewer.

    blocks  half-open ranges of positions that can change places
    tokens  length of the text
    """
    if count < 1:
        raise ValueError(f"queries must be at least 1, not {count}")
    stops = sorted(stop for _, stop in blocks)
    first = stops[min(LEAST_BLOCKS, max(2, len(stops) // 2)) - 1]
    count = min(count, tokens - first)
    if count == 1:
        return [tokens - 1]
    return [round(first + n * (tokens - 1 - first) / (count - 1)) for n in range(count)]


@torch.no_grad()
def query_scores(
    heads: Heads, positions: Sequence[int], blocks: Blocks | None = None, tau: float = 1e-4, tolerance: float = TOLERANCE
) -> QueryScores:
    """Scores of every head of a layer at many queries, with what it takes to judge them.

    heads      queries and keys of the layer
    positions  positions of the queries, in order
    blocks     half-open `(start, stop)` ranges of positions that move as a whole; at each query those before it that it sees
               completely. By default every token moves alone, except the first, on which heads rest.
    tau        temperature of the weighting of swaps
    tolerance  largest share of swaps of single tokens, by weight, that is not computed

    Raises ValueError if positions are not in order or have no query, or tau or tolerance is out of range.

    >>> import torch, ropescope as rs
    >>> heads = rs.Heads(torch.randn(1, 4, 40, 8), torch.randn(1, 2, 40, 8), rs.Rope(head_dim=8), scale=8**-0.5)
    >>> rs.query_scores(heads, [20, 39], blocks=[(1, 5), (5, 12), (12, 20), (20, 30)]).identifiable.shape
    torch.Size([1, 4, 2])
    """
    check_taus(tau)
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must lie between 0 and 1, not {tolerance}")
    tokens = heads.keys.shape[-2]
    least = tokens - heads.queries.shape[-2]
    if not positions or sorted(set(positions)) != list(positions) or not least <= positions[0] <= positions[-1] < tokens:
        raise ValueError(f"positions must be in order, from {least} to {tokens - 1}, not {list(positions)}")
    ranges = [(p, p + 1) for p in range(1, tokens - 1)] if blocks is None else sorted(blocks)
    ranges = [(start, stop) for start, stop in ranges if stop <= positions[-1]]
    single = all(stop - start == 1 for start, stop in ranges)
    size = heads.queries[..., 0, 0].numel() * len(ranges) ** 2
    if not single and len(positions) > 1 and size * len(positions) > AT_ONCE:
        half = len(positions) // 2
        parts = [query_scores(heads, some, blocks, tau, tolerance) for some in (positions[:half], positions[half:])]
        return QueryScores(*(torch.cat(both, -1) for both in zip(*parts, strict=True)))
    layer = _Turned(heads, positions)
    found = _tokens(layer, ranges, tau, tolerance) if single else _blocks(layer, ranges, tau)
    return QueryScores(*(value.unflatten(0, layer.shape) for value in found))


class _Turned:
    """Queries and keys of a layer as complex numbers; items are inputs, heads and queries in one axis.

    real  (N, T), logits as they are, -inf where a query does not see
    total (N,), log of the sum of all weights
    """

    def __init__(self, heads: Heads, positions: Sequence[int]) -> None:
        self.heads, dtype, device = heads, exact_dtype(heads.keys.device), heads.keys.device
        self.positions = torch.tensor(positions, device=device)
        self.rows = self.positions - (heads.keys.shape[-2] - heads.queries.shape[-2])
        self.key, self.key_still = heads.rope.to_planes(heads.keys.to(dtype))
        query, self.query_still = heads.rope.to_planes(heads.queries.index_select(2, self.rows).to(dtype) * heads.scale)
        self.turns = self._turns(dtype)
        self.query: Complex[Tensor, "B H Q F"] = (query * self.turns[self.positions]).conj().resolve_conj()
        self.shape = torch.Size(query.shape[:3])
        self.groups = heads.keys.shape[0] * heads.keys.shape[1]
        self.per_group = self.shape.numel() // self.groups
        places = torch.arange(heads.keys.shape[-2], device=device)
        distance = self.positions[:, None] - places
        self.seen: Bool[Tensor, "Q T"] = (distance >= 0) & (distance < (heads.window or len(places)))
        asks = _asking(self.query, self.query_still).reshape(self.groups, self.per_group, -1)
        keys = _asked(self.key * self.turns, self.key_still).flatten(0, 1)
        self.asks = asks
        item = torch.arange(self.shape.numel(), device=device)
        self.real = self.finish((asks @ keys.mT).flatten(0, 1), item, places)
        self.real = self.real.masked_fill(~self.seen[item % len(positions)], -math.inf)
        self.total = self.real.logsumexp(-1)
        if heads.sinks is not None:
            sinks = heads.sinks.to(self.total.dtype)[None, :, None].expand(self.shape).flatten()
            self.total = torch.logaddexp(self.total, sinks)

    def _turns(self, dtype: torch.dtype) -> Complex[Tensor, "T F"]:
        if self.heads.turns is not None:
            return self.heads.turns.to(self.key.dtype)
        places = torch.arange(self.heads.keys.shape[-2], device=self.key.device, dtype=dtype)
        angles = places[:, None] * torch.tensor(self.heads.rope.frequencies, dtype=dtype, device=self.key.device)
        return torch.polar(torch.ones_like(angles), angles)

    def finish(self, logits: Float[Tensor, "R *P"], item: Int[Tensor, " R"], places: Int[Tensor, "..."]) -> Tensor:
        """Logits of items at places, soft-capped and with the bias of the distance."""
        if self.heads.soft_cap is not None:
            logits = self.heads.soft_cap * torch.tanh(logits / self.heads.soft_cap)
        if self.heads.alibi is not None:
            queries = self.shape[2]
            slope = self.heads.alibi.to(logits.dtype)[item // queries % self.shape[1]]
            at = self.positions[item % queries]
            more = [1] * (logits.ndim - 1)
            logits = logits - slope.view(-1, *more) * (at.view(-1, *more) - places)
        return logits


def _asking(planes: Tensor, still: Tensor) -> Tensor:
    """Real vectors of queries whose dot products with those of `_asked` are real parts of complex products."""
    return torch.cat((planes.real, -planes.imag, still), -1)


def _asked(planes: Tensor, still: Tensor) -> Tensor:
    return torch.cat((planes.real, planes.imag, still), -1)


def _judged(
    layer: _Turned, weights: Float[Tensor, "N m"], blocks: Blocks, seen: Bool[Tensor, "N m"], floor: Tensor, scores: Tensor
) -> list[Tensor]:
    """All fields of `QueryScores` by item but the last, from the mean weights of blocks and which of them each item moves."""
    starts, stops = (torch.tensor(ends, device=floor.device) for ends in zip(*blocks, strict=True))
    weight = (weights * (stops - starts)).sum(-1)
    peak, at = weights.max(-1)
    judged = [1 - floor, identifiable(floor, weight), *(centred(score, floor) for score in scores)]
    judged += [starts[at].to(floor.dtype), peak]
    few = seen.sum(-1) < 2
    return [
        *(score.masked_fill(few, torch.nan) for score in scores),
        logit_entropy(layer.real),
        weight,
        *(value.masked_fill(few, torch.nan) for value in judged),
    ]


def _tokens(layer: _Turned, blocks: Blocks, tau: float, tolerance: float) -> list[Tensor]:
    """Single tokens: the swaps of the heaviest keys of each item."""
    keys = torch.tensor([start for start, _ in blocks], dtype=torch.long, device=layer.real.device)
    query = torch.arange(len(layer.real), device=keys.device) % len(layer.positions)
    seen = (layer.seen[:, keys] & (keys < layer.positions[:, None]))[query]
    real = layer.real.index_select(1, keys)
    weight = (real - layer.total[:, None]).exp().masked_fill(~seen, 0)
    heavy, light = swap_weights(weight, seen, tau)
    item, row = heavy_rows(heavy, tolerance)
    sums = real.new_zeros(4, len(real))
    queries, still = layer.query.flatten(0, 2), layer.query_still.flatten(0, 2)
    turns = layer.turns.index_select(0, keys)
    places = _asked(turns, turns.new_zeros(len(keys), 0).real)
    step = max(1, 4 * ROWS // max(1, len(keys)))
    edges = torch.searchsorted(item, torch.arange(layer.groups + 1, device=item.device) * layer.per_group).tolist()
    for group, (begin, end) in enumerate(pairwise(edges)):
        planes, rest = layer.key.flatten(0, 1)[group][keys], layer.key_still.flatten(0, 1)[group][keys]
        contents = _asked(planes, rest)
        for start in range(begin, end, step):
            n, a = item[start : min(start + step, end)], row[start : min(start + step, end)]
            there = _asking(queries[n] * turns[a], still[n]) @ contents.T  # every key in the place of a
            here = _asking(queries[n] * planes[a], still[n, :0]) @ places.T  # a in every place
            here += (still[n] * rest[a]).sum(-1, keepdim=True)
            there, here = layer.finish(there, n, keys[a][:, None]), layer.finish(here, n, keys)
            alpha = row_weights(heavy, light, weight, n, a)
            lighter = alpha > 0
            before = torch.where(lighter, real[n, a][:, None] - real[n], 0)
            after = torch.where(lighter, there - here, 0)
            parts = [*pair_cosines(before, after), 2 * (-before.abs()).exp() / (1 + (-2 * before.abs()).exp())]
            sums.index_add_(1, n, torch.stack([alpha.sum(-1), *(torch.linalg.vecdot(alpha, part) for part in parts)]))
    taken = torch.zeros_like(heavy)
    taken[item, row] = 1
    omitted = (heavy * (1 - taken)).sum(-1) * light.sum(-1) / sums[0]
    scores = (sums[1:] / sums[0]).clamp(max=1)
    return [*_judged(layer, weight, blocks, seen, scores[2], scores[:2]), omitted]


def _blocks(layer: _Turned, blocks: Blocks, tau: float) -> list[Tensor]:
    """Blocks: `M` of blocks at all queries, then the scores of queries that see the same blocks."""
    M, queries = _block_logits(layer, blocks), layer.shape[2]
    starts, stops = (torch.tensor(ends, device=M.device) for ends in zip(*blocks, strict=True))
    seen = layer.seen[:, starts] & (stops <= layer.positions[:, None])
    query = torch.arange(len(M), device=M.device) % queries
    real = M.diagonal(dim1=-2, dim2=-1).masked_fill(~seen[query], -math.inf)
    scores = M.new_full((2, len(M)), torch.nan)
    first, count = seen.to(torch.uint8).argmax(-1), seen.sum(-1)
    for begin, number in torch.unique(torch.stack((first, count), -1), dim=0).tolist():
        if number < 2:
            continue
        which = ((first == begin) & (count == number))[query].nonzero()[:, 0]
        some, inside = slice(begin, begin + number), real[which, begin : begin + number]
        share = (inside.logsumexp(-1) - layer.total[which]).exp()
        square = torch.nn.functional.pad(M[which, some, some], (0, 1, 0, 1))
        square[..., -1, -1] = layer.total[which] + torch.log1p(-share.clamp(max=1 - torch.finfo(share.dtype).eps))
        scores[:, which] = torch.stack(swap_scores(square, tau))
    floor = score_floor(real, layer.total, tau)
    weights = (real - layer.total[:, None]).exp()
    return [*_judged(layer, weights, blocks, seen[query], floor, scores), torch.zeros_like(floor)]


def _block_logits(layer: _Turned, blocks: Blocks) -> Float[Tensor, "N n n"]:
    """Log of the mean weight, up to the normaliser, of block c in the place of block p, as in `slot_logits`."""
    starts, stops = (torch.tensor(ends, device=layer.real.device) for ends in zip(*blocks, strict=True))
    M = layer.real.new_zeros(layer.groups, layer.per_group // layer.shape[2], layer.shape[2], len(blocks), len(blocks))
    number = torch.arange(len(blocks), device=starts.device)
    asks = layer.asks.unflatten(1, M.shape[1:3])
    items = torch.arange(len(layer.real), device=starts.device).view(M.shape[:3])
    for c, (start, stop) in enumerate(blocks):
        later = int((layer.positions < stop).sum())  # queries before the end of the block do not see it
        shift = torch.where(number < c, starts - start, stops - stop)
        places = (torch.arange(start, stop, device=starts.device) + shift[:, None]).clamp(min=0)
        moved = layer.key[:, :, None, start:stop] * layer.turns[places]
        still = layer.key_still[:, :, None, start:stop].expand(*moved.shape[:-1], -1)
        keys = _asked(moved, still).flatten(0, 1).flatten(1, 2)
        some, which = asks[:, :, later:].flatten(1, 2), items[:, :, later:].flatten()
        logits = layer.finish((some @ keys.mT).flatten(0, 1).unflatten(-1, places.shape), which, places)
        mean = logits.logsumexp(-1) - math.log(stop - start)
        M[:, :, later:, c] = mean.view(*M.shape[:2], -1, len(blocks))
    return M.flatten(0, 2)
