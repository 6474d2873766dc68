"""Registered measures of ordinary attention: where the weight goes, without any swap."""

from __future__ import annotations

import torch
from torch import Tensor

from .registry import measure
from .shares import logit_entropy
from .view import LayerView


@measure("entropy", "entropy of attention at the last query, 0 to 1", group="attention", min_blocks=0)
def entropy(view: LayerView) -> Tensor:
    """Entropy at the last query, as `rs.entropy` of its `M`: among the keys that it sees, without sinks."""
    return logit_entropy(view.factors.diagonal())


@measure("previous_token", "weight on the token before, mean over the last queries", group="classical", min_blocks=0)
def previous_token(view: LayerView) -> Tensor:
    """Mean weight of the last queries on the token before each."""
    rows = view.last_positions
    return view.last_weights[..., torch.arange(len(rows), device=rows.device), rows - 1].mean(-1)


@measure(
    "induction",
    "weight on what followed the same token earlier, mean over those of the last queries whose token repeats",
    group="classical",
    min_blocks=0,
)
def induction(view: LayerView) -> Tensor:
    """Mean weight on the tokens that followed earlier occurrences of the query's token; NaN where no token repeats."""
    if view.ids is None:
        raise ValueError("ids must be given: induction compares tokens")
    rows, places = view.last_positions, torch.arange(view.tokens - 1, device=view.ids.device)
    found: list[Tensor] = []
    for ids, weights in zip(view.ids, view.last_weights, strict=True):
        earlier = (ids[rows][:, None] == ids[:-1]) & (places < rows[:, None] - 1)
        followed = torch.linalg.vecdot(weights[..., 1:], earlier.to(weights.dtype))[:, earlier.any(-1)]
        found.append(followed.mean(-1))
    return torch.stack(found)


@measure("sink", "weight on the first token, mean over the last queries", group="classical", min_blocks=0)
def sink(view: LayerView) -> Tensor:
    """Mean weight of the last queries on the first token."""
    return view.last_weights[..., 0].mean(-1)


@measure("on_blocks", "weight of the last query on all blocks together", group="attention", min_blocks=0)
def on_blocks(view: LayerView) -> Tensor:
    """Weight of the last query on all blocks that it sees completely."""
    inside = [p for start, stop in view.visible_blocks for p in range(start, stop)]
    return view.weights[..., torch.tensor(inside, dtype=torch.long, device=view.weights.device)].sum(-1)
