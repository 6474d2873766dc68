"""Shares of the variance of `M`, and the exclusion principle, of single tokens without `M`.

Both need only sums over `M` and over its squares, and `M` is a product of contents and places: with both centred,

    M[c, p] = mean + row[c] + column[p] + content[c] . place[p],

the sum of squares of the last part is that of the entries of `(content.T @ content) * (place.T @ place)`. That takes time
linear in the number of keys. With a soft cap, `M` is no such product; it is then computed some rows at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..logits import LogitFactors
from .shares import Exclusion, VarianceShares, shares_of_parts

AT_ONCE = 1 << 21
"""Logits held at a time if there is a soft cap."""


@dataclass(frozen=True)
class Moments:
    """Parts of `M` over the keys given: mean (...), rows and columns (..., m) around it, mean square of the rest (...)."""

    mean: Float[Tensor, "*batch"]
    rows: Float[Tensor, "*batch m"]
    columns: Float[Tensor, "*batch m"]
    rest: Float[Tensor, "*batch"]
    largest: Float[Tensor, "*batch"]


@torch.no_grad()
def moments(factors: LogitFactors) -> Moments:
    """The parts of `M` over all keys of `factors`, which the query must see."""
    if factors.soft_cap is not None:
        return _capped(factors)
    content, place = factors.content, factors.place
    middle, centre = content.mean(-2, keepdim=True), place.mean(-2, keepdim=True)
    largest = content.norm(dim=-1).amax(-1) * place.norm(dim=-1).amax(-1)
    content, place = content - middle, place - centre
    rest = ((content.mT @ content) * (place.mT @ place)).sum((-2, -1)) / content.shape[-2] ** 2
    mean, rows, columns = (middle * centre).sum((-2, -1)), (content * centre).sum(-1), (place * middle).sum(-1)
    if factors.bias is not None:
        shift = factors.bias.mean(-1)
        mean, columns = mean + shift, columns + factors.bias - shift[..., None]
        largest = largest + factors.bias.abs().amax(-1)
    return Moments(mean, rows, columns, rest, largest)


def _capped(factors: LogitFactors) -> Moments:
    batch, keys = factors.content.shape[:-2], factors.content.shape[-2]
    step = max(1, AT_ONCE // (keys * max(1, batch.numel())))
    parts = [slice(start, start + step) for start in range(0, keys, step)]
    rows, columns, largest = [], factors.content.new_zeros(*batch, keys), factors.content.new_zeros(batch)
    for part in parts:
        logits = factors.piece(part, slice(None))
        rows.append(logits.mean(-1))
        columns += logits.sum(-2) / keys
        largest = torch.maximum(largest, logits.abs().amax((-2, -1)))
    row = torch.cat(rows, -1)
    mean = row.mean(-1)
    row, columns = row - mean[..., None], columns - mean[..., None]
    rest = torch.zeros_like(mean)
    for part in parts:
        logits = factors.piece(part, slice(None)) - (mean[..., None] + row[..., part])[..., None] - columns[..., None, :]
        rest += logits.square().sum((-2, -1)) / keys**2
    return Moments(mean, row, columns, rest, largest)


def factored_shares(found: Moments) -> VarianceShares:
    """`variance_shares` from the parts of `M`."""
    parts = torch.stack((found.rows.square().mean(-1), found.columns.square().mean(-1), found.rest))
    return VarianceShares(*shares_of_parts(parts, found.largest))


def factored_exclusion(found: Moments, real: Float[Tensor, "*batch m"]) -> Exclusion:
    """`exclusion` from the parts of `M` and the real logits."""
    variance = real.var(-1, correction=0)
    level = real - found.mean[..., None]
    # (M - column's real logit)**2 is that of what the column lacks, plus what varies within it; rows likewise.
    lacking = (found.columns - level).square().mean(-1) + (found.rows - level).square().mean(-1)
    within = 2 * found.rest + found.rows.square().mean(-1) + found.columns.square().mean(-1)
    return Exclusion(variance, lacking + within)
