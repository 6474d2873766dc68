"""Discrepancy: how far the largest logit is above the others, which limits how sharply a head can attend."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..inputs import whole, whole_tensor
from ..logits import exact_dtype


@torch.no_grad()
def gap(logits: Float[Tensor, "*batch T"]) -> Float[Tensor, "*batch"]:
    """Largest logit minus second largest, over visible keys (others hold -inf); inf if only one key is visible.

    logits  (..., T), for instance the diagonal of `M`; the result has the leading axes

    Raises ValueError if there is no key, a query sees none, a logit is NaN or inf, or a difference overflows.

    >>> import torch, ropescope as rs
    >>> float(rs.gap(torch.tensor([1.0, 4.0, 2.5])))
    1.5
    >>> M = rs.counterfactual_logits(torch.randn(3, 8), torch.randn(3, 6, 8), rs.Rope(head_dim=8))
    >>> rs.gap(M.diagonal(dim1=-2, dim2=-1)).shape
    torch.Size([3])
    """
    checked = _checked(logits)
    if checked.shape[-1] == 1:
        return torch.full_like(checked[..., 0], math.inf)
    best = checked.topk(2, -1).values
    return _difference(best[..., 0], best[..., 1])


@torch.no_grad()
def margin(logits: Float[Tensor, "*batch T"], right: int | Int[Tensor, "*#batch"]) -> Float[Tensor, "*batch"]:
    """Logit of the right key minus the largest other one: equal to `gap` if the head is right, negative if it is wrong.

    It is inf if only the right key is visible, and -inf if the right key is not visible.

    logits  (..., T), for instance the diagonal of `M`
    right   position of the right key, one or one per query

    Raises ValueError in the same cases as `gap`, or if `right` is not the position of a key.

    >>> import torch, ropescope as rs
    >>> logits = torch.tensor([[1.0, 4.0, 2.5], [1.0, 4.0, 2.5]])
    >>> rs.margin(logits, torch.tensor([1, 0])).tolist()
    [1.5, -3.0]
    """
    checked = _checked(logits)
    at = whole_tensor("right", right) if isinstance(right, Tensor) else torch.as_tensor(whole("right", right))
    at = at.to(checked.device)
    if at.numel() and not (at.min() >= 0 and at.max() < checked.shape[-1]):
        raise ValueError(f"right must be positions of keys, whole numbers from 0 to {checked.shape[-1] - 1}, not {right}")
    at = at.expand(checked.shape[:-1])[..., None]
    others = checked.scatter(-1, at, -math.inf).amax(-1)
    return _difference(checked.gather(-1, at)[..., 0], others)


def _difference(one: Tensor, other: Tensor) -> Tensor:
    found = one - other
    if (~found.isfinite() & one.isfinite() & other.isfinite()).any():
        raise ValueError("logits holds numbers so large that their difference overflows: divide them by a constant")
    return found


def _checked(logits: Tensor) -> Tensor:
    if not logits.ndim or not logits.shape[-1]:
        raise ValueError(f"logits must be (..., keys) with at least one key, not {tuple(logits.shape)}")
    if logits.isnan().any() or (logits == math.inf).any():
        raise ValueError("logits holds NaN or inf: only -inf is allowed, for keys that are not visible")
    if (logits == -math.inf).all(-1).any():
        raise ValueError("logits holds a query that sees no key: omit it")
    return logits.to(exact_dtype(logits.device))
