"""Bytes of the KV cache with windowed heads and without, measured on a long text, and the logits of both."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from ...models.adapter import Adapter, device_of
from ...models.adapter.cache import WindowedCache, cache_bytes
from ...models.adapter.edits import Changes
from ...models.adapter.interventions import intervene

PIECE = 250
"""Tokens that are read at once: masks grow with tokens times keys."""


@torch.inference_mode()
def cache_sizes(adapter: Adapter, changes: Changes, ids: Tensor) -> dict[str, float]:
    """Bytes of both caches after a text, and the largest difference of their logits at the last piece of it."""
    model: Any = adapter.model
    batch, found, logits = ids[None].to(device_of(model)), {}, []
    with intervene(adapter, changes):
        for name, cache in (("full", DynamicCache(config=model.config)), ("windowed", WindowedCache(adapter, changes))):
            for piece in batch.split(PIECE, 1):
                last = model(input_ids=piece, past_key_values=cache, logits_to_keep=16).logits
            found[name] = cache_bytes(cache)
            logits.append(last.double())
    return {
        "tokens": len(ids),
        "full_bytes": found["full"],
        "windowed_bytes": found["windowed"],
        "logit_difference": float((logits[0] - logits[1]).abs().max()),
        "largest_logit": float(logits[0].abs().max()),
    }
