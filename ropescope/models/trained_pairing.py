"""For which pairing of dimensions the weights of a layer were trained, told from the weights alone.

The logit of a query and a key is a sum over planes, so row `i` of the query matrix is multiplied only with rows `i` and `j` of
the key matrix, if the rotation turns `i` into `j`. Training makes these rows alike, and rows of other planes are alike by
chance. Weights that were permuted for another pairing than the runtime's show this for the other pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..rotations import Rotation

SURE = 4.0
"""Standard errors above chance from which pairs count as alike."""
CLEARER = 2.0
"""How many times as far above chance one pairing must be as the other."""
FEWEST = 8
"""Planes of a layer; means over fewer tell nothing."""
MATRICES = ("q_proj", "k_proj")
"""Names of the matrices of queries and keys in modules of `transformers`."""

Leaning = Literal["own", "other", "neither"]


@dataclass(frozen=True)
class WeightPairs:
    """How much alike rows of queries and keys are, in standard errors above rows of any two dimensions.

    own    rows of the dimensions that the layer's rotation pairs
    other  rows that the other pairing (neighbours instead of halves, or the reverse) would pair
    """

    own: float
    other: float

    @property
    def leaning(self) -> Leaning:
        """The pairing that the weights were trained for, as far as they tell."""
        if self.own > SURE and self.own > CLEARER * self.other:
            return "own"
        return "other" if self.other > SURE and self.other > CLEARER * self.own else "neither"


def permuted(layers: Sequence[WeightPairs | None]) -> bool:
    """Whether the weights of more than half of the layers that rotate were trained for the other pairing."""
    known = [each for each in layers if each is not None]
    return sum(each.leaning == "other" for each in known) > len(known) / 2


def weight_pairs(module: nn.Module, heads: int, rotation: Rotation) -> WeightPairs | None:
    """What the weights of an attention module tell; None if it does not rotate, or has no such matrices.

    heads     query heads of the layer
    rotation  the rotation that it was seen to apply
    """
    planes = rotation.planes
    found = [_matrix(getattr(module, name, None), rotation.head_dim) for name in MATRICES]
    few = planes.pairing == "none" or planes.count < FEWEST or not rotation.turning.any()
    if few or any(each is None for each in found):
        return None
    query, key = (each for each in found if each is not None)
    if len(query) != heads or heads % len(key) or query.shape[-1] != key.shape[-1]:
        return None
    first, last = planes.first, planes.first + 2 * planes.count
    query, key = (each[:, first:last] for each in (query, key))
    alike = (query @ key.repeat_interleave(heads // len(key), 0).mT).square().mean(0)
    half = torch.arange(2 * planes.count).reshape(2, -1).T
    near = torch.arange(2 * planes.count).reshape(-1, 2)
    own, other = (half, near) if planes.pairing == "half" else (near, half)
    return WeightPairs(_above_chance(alike, own), _above_chance(alike, other))


def _matrix(projection: Any, head_dim: int) -> Tensor | None:
    """Rows of unit length of each head (head, dimension, width); None if there is no such matrix."""
    weight = getattr(projection, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point() or weight.is_meta:
        return None
    if len(weight) % head_dim:
        return None
    rows = weight.detach().float().cpu().reshape(-1, head_dim, weight.shape[1])
    unit: Tensor = rows / rows.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    return unit


def _above_chance(alike: Tensor, pairs: Tensor) -> float:
    """The mean of some pairs of dimensions, in standard errors above that of all pairs."""
    both = (alike + alike.T) / 2
    every = both[~torch.eye(len(both), dtype=torch.bool)]
    above = float(both[pairs[:, 0], pairs[:, 1]].mean() - every.mean())
    return above / max(float(every.std()) / math.sqrt(len(pairs)), 1e-30)
