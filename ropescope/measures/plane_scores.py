"""Registered measures of every RoPE plane alone: its scores, and how large its logits are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .angles import angle_scores
from .blocks import block_logits
from .registry import joint_measures
from .scores import swap_scores
from .tiles import tile_scores
from .view import LayerView

AT_ONCE = 1 << 19
"""Logits held at a time while planes are scored."""
AXES = ("layer", "head", "plane")


@joint_measures(
    {
        "plane_positional": "positional score of one RoPE plane alone",
        "plane_symbolic": "symbolic score of one RoPE plane alone",
        "plane_error": "bound on the error of both scores of one RoPE plane; 0 if all was computed in double precision",
    },
    group="planes",
    axes=AXES,
)
def plane_swaps(view: LayerView) -> Sequence[Tensor]:
    """Both scores of each plane, with its own softmax, and a bound on their error."""
    factors, blocks = view.plane_factors, view.visible_blocks
    planes, batch, heads = factors.content.shape[:3]
    if view.many_tokens is not None:
        total = factors.diagonal().logsumexp(-1)
        both, error = tile_scores(factors, view.many_tokens, total, [view.tau], view.tolerance)
        found = [*both[:, 0], error[0] if view.tolerance else torch.zeros_like(error[0])]
    elif view.tolerance:
        frequencies = torch.tensor(view.heads.rope.plane_frequencies, dtype=factors.place.dtype, device=factors.content.device)
        found = list(angle_scores(factors, frequencies, blocks, view.tau, view.tolerance))
    else:
        step = max(1, AT_ONCE // (batch * heads * (len(blocks) + 1) ** 2))
        parts = [factors.some(slice(start, start + step)) for start in range(0, planes, step)]
        scores = torch.cat([torch.stack(swap_scores(block_logits(part, blocks), view.tau)) for part in parts], 1)
        found = [*scores, torch.zeros_like(scores[0])]
    return [each.movedim(0, -1) for each in found]


@joint_measures(
    {
        "plane_norm": "root mean square of the plane's logits over keys that may move",
        "plane_spread": "variance of the plane's logits over keys that may move",
        "plane_largest": "largest of the plane's logits over keys that may move",
    },
    group="planes",
    axes=AXES,
)
def plane_sizes(view: LayerView) -> Sequence[Tensor]:
    """Size of each plane's logits over the keys of all visible blocks."""
    factors = view.plane_factors
    keys = torch.cat([torch.arange(start, stop, device=factors.content.device) for start, stop in view.visible_blocks])
    logits = factors.select(keys).diagonal()
    sizes = logits.square().mean(-1).sqrt(), logits.var(-1, correction=0), logits.amax(-1)
    return [size.movedim(0, -1) for size in sizes]
