"""Logits of query heads that grow with the number of keys, so that attention stays as sharp among many keys as among few.

The logits of a query that sees `n` keys are multiplied by log n / log `length` where that is above 1. What a query sees is what
its mask allows: earlier tokens in a cache count, padding and what is outside a window do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...inputs import whole
from ...logits import exact_dtype
from .windows import Passed


class HeadSharpening(NamedTuple):
    """How the logits of one query head of a layer grow.

    head    number of the query head, from 0 on
    length  logits of queries that see more keys than this are multiplied by log n / log `length`
    """

    head: int
    length: int


def head_sharpenings(heads: Iterable[int], length: int) -> tuple[HeadSharpening, ...]:
    """Sharpenings of these query heads, in order; ValueError if the length is out of range."""
    if whole("length", length) < 2:
        raise ValueError(f"length must be at least 2, as log 1 is 0, not {length}")
    return tuple(HeadSharpening(whole("a head", head), int(length)) for head in sorted(set(heads)))


def keys_seen(mask: Tensor | None, query: Tensor, key: Tensor, at: Passed) -> Int[Tensor, "B H Q"]:
    """The number of keys that each query sees, by the mask; batch and heads are 1 where all are alike.

    mask   true for keys that are seen, or additive; None if queries see all keys up to their own
    query  (B, H, Q, d), the last of all tokens so far
    key    (B, G, T, d): of all tokens, or of the last ones
    """
    queries, keys = query.shape[-2], key.shape[-2]
    if mask is None:
        return torch.arange(at.past + 1, at.past + queries + 1, device=query.device).clamp(max=keys)[None, None]
    mask = mask[..., :keys]
    return (mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2).sum(-1)


def sharpened(
    query: Float[Tensor, "B H Q d"], heads: Sequence[HeadSharpening], seen: Int[Tensor, "b h Q"]
) -> Float[Tensor, "B H Q d"]:
    """The queries, of which those of these heads are multiplied by log n / log `length`, where that is above 1."""
    logs = seen.expand(-1, query.shape[1], -1).clamp(min=1).to(exact_dtype(query.device)).log()
    factors = torch.ones_like(logs)
    for head, length in heads:
        factors[:, head] = (logs[:, head] / math.log(length)).clamp(min=1)
    return query * factors[..., None].to(query.dtype)
