"""Registered measures that show how far scores depend on choices: temperature, swaps or permutations, blocks or tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .block_scores import swaps
from .registry import joint_measures
from .scores import permutation_scores, swap_scores
from .tiles import tile_scores
from .view import MANY_TOKENS, TAUS, LayerView

LONGEST_SQUARE = 1024
"""Longest input for which scores over permutations are computed: they need `M` of all tokens."""


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
    """Both scores over permutations of the blocks, NaN for inputs that are too long, and over swaps of single tokens."""
    blocks = view.visible_blocks
    tokens = [(p, p + 1) for start, stop in blocks for p in range(start, stop)]
    permuted: Sequence[Tensor] = [torch.full_like(view.log_total, torch.nan)] * 2
    by_token: Sequence[Tensor] | None = None
    if view.many_tokens is not None:
        by_token = view.once(swaps)
    elif len(tokens) >= MANY_TOKENS or view.tokens > LONGEST_SQUARE:
        places = torch.tensor([p for p, _ in tokens], device=view.heads.keys.device)
        by_token = tile_scores(view.factors, places, view.log_total, [view.tau], view.tolerance)[0][:, 0].unbind()
    if view.tokens <= LONGEST_SQUARE:
        M = view.token_logits()
        permuted = permutation_scores(M, view.permutations, view.tau, blocks, view.seed)
        by_token = swap_scores(M, view.tau, tokens) if by_token is None else by_token
    assert by_token is not None
    return *permuted, *by_token


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
    if view.many_tokens is None:
        scores: Sequence[Tensor] = swap_scores(view.M, TAUS)
    else:
        scores = tile_scores(view.factors, view.many_tokens, view.log_total, TAUS, view.tolerance)[0].unbind()
    return [score.movedim(0, 1) for score in scores]
