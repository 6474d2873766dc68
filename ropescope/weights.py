"""The real attention weights of a layer, from its queries and keys."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .heads import Heads
from .inputs import whole_tensor
from .logits import exact_dtype, query_row


def attention_weights(heads: Heads, rows: Int[Tensor, " Q"], single: bool = False) -> Float[Tensor, "B H Q T"]:
    """The real attention weights (B, H, Q, T) of the queries at positions `rows`, from rotated queries and keys.

    heads   queries and keys of the layer
    rows    positions of the queries, (Q,)
    single  compute in single precision, which is faster

    They sum to 1 over keys, or to less if the layer has sinks.

    Raises ValueError if a position has no query, or queries and keys are so large that logits overflow.

    >>> import torch, ropescope as rs
    >>> heads = rs.Heads(torch.randn(1, 2, 7, 8), torch.randn(1, 2, 7, 8), rs.Rope(head_dim=8), scale=8**-0.5)
    >>> weights = rs.attention_weights(heads, torch.tensor([3, 6]))
    >>> weights.shape
    torch.Size([1, 2, 2, 7])
    >>> M = rs.layer_logits(heads)  # at the last query, whose real logits are the diagonal
    >>> torch.allclose(weights[:, :, 1], M.diagonal(dim1=-2, dim2=-1).softmax(-1))
    True
    """
    device = heads.keys.device
    dtype = torch.float32 if single else exact_dtype(device)
    places = torch.arange(heads.keys.shape[-2], device=device)
    index = torch.tensor([query_row(heads, at) for at in whole_tensor("rows", rows).tolist()], device=device)
    query, key = heads.queries.index_select(2, index).to(dtype) * heads.scale, heads.keys.to(dtype)
    if heads.turns is None:
        query, key = heads.rope.rotate(query, rows), heads.rope.rotate(key, places)
    else:
        (turning, still), (keys_turning, keys_still) = heads.rope.to_planes(query), heads.rope.to_planes(key)
        turns = heads.turns.to(turning.dtype)
        query = heads.rope.from_planes(turning * turns[rows], still)
        key = heads.rope.from_planes(keys_turning * turns, keys_still)
    logits = (query.unflatten(1, (key.shape[1], -1)) @ key[:, :, None].mT).flatten(1, 2)
    if heads.soft_cap is not None:
        logits = heads.soft_cap * torch.tanh(logits / heads.soft_cap)
    distance = rows[:, None] - places
    if heads.alibi is not None:
        logits = logits - heads.alibi.to(logits.dtype)[:, None, None] * distance
    first = torch.tensor([heads.first_seen(at) for at in rows.tolist()], device=device)
    hidden = (distance < 0) | (places < first[:, None])
    weights: Tensor = with_sinks(logits.masked_fill_(hidden, -math.inf), heads.sinks)
    if not weights.isnan().any():
        return weights
    if single:  # what overflows in single precision may not in double
        return attention_weights(heads, rows)
    raise ValueError("queries and keys are so large that their logits overflow, or hold NaN: check the model that made them")


def with_sinks(logits: Float[Tensor, "B H *Q T"], sinks: Float[Tensor, " H"] | None) -> Float[Tensor, "B H *Q T"]:
    """Attention weights from logits; sinks, if any, take part of the weight."""
    if sinks is None:
        return logits.softmax(-1)
    more = sinks.to(logits.dtype).view(-1, *[1] * (logits.ndim - 2)).expand(*logits.shape[:-1], 1)
    return torch.cat((logits, more), -1).softmax(-1)[..., :-1]
