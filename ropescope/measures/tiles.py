"""Swap scores of single tokens in long contexts: linear memory, single precision, and a bound on the error of every score.

Keys are sorted by attention weight. With `i` before `j`, a swap has the weight `heavy_i * light_j`, so the share of any
rectangle of swaps is known before any swap is computed, and rectangles of little weight are left out. In a rectangle,

    cosines = (a_i * e_ij + b_j, b_j * e_ij + a_i) / sqrt((1 + e_ij**2) (a_i**2 + b_j**2)),

where `a` and `b` are the two weights before the swap, up to a factor, and `e_ij = exp(M[j, i] - M[i, j])` is the ratio of the
two after it. The exponent is one matrix product, because `M` is one of contents and places, and slow planes together need few
of its columns. Weighted sums of the cosines are
products of two matrices with vectors, so that several temperatures cost hardly more than one.

What bounds the error:

- Cosines lie between 0 and 1. Leaving out a share of the swaps changes no score by more than that share.
- A cosine changes at most half as fast as the exponent. A product of `r` terms in floating point is off by at most
  `r * eps * |x| |y|`, and dropped columns by `|x| |y|`, whose weighted means over swaps are known without computing swaps.
- Everything else is a sum of positive terms, with a relative error of `eps` times their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..logits import LogitFactors, exact_dtype

ROWS, COLUMNS = 128, 1024
"""Sides of the largest rectangle of swaps. Memory is a few times their product."""
WIDEST = {torch.float32: 40.0, torch.float64: 170.0}
"""Largest log-ratio that is distinguished from infinity: `exp(-40)` is no part of a cosine, and its square no underflow."""


Exponent: TypeAlias = Callable[[slice, slice, Tensor, Tensor], None]


@dataclass(frozen=True)
class Ordered:
    """Heads in one axis N, with numbers of their keys sorted by weight, heaviest first.

    order   (N, m), which key is where in that order
    logits  (N, m), real logits
    heavy   (tau, N, m), part of a swap's weight that its heavier key gives
    light   (tau, N, m), part that its lighter key gives
    known   (tau, N), error of these from that of attention weights
    """

    order: Int[Tensor, "N m"]
    logits: Float[Tensor, "N m"]
    heavy: Float[Tensor, "tau N m"]
    light: Float[Tensor, "tau N m"]
    known: Float[Tensor, "tau N"]

    def sorted(self, x: Float[Tensor, "*N m"]) -> Float[Tensor, "N m"]:
        """Numbers of keys in the order of weights."""
        return x.expand(self.order.shape).gather(-1, self.order)

    def mean(self, *terms: tuple[Tensor, Tensor]) -> Float[Tensor, "tau N"]:
        """Mean over all swaps of the sum of `left[i] * right[j]`, both in the order of weights."""
        sums = [_weighted(self.heavy * left, self.light * right) for left, right in terms]
        return torch.stack(sums).sum(0) / _weighted(self.heavy, self.light)


@dataclass(frozen=True)
class Products:
    """`M` as products, not sorted: `content @ place.T`, soft-capped, plus `shift` by position.

    content  (N, m, r)
    place    (N or 1, m, r)
    shift    (N, m)
    lacking  sizes (N or 1, m) of what content and place lack, whose products are not in `M`
    """

    content: Float[Tensor, "N m r"]
    place: Float[Tensor, "#N m r"]
    shift: Float[Tensor, "N m"]
    soft_cap: float | None
    lacking: tuple[Tensor, Tensor] | None = None


@torch.no_grad()
def tile_scores(
    factors: LogitFactors,
    keys: Int[Tensor, " m"],
    log_total: Float[Tensor, "*batch"],
    taus: Sequence[float],
    tolerance: float = 0.0,
) -> tuple[Float[Tensor, "2 tau *batch"], Float[Tensor, "tau *batch"]]:
    """Both scores over all swaps of two of `keys`, and a bound on their error.

    factors    of any number of heads, from `layer_factors`
    keys       at least two positions that every query sees
    log_total  log of the sum that normalises the attention of each head
    taus       temperatures
    tolerance  error to stay within; 0 computes everything in double precision
    """
    batch, exact = factors.content.shape[:-2], exact_dtype(keys.device)
    factors = factors.select(keys)
    heads, full = _ordered(factors, log_total, taus), _products(factors)
    groups = graded_groups(len(keys))
    share, pairs = _shares(heads, groups)
    single = torch.get_float32_matmul_precision() == "highest" and tolerance > 0
    quick = _shorter(full, tolerance / 50) if single else full
    rounding = _rounding(heads, quick, torch.float32 if single else exact)
    # Half of the tolerance is enough to leave something out. Where single precision takes more than the other half, use double.
    short = (rounding > tolerance / 2).any(0)
    if single and short.any():
        rounding = torch.where(short, _rounding(heads, full, exact), rounding)
    needed, omitted = _needed(share, pairs, (tolerance - rounding / (1 - tolerance)).clamp(min=0))
    scores = share.new_empty(2, *rounding.shape)
    for n in range(len(heads.logits)):
        how = (quick, torch.float32) if single and not short[n] else (full, exact)
        computed = share[:, n].masked_fill(~needed[n], 0).sum((-2, -1))
        scores[:, :, n] = _sums(heads, n, _exponents(heads, *how, n), how[1], groups, needed[n]) / computed
    error = omitted + rounding / (1 - omitted)
    return scores.clamp_(max=1).unflatten(-1, batch), error.unflatten(-1, batch)


def _ordered(factors: LogitFactors, log_total: Tensor, taus: Sequence[float]) -> Ordered:
    logits, order = factors.diagonal().flatten(0, -2).sort(-1, descending=True)
    weight = (logits - log_total.reshape(-1, 1)).exp()
    heavy = torch.stack([(weight - weight[:, :1]) / tau for tau in taus])
    light = torch.stack([(weight[:, -1:] - weight) / tau for tau in taus])
    # Weights of swaps are exponentials of differences of attention weights, which are known to double precision only.
    known = torch.finfo(logits.dtype).eps * (8 + logits.abs().amax(-1)) * 2 * heavy[..., -1].abs()
    return Ordered(order, logits, heavy.exp_(), light.exp_(), known)


def _products(factors: LogitFactors) -> Products:
    content = factors.content.flatten(0, -3)
    place = factors.place
    place = place[None] if place.ndim == 2 else place.expand(factors.content.shape).flatten(0, -3)
    shift = torch.zeros_like(content[..., 0])
    if factors.bias is not None:
        shift = factors.bias.expand(factors.content.shape[:-1]).flatten(0, -2)
    if factors.soft_cap is None:
        # Large parts that depend on content or place alone are numbers per key, so that the product is of small numbers.
        middle, centre = content.mean(-2, keepdim=True), place.mean(-2, keepdim=True)
        content, place = content - middle, place - centre
        shift = shift + (place @ middle.mT - content @ centre.mT)[..., 0]
        shift = shift - shift.mean(-1, keepdim=True)
    return Products(content, place, shift, factors.soft_cap)


def _shorter(full: Products, limit: float) -> Products:
    """The same with fewer columns of `content` and `place`, whose products change by about `limit` on average.

    Slow planes hardly turn within a context, so that their places lie close to few directions. What is dropped is remembered.
    """
    if full.soft_cap is not None or len(full.place) > 1:
        return full
    directions = torch.linalg.eigh(full.place[0].mT @ full.place[0]).eigenvectors.flip(-1)
    content, place = full.content @ directions, full.place @ directions
    tails = [x.square().mean(-2).flip(-1).cumsum(-1).flip(-1).sqrt() for x in (content, place)]
    enough = int((tails[0] * tails[1]).amax(0).gt(limit).sum())
    lacking = content[..., enough:].norm(dim=-1), place[..., enough:].norm(dim=-1)
    return replace(full, content=content[..., :enough], place=place[..., :enough], lacking=lacking)


def graded_groups(keys: int) -> list[tuple[int, int]]:
    """Ranges of keys sorted by weight: of one key at both ends, where weights of swaps change fastest, then doubling."""
    edges, size = [0], 1
    while edges[-1] < keys // 2:
        edges.append(min(edges[-1] + size, keys // 2))
        size = min(2 * size, ROWS)
    edges = sorted({*edges, *(keys - edge for edge in edges)})
    return list(pairwise(edges))


def _shares(heads: Ordered, groups: list[tuple[int, int]]) -> tuple[Float[Tensor, "tau N G G"], Float[Tensor, "G G"]]:
    """Weight of all swaps of a key of one group and one of a later or the same group, and the number of these swaps."""
    heavy, light = heads.heavy, heads.light
    sizes = [b - a for a, b in groups]
    share = torch.einsum(
        "tng,tnh->tngh",
        torch.stack([part.sum(-1) for part in heavy.split(sizes, -1)], -1),
        torch.stack([part.sum(-1) for part in light.split(sizes, -1)], -1),
    ).triu_(1)
    size = torch.tensor(sizes, dtype=share.dtype, device=share.device)
    pairs = (size[:, None] * size).triu_(1)
    for n, (a, b) in enumerate(groups):
        share[..., n, n] = _weighted(heavy[..., a:b], light[..., a:b])
        pairs[n, n] = (b - a) * (b - a - 1) / 2
    return share, pairs


def _weighted(left: Float[Tensor, "*batch m"], right: Float[Tensor, "*batch m"]) -> Float[Tensor, "*batch"]:
    """Sum over `i < j` of `left[i] * right[j]`."""
    later = right.flip(-1).cumsum(-1).flip(-1)[..., 1:]
    total: Tensor = torch.linalg.vecdot(left[..., :-1], later)
    return total


def _rounding(heads: Ordered, how: Products, dtype: torch.dtype) -> Float[Tensor, "tau N"]:
    """Bound on the error of scores from rounding in a precision: half the mean error of exponents, and that of sums."""
    eps = torch.finfo(dtype).eps
    content, place = heads.sorted(how.content.norm(dim=-1)), heads.sorted(how.place.norm(dim=-1))
    shift = heads.sorted(how.shift).abs() + (0 if how.soft_cap is None else 4 * how.soft_cap)
    one = torch.ones_like(shift)
    size = heads.mean((content, place), (place, content), (shift, one), (one, shift))
    error = (2 * how.content.shape[-1] + 6) * eps * size
    if how.lacking is not None:
        content, place = map(heads.sorted, how.lacking)
        error = error + heads.mean((content, place), (place, content))
    return error / 2 + (ROWS + 16) * eps + heads.known


def _needed(
    share: Float[Tensor, "tau N G G"], pairs: Float[Tensor, "G G"], budget: Float[Tensor, "tau N"]
) -> tuple[Bool[Tensor, "N G G"], Float[Tensor, "tau N"]]:
    """Which rectangles to compute, densest first, until the rest is within budget; and the share of that rest."""
    flat = share.flatten(-2)
    total = flat.sum(-1, keepdim=True)
    order = (flat / pairs.flatten().clamp(min=1)).argsort(-1)  # least dense first
    left_out = flat.gather(-1, order).cumsum(-1) / total <= budget[..., None]
    needed = torch.zeros_like(flat, dtype=torch.bool).scatter_(-1, order, ~left_out) & (pairs.flatten() > 0)
    any_tau = needed.any(0)
    omitted = flat.masked_fill(any_tau, 0).sum(-1) / total[..., 0]
    return any_tau.unflatten(-1, pairs.shape), omitted


def _sums(
    heads: Ordered, n: int, exponent: Exponent, dtype: torch.dtype, groups: list[tuple[int, int]], needed: Tensor
) -> Float[Tensor, "2 tau"]:
    """Weighted sums of both cosines of one head over the rectangles that are needed."""
    logits, heavy, light = heads.logits[n], heads.heavy[:, n], heads.light[:, n]
    scratch = [logits.new_empty(ROWS * COLUMNS, dtype=dtype) for _ in range(3)]
    sums = logits.new_zeros(2, len(heavy))
    for rows, columns in _rectangles(groups, needed, logits, WIDEST[dtype]):
        n_rows, n_columns = rows.stop - rows.start, columns.stop - columns.start
        ratio, norm, spare = (part[: n_rows * n_columns].view(n_rows, n_columns) for part in scratch)
        a, b = (logits[rows] - logits[rows.start]).exp(), (logits[columns] - logits[rows.start]).exp()
        exponent(rows, columns, ratio, spare)
        ratio.clamp_(-WIDEST[dtype], WIDEST[dtype]).exp_()
        torch.add(a.square().to(dtype)[:, None], b.square().to(dtype), out=spare)
        torch.mul(ratio, ratio, out=norm).add_(1).mul_(spare).rsqrt_()
        ratio.mul_(norm)
        if columns.start < rows.stop:  # pairs of one group: each once
            offset = rows.start - columns.start + 1
            ratio, norm = ratio.triu_(offset), norm.triu_(offset)
        left, right = torch.cat((heavy[:, rows], heavy[:, rows] * a)).to(dtype), light[:, columns]
        (moved, moved_a), (still, still_a) = ((left @ x).to(right.dtype).chunk(2) for x in (ratio, norm))
        sums[0] += torch.linalg.vecdot(moved_a + still * b, right)
        sums[1] += torch.linalg.vecdot(still_a + moved * b, right)
    return sums


def _rectangles(
    groups: list[tuple[int, int]], needed: Tensor, logits: Float[Tensor, " m"], widest: float
) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of swaps to compute: neighbours together, and few logits apart within the rows."""
    for number, wanted in enumerate(needed.tolist()):
        runs: list[list[int]] = []
        for (start, stop), each in zip(groups, wanted, strict=True):
            if each and runs and runs[-1][1] == start:
                runs[-1][1] = stop
            elif each:
                runs.append([start, stop])
        first, last = groups[number]
        if not runs:
            continue
        while first < last:
            near = int((logits[first:last] >= logits[first] - widest).sum())
            rows = slice(first, first + near)
            for start, stop in runs:
                for at in range(max(start, first), stop, COLUMNS):
                    yield rows, slice(at, min(at + COLUMNS, stop))
            first += near


def _exponents(heads: Ordered, how: Products, dtype: torch.dtype, n: int) -> Exponent:
    """Function that writes `M[j, i] - M[i, j]` of rows i and columns j into a matrix, given a second one to work in."""
    order = heads.order[n]
    content, place = how.content[n].to(dtype)[order], how.place[n if len(how.place) > 1 else 0].to(dtype)[order]
    shift = how.shift[n].to(dtype)[order]
    if how.soft_cap is None:
        one = torch.ones_like(shift)[:, None]
        left = torch.cat((place, -content, shift[:, None], -one), -1)
        right = torch.cat((content, place, one, shift[:, None]), -1).mT.contiguous()

        def product(rows: slice, columns: slice, out: Tensor, _: Tensor) -> None:
            torch.mm(left[rows], right[:, columns], out=out)

        return product
    cap, by_content, by_place = how.soft_cap, content.mT.contiguous(), place.mT.contiguous()

    def capped(rows: slice, columns: slice, out: Tensor, spare: Tensor) -> None:
        torch.mm(place[rows] / cap, by_content[:, columns], out=out).tanh_()
        torch.mm(content[rows] / cap, by_place[:, columns], out=spare).tanh_()
        out.sub_(spare).mul_(cap).add_(shift[rows, None] - shift[columns])

    return capped
