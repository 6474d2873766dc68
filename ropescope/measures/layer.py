"""What is measured of every head of a layer at its last query, whoever asks: a profile, or a watcher of training."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ..heads import Heads
from ..logits import LogitFactors, with_sinks
from .blocks import block_logits
from .scores import swap_scores
from .shares import variance_shares

SCORES = ("positional", "symbolic", "symbol_share", "position_share", "binding_share")
ATTENTION = ("entropy", "on_blocks")


def layer_scores(
    heads: Heads, factors: LogitFactors, blocks: Sequence[tuple[int, int]], tau: float
) -> dict[str, Float[Tensor, "B H"]]:
    """Scores, shares, entropy and weight on blocks of all heads; NaN where a window leaves fewer than two blocks."""
    weights, seen = with_sinks(factors.diagonal(), heads.sinks), seen_blocks(heads, blocks)
    found = attention_scores(weights, seen)
    if len(seen) < 2:
        return dict.fromkeys(SCORES, torch.full_like(found["entropy"], torch.nan)) | found
    return block_scores(block_logits(factors, seen, heads.sinks), tau) | found


def seen_blocks(heads: Heads, blocks: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The blocks that the last query sees whole."""
    first = 0 if heads.window is None else max(0, heads.keys.shape[-2] - heads.window)
    return [(start, stop) for start, stop in blocks if start >= first]


def block_scores(M: Float[Tensor, "*batch n n"], tau: float) -> dict[str, Float[Tensor, "*batch"]]:
    """Both scores and the three shares."""
    return dict(zip(SCORES, (*swap_scores(M, tau), *variance_shares(M)), strict=True))


def attention_scores(
    weights: Float[Tensor, "*batch T"], blocks: Sequence[tuple[int, int]]
) -> dict[str, Float[Tensor, "*batch"]]:
    """Entropy of the weights, as a share of the largest possible, and how much of them is on all blocks together."""
    nats = -torch.special.xlogy(weights, weights).sum(-1)
    inside = torch.tensor([p for start, stop in blocks for p in range(start, stop)], dtype=torch.long, device=weights.device)
    return {
        "entropy": nats / (weights > 0).sum(-1).clamp(min=2).log(),
        "on_blocks": weights[..., inside].sum(-1),
    }
