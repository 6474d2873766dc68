"""Windows of key heads: which positions their queries still see, as a mask, exact at prefill and when generating.

A windowed key head sees the first `sinks` positions and the last `window` positions, the query's own included; so do all query
heads that share it. Everything else of the layer's own mask stays: a sliding layer's head sees what both allow.

>>> import ropescope as rs
>>> from ropescope.models.adapter.windows import visible
>>> import torch
>>> visible(torch.arange(6), torch.arange(6), sinks=1, window=2).int()[5].tolist()
[1, 0, 0, 0, 1, 1]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ...inputs import whole


class HeadWindow(NamedTuple):
    """What the queries of one key head of a layer still see.

    head    number of the key head, from 0 on
    sinks   so many first positions
    window  so many last positions, the query's own included
    """

    head: int
    sinks: int
    window: int


def head_windows(heads: Iterable[int], sinks: int, window: int) -> tuple[HeadWindow, ...]:
    """Windows of these key heads, in order; ValueError if a size is out of range."""
    if whole("sinks", sinks) < 0:
        raise ValueError(f"sinks must be at least 0, not {sinks}")
    if whole("window", window) < 1:
        raise ValueError(f"window must be at least 1, as a query always sees itself, not {window}")
    return tuple(HeadWindow(whole("a key head", head), int(sinks), int(window)) for head in sorted(set(heads)))


def visible(rows: Int[Tensor, "*B Q"], places: Int[Tensor, "*B T"], sinks: int, window: int) -> Bool[Tensor, "*B Q T"]:
    """True where a query at a position of `rows` sees a key at a position of `places`, later keys among them."""
    later = rows[..., :, None] - places[..., None, :]
    return (later < window) | (places < sinks)[..., None, :]


class Passed(NamedTuple):
    """Where the tokens of a forward pass are.

    past    tokens that a cache held before it
    starts  position of the first token that is not padding (B,); None if no row has padding in front
    """

    past: int = 0
    starts: Tensor | None = None


def passed(args: Sequence[Any], kwargs: dict[str, Any]) -> Passed:
    """Where the tokens of a call of a model are, by its cache and its mask of padding."""
    cache, mask = kwargs.get("past_key_values"), kwargs.get("attention_mask")
    if mask is None and len(args) > 1:
        mask = args[1]
    past = 0 if cache is None else int(cache.get_seq_length())
    if not isinstance(mask, Tensor) or mask.ndim != 2 or bool(mask[:, 0].all()):
        return Passed(past)
    return Passed(past, mask.ne(0).int().argmax(-1))


def windowed_mask(mask: Tensor | None, windows: Sequence[HeadWindow], query: Tensor, key: Tensor, at: Passed) -> Tensor:
    """The layer's mask with which windowed heads see less: true for keys that are seen, or additive, as the one given.

    mask     (B or 1, 1 or H, Q, T); None if queries see all keys up to their own
    windows  of key heads
    query    rotated queries (B, H, Q, d), the last of all tokens so far
    key      rotated keys (B, G, T, d): of all tokens, of the last ones, or with empty places behind (a static cache)
    """
    queries, keys, heads = query.shape[-2], key.shape[-2], query.shape[1]
    end = at.past + queries
    places = torch.arange(keys, device=key.device) + max(0, end - keys)
    rows = torch.arange(end - queries, end, device=key.device)
    if at.starts is not None:
        starts = at.starts.to(key.device)[:, None]
        places, rows = places - starts, rows - starts
    shape = (len(key) if at.starts is not None else 1, heads, queries, keys)
    seen = torch.ones(shape, dtype=torch.bool, device=key.device)
    shared = heads // key.shape[1]
    for head, sinks, window in windows:
        seen[:, head * shared : (head + 1) * shared] = visible(rows, places, sinks, window).unsqueeze(-3)
    if mask is None:
        return seen & (places[..., None, :] <= rows[..., :, None]).unsqueeze(-3)
    mask = mask[..., :keys]
    return mask & seen if mask.dtype == torch.bool else mask.masked_fill(~seen, torch.finfo(mask.dtype).min)
