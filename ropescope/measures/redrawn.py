"""Registered measures of noise: both scores of `M` with logits drawn anew, as large as they were but of no meaning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .registry import joint_measures
from .scores import swap_scores
from .view import DRAWS, LayerView

MOST_KEYS = 128
"""Largest number of keys or blocks for which logits are drawn anew: every draw costs as much as the scores themselves."""
AT_ONCE = 1 << 18
"""Logits that are drawn and scored at once."""


@joint_measures(
    {
        "positional_redrawn": "positional score with logits drawn anew at the same spread",
        "symbolic_redrawn": "symbolic score with logits drawn anew at the same spread",
    },
    group="redrawn",
    axes=("draw", "layer", "head"),
)
def redrawn(view: LayerView) -> Sequence[Tensor]:
    """Both scores of `M` whose logits are normal noise with the mean and the deviation that each head's have.

    Neither score can be low unless the other is high, so that noise alone correlates them over heads. A draw gives a head the
    same noise on every input, as a head keeps its habits from input to input. What does not move keeps its logit. NaN for
    inputs of more than `MOST_KEYS` keys.
    """
    if len(view.visible_blocks) > MOST_KEYS:
        return [torch.full((view.sizes["input"], DRAWS, view.sizes["head"]), torch.nan, dtype=torch.float64)] * 2
    M = view.M
    moving = M[..., :-1, :-1]
    seen = moving.isfinite()
    count = seen.sum((-2, -1), keepdim=True)
    mean = moving.where(seen, 0).sum((-2, -1), keepdim=True) / count
    deviation = ((moving - mean).where(seen, 0).square().sum((-2, -1), keepdim=True) / count).sqrt()
    noise = np.random.default_rng([view.seed, view.layer]).standard_normal((DRAWS, *moving.shape[1:]))
    scores = []
    for drawn in torch.from_numpy(noise).to(M).split(max(1, AT_ONCE // M.numel())):
        changed = M[:, None].repeat(1, len(drawn), 1, 1, 1)
        changed[..., :-1, :-1] = (mean[:, None] + deviation[:, None] * drawn).where(seen[:, None], moving[:, None])
        scores.append(swap_scores(changed, view.tau))
    return [torch.cat(parts, 1) for parts in zip(*scores, strict=True)]
