"""Which RoPE planes a head uses: what each adds to its logits, in one number per head."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ..logits import LogitFactors


class PlaneUse(NamedTuple):
    """Per plane, fastest first for RoPE made from a base.

    largest  the plane's largest logit over keys
    spread   the variance of its logits over keys: what is the same for all keys moves no weight
    """

    largest: Float[Tensor, "F *batch"]
    spread: Float[Tensor, "F *batch"]


@torch.no_grad()
def plane_use(factors: LogitFactors) -> PlaneUse:
    """How much every plane has to say about where the head looks, on its real input."""
    logits = factors.plane_diagonal()
    seen = logits.isfinite()
    counts = seen.sum(-1)
    mean = logits.where(seen, 0).sum(-1) / counts
    spread = ((logits - mean[..., None]) ** 2).where(seen, 0).sum(-1) / counts
    return PlaneUse(logits.amax(-1), spread)


def mean_plane(use: Float[Tensor, "F *batch"]) -> Float[Tensor, "*batch"]:
    """The mean plane, weighted by use, counted from 1 as paper B does; negative use counts as none.

    With equal use of all F planes it is (F + 1) / 2.
    """
    weights = use.clamp(min=0)
    ids = torch.arange(1, len(use) + 1, dtype=weights.dtype, device=weights.device)
    mean: Tensor = torch.tensordot(ids, weights, 1) / weights.sum(0)
    return mean


def planes_in_use(use: Float[Tensor, "F *batch"]) -> Float[Tensor, "*batch"]:
    """How many planes share the work: 1 if one does it all, F if all do alike (inverse participation ratio)."""
    weights = use.clamp(min=0)
    number: Tensor = weights.sum(0) ** 2 / (weights**2).sum(0)
    return number
