"""Which RoPE planes a head uses, from the contribution of each to its logits."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ..logits import LogitFactors


class PlaneUse(NamedTuple):
    """Use of each plane, the fastest first for RoPE with a base.

    largest  the plane's largest logit over keys
    spread   variance of its logits over keys; a constant would not change any attention weight
    """

    largest: Float[Tensor, "F *batch"]
    spread: Float[Tensor, "F *batch"]


@torch.no_grad()
def plane_use(factors: LogitFactors) -> PlaneUse:
    """How much each plane contributes to where the head attends, on its real input."""
    logits = factors.plane_diagonal()
    seen = logits.isfinite()
    counts = seen.sum(-1)
    mean = logits.where(seen, 0).sum(-1) / counts
    spread = ((logits - mean[..., None]) ** 2).where(seen, 0).sum(-1) / counts
    return PlaneUse(logits.amax(-1), spread)


def mean_plane(use: Float[Tensor, "F *batch"]) -> Float[Tensor, "*batch"]:
    """Mean plane id weighted by use, counted from 1 as in paper B; negative use counts as 0.

    With equal use of all F planes it is (F + 1) / 2.
    """
    weights = use.clamp(min=0)
    ids = torch.arange(1, len(use) + 1, dtype=weights.dtype, device=weights.device)
    mean: Tensor = torch.tensordot(ids, weights, 1) / weights.sum(0)
    return mean


def planes_in_use(use: Float[Tensor, "F *batch"]) -> Float[Tensor, "*batch"]:
    """Effective number of planes (inverse participation ratio): 1 if one plane is used, F if all are used equally."""
    weights = use.clamp(min=0)
    number: Tensor = weights.sum(0) ** 2 / (weights**2).sum(0)
    return number
