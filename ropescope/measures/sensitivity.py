"""Registered measures that show how far scores depend on choices: temperature, swaps or permutations, blocks or tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .registry import joint_measures
from .scores import permutation_scores, swap_scores
from .view import TAUS, LayerView

LONGEST_SQUARE = 1024
"""Longest input for which scores over permutations and over single tokens are computed: they need `M` of all tokens."""


@joint_measures(
    {
        "positional_permuted": "positional score over random permutations of all blocks",
        "symbolic_permuted": "symbolic score over random permutations of all blocks",
        "positional_by_token": "positional score over swaps of two tokens of any blocks",
        "symbolic_by_token": "symbolic score over swaps of two tokens of any blocks",
    },
    group="sensitivity",
)
def other_moves(view: LayerView) -> Sequence[Tensor]:
    """Both scores over permutations of the blocks, and over swaps of single tokens; NaN for inputs that are too long."""
    if view.tokens > LONGEST_SQUARE:
        return [torch.full((view.sizes["input"], view.sizes["head"]), torch.nan, dtype=torch.float64)] * 4
    M, blocks = view.token_logits(), view.visible_blocks
    tokens = [(p, p + 1) for start, stop in blocks for p in range(start, stop)]
    permuted = permutation_scores(M, view.permutations, view.tau, blocks, view.seed)
    return *permuted, *swap_scores(M, view.tau, tokens)


@joint_measures(
    {
        "positional_by_tau": "positional score at other temperatures",
        "symbolic_by_tau": "symbolic score at other temperatures",
    },
    group="sensitivity",
    axes=("tau", "layer", "head"),
)
def temperatures(view: LayerView) -> Sequence[Tensor]:
    """Both scores at each temperature of `TAUS`."""
    return [score.movedim(0, 1) for score in swap_scores(view.M, TAUS)]
