"""What calibration measures of every head, from ordinary forward passes over prose: all that rankings are made from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ...heads import Heads
from ...logits import layer_factors
from ...measures.queries import query_scores
from ...models.adapter import Adapter, LayerRead, device_of
from ...tasks.retrieval import Context, Question
from ...weights import attention_weights, with_sinks

SAMPLED = 96
"""Contents and places of `M` that are computed at each query, evenly spread."""
REPEATED = 500
"""Positions at which a mean key is repeated, as kvpress does."""

Statistics = dict[str, NDArray[np.float64]]
"""Numbers of every head, each (layer, head)."""


def query_places(tokens: int, count: int, sinks: int, window: int) -> list[int]:
    """Positions of the queries, evenly spread over those that have at least as many far positions as near ones."""
    first = min(2 * (sinks + window), tokens // 2)
    return sorted({round(place) for place in np.linspace(first, tokens - 1, count)})


@torch.inference_mode()
def prose_statistics(adapter: Adapter, ids: Tensor, count: int, sinks: int, window: int) -> Statistics:
    """Means over queries of one passage, from one forward pass."""
    rows: list[dict[str, Tensor]] = []
    places = query_places(len(ids), count, sinks, window)
    batch = ids[None].to(device_of(adapter.model))
    adapter.read(batch, lambda read: rows.append(_layer(read, places, sinks, window)))
    return {name: torch.stack([row[name] for row in rows]).double().cpu().numpy() for name in rows[0]}


def _layer(read: LayerRead, places: Sequence[int], sinks: int, window: int) -> dict[str, Tensor]:
    heads = read.heads
    scores = query_scores(heads, places)
    found = {"symbolic": scores.symbolic, "positional": scores.positional, "entropy": scores.entropy}
    means = {name: values[0].nanmean(-1) for name, values in found.items()}
    at_queries = [_at_query(heads, place, sinks, window) for place in places]
    means |= {name: torch.stack([each[name] for each in at_queries]).mean(0) for name in at_queries[0]}
    means["reach_last"] = at_queries[-1]["reach"]
    means["mean_vectors"] = mean_vector_score(heads)
    return means


def _at_query(heads: Heads, at: int, sinks: int, window: int) -> dict[str, Tensor]:
    """What one query shows of every head (H): see `rankings` for what each is."""
    factors = layer_factors(heads, at)
    real = factors.diagonal()[0]
    weights = with_sinks(real[None], heads.sinks)[0]
    far = torch.arange(sinks, max(sinks + 1, at + 1 - window), device=real.device)
    if heads.first_seen(at) > sinks or len(far) < 2:  # a sliding layer, which is not ranked
        blank = torch.zeros(real.shape[0], dtype=real.dtype, device=real.device)
        return {"mass": weights[:, far].sum(-1)} | dict.fromkeys(("reach", "far_variance", "position_share", "follow"), blank)
    contents, some = (_spread(size, real.device) for size in (at, len(far)))
    M = factors.piece(contents, far[some])[0]  # (H, C, P)
    total = real.logsumexp(-1) if heads.sinks is None else torch.logaddexp(real.logsumexp(-1), heads.sinks.to(real.dtype))
    # What stands at a far place is replaced, so its weight is not in the rest.
    share = (real[:, far[some]] - total[:, None]).exp().clamp(max=1 - 1e-12)
    rest = total[:, None] + torch.log1p(-share)
    moving = torch.arange(sinks, at, device=real.device)
    kept = torch.sigmoid(factors.piece(moving, far[some])[0] - rest[:, None]).mean(-1)  # (H, contents)
    return {
        "mass": weights[:, far].sum(-1),
        "follow": (weights[:, moving] * kept).sum(-1),
        "reach": torch.sigmoid(M - rest[:, None]).amax(1).mean(-1),
        "far_variance": M.var(1, correction=0).mean(-1),
        "position_share": _position_share(factors.piece(contents, contents)[0]),
    }


def _spread(size: int, device: torch.device) -> Tensor:
    return torch.linspace(0, size - 1, min(size, SAMPLED), device=device).round().long()


def _position_share(M: Float[Tensor, "H C P"]) -> Float[Tensor, " H"]:
    """The part of the variance of `M` that depends on the place alone."""
    return M.mean(1).var(-1, correction=0) / M.var((-2, -1), correction=0).clamp(min=1e-30)


def mean_vector_score(heads: Heads) -> Float[Tensor, " H"]:
    """The area under the cumulated attention of a mean query over a mean key, repeated: kvpress' on-the-fly DuoAttention.

    Means are of contents, so after a norm of queries and keys, and each layer has its own rotation.
    """
    query, key = heads.queries[0].double().mean(1), heads.keys[0].double().mean(1)
    key = key.repeat_interleave(len(query) // len(key), 0)
    places = torch.arange(REPEATED, device=key.device)
    turned = heads.rope.rotate(key[:, None].expand(-1, REPEATED, -1), places)
    asked = heads.rope.rotate(query[:, None], places[-1:])
    logits = (turned @ asked.mT)[..., 0] * heads.scale
    if heads.soft_cap is not None:
        logits = heads.soft_cap * torch.tanh(logits / heads.soft_cap)
    return logits.softmax(-1).cumsum(-1).mean(-1)


@torch.inference_mode()
def copied(adapter: Adapter, context: Context, question: Question) -> NDArray[np.float64]:
    """Share of the answer's tokens that each head copies (layer, head): Wu et al. 2024, with the answer given.

    A head copies a token if, where that token is predicted, its largest weight is on the same token where the answer is said.
    """
    ids = torch.tensor([context.ids + question.ids], device=device_of(adapter.model))
    end, (start, stop) = ids.shape[1], question.source
    rows = torch.arange(end - question.answer - 1, end - 1, device=ids.device)
    found: list[Tensor] = []

    def on_layer(read: LayerRead) -> None:
        top = attention_weights(read.heads, rows.to(read.heads.keys.device), single=True)[0].argmax(-1)  # (H, Q)
        same = ids[0][top] == ids[0][rows + 1]
        found.append((same & (top >= start) & (top < stop)).double().mean(-1))

    adapter.read(ids, on_layer, queries=question.answer + 1)
    return torch.stack(found).cpu().numpy()
