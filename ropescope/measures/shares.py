"""Analysis of variance of `M`, without permutations, temperature or softmax; entropy of attention."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from .visible import Blocks, movable_logits, over_visible


class VarianceShares(NamedTuple):
    """Shares of the variance of `M` over contents and positions, each (...); they sum to 1.

    symbol    part that depends on the content alone
    position  part that depends on the position alone
    binding   part that depends on which content is at which position

    >>> import torch, ropescope as rs
    >>> bool((sum(rs.variance_shares(torch.randn(5, 9, 9))) - 1).abs().max() < 1e-12)
    True
    """

    symbol: Float[Tensor, "*batch"]
    position: Float[Tensor, "*batch"]
    binding: Float[Tensor, "*batch"]


class Exclusion(NamedTuple):
    """Variance of the real logits and its upper bound: no head is positional, symbolic and selective at the same time.

    variance  (...), variance of the diagonal of `M`, in squared logits
    bound     (...), at least `variance`

    >>> import torch, ropescope as rs
    >>> found = rs.exclusion(torch.randn(100, 9, 9))
    >>> bool((found.variance <= found.bound).all())
    True
    """

    variance: Float[Tensor, "*batch"]
    bound: Float[Tensor, "*batch"]


@torch.no_grad()
def variance_shares(M: Float[Tensor, "*batch T T"], blocks: Blocks | None = None) -> VarianceShares:
    """Shares of a two-way analysis of variance of `M` over the keys that can move.

    symbol    depends on the content alone (rows): all of the variance without position embedding
    position  depends on the position alone (columns): all of the variance with equal keys
    binding   depends on which content is at which position, beyond the sum of both

    A constant `M` (up to rounding) has no variance; it counts as half symbol and half position.

    Raises ValueError for the same `M` and `blocks` as `swap_scores`.

    >>> import torch, ropescope as rs
    >>> place = torch.tensor([0.0, 1.0, 2.0, 0.0]).expand(4, 4)
    >>> [round(float(share), 3) for share in rs.variance_shares(place)]
    [0.0, 1.0, 0.0]
    >>> [round(float(share), 3) for share in rs.variance_shares(place + 2 * place.T)]  # twice: four times the variance
    [0.8, 0.2, 0.0]
    >>> [round(float(share), 3) for share in rs.variance_shares(torch.eye(4))]
    [0.0, 0.0, 1.0]
    """

    def measure(logits: Tensor, offset: int) -> Tensor:
        keys = movable_logits(logits, blocks, offset)
        largest = torch.maximum(keys.amax((-2, -1)), -keys.amin((-2, -1)))
        if largest.numel() and not 1e-100 < float(largest.min()) <= float(largest.max()) < 1e100:
            # Shares do not depend on the unit of logits, but squares of very large or small ones would overflow or vanish.
            exponent = torch.frexp(largest).exponent
            keys, largest = torch.ldexp(keys, -exponent[:, None, None]), torch.ldexp(largest, -exponent)
        centred = keys - keys.mean((-2, -1), keepdim=True)
        rows, columns = centred.mean(-1, keepdim=True), centred.mean(-2, keepdim=True)
        parts = torch.stack([_mean_square(part) for part in (rows, columns, centred.sub_(rows).sub_(columns))])
        return shares_of_parts(parts, largest)

    return VarianceShares(*over_visible(M, measure))


def shares_of_parts(parts: Float[Tensor, "3 *batch"], largest: Float[Tensor, "*batch"]) -> Float[Tensor, "3 *batch"]:
    """Mean squares of rows, columns and the rest as shares of their sum; half and half if that is rounding of `largest`."""
    rounding = (largest * 8 * torch.finfo(parts.dtype).eps).square()
    constant = torch.tensor([0.5, 0.5, 0.0], dtype=parts.dtype, device=parts.device).view(3, *[1] * (parts.ndim - 1))
    total = parts.sum(0)
    return torch.where(total > rounding, parts / total, constant)


@torch.no_grad()
def exclusion(M: Float[Tensor, "*batch T T"], blocks: Blocks | None = None) -> Exclusion:
    """Both sides of the exclusion principle, `variance <= bound`, which holds for every head and input.

    `variance` is that of the real logits `M[j, j]`. `bound` is the mean squared distance of the head from being positional
    plus that from being symbolic, over all m! permutations of its m keys. Each content is at each position in (m - 1)! of
    them, so the sum over permutations is a sum over `M`:

        bound = mean over c, p of (M[c, p] - M[p, p])**2 + (M[c, p] - M[c, c])**2.

    It holds because (M[c, c] - M[p, p])**2 is at most twice the sum of the two squares, and half its mean is the variance.

    Raises ValueError for the same `M` and `blocks` as `swap_scores`, except that one key is enough, or if squares of logits
    overflow.

    >>> import torch, ropescope as rs
    >>> real = torch.tensor([0.0, 1.0, 2.0, 0.0])  # the last is the query's own
    >>> found = rs.exclusion(real.expand(4, 4))  # a positional head
    >>> print(f"{found.variance:.3f} {found.bound:.3f}")
    0.667 1.333
    >>> found = rs.exclusion((real[:, None] + real) / 2)  # half-way between positional and symbolic: equality
    >>> print(f"{found.variance:.3f} {found.bound:.3f}")
    0.667 0.667
    """

    def measure(logits: Tensor, offset: int) -> Tensor:
        keys = movable_logits(logits, blocks, offset, at_least=1)
        real = keys.diagonal(dim1=-2, dim2=-1)
        bound = _mean_square(keys - real[:, None, :]) + _mean_square(keys - real[:, :, None])
        return torch.stack((real.var(-1, correction=0), bound))

    found = Exclusion(*over_visible(M, measure))
    if not (torch.isfinite(found.bound) & torch.isfinite(found.variance)).all():
        raise ValueError("M holds logits so large that their squares overflow: divide it by a constant")
    return found


def _mean_square(x: Float[Tensor, "N c p"]) -> Float[Tensor, " N"]:
    flat = x.flatten(1)
    total: Tensor = torch.linalg.vecdot(flat, flat)
    return total / flat.shape[1]


def logit_entropy(logits: Float[Tensor, "*batch T"]) -> Float[Tensor, "*batch"]:
    """Entropy of the softmax of logits, divided by the log of the number of keys that the query sees; 0 if it sees one.

    logits  (..., T); keys that the query does not see hold -inf, and any other logit counts as a key, however small its weight
    """
    weights = logits.softmax(-1)
    nats: Tensor = torch.special.entr(weights).sum(-1)
    keys = (logits > -math.inf).sum(-1).clamp(min=2).to(nats.dtype)
    return (nats / keys.log()).clamp(0, 1)


@torch.no_grad()
def entropy(M: Float[Tensor, "*batch T T"]) -> Float[Tensor, "*batch"]:
    """Entropy of the real attention weights, as a share of the largest possible: 0 for one key, 1 for equal weights.

    The largest possible is the log of the number of keys that the query sees. A key counts even if its weight is tiny.

    Raises ValueError if `M` is not square, holds NaN or inf, or one key only.

    >>> import torch, ropescope as rs
    >>> print(f"{rs.entropy(torch.zeros(8, 8)):.2f}")
    1.00
    >>> print(f"{rs.entropy(torch.diag(torch.tensor([0.0, 0.0, -100.0, -100.0]))):.2f}")  # two of four keys: log 2 / log 4
    0.50
    """

    def measure(logits: Tensor, offset: int) -> Tensor:
        keys = logits.shape[-1]
        if keys < 2:
            raise ValueError(f"M holds one key, whose entropy is always 0: use a query at position {offset + 1} or later")
        return logit_entropy(logits.diagonal(dim1=-2, dim2=-1))

    return over_visible(M, measure)
