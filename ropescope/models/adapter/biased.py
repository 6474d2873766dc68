"""Families that attend inside their layers and bias logits by distance instead of rotating (ALiBi): BLOOM and MPT.

Their attention goes through no function that could be replaced. Queries, keys and values are read from the layer's own
projection, the bias and the mask from its arguments, the weights from what it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, NamedTuple

from torch import Tensor, nn


class Attended(NamedTuple):
    """What a layer computed: queries, keys, values (B, H, T, d), mask, scale, biases (B, H, T), weights (B, H, T, T)."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scale: float
    bias: Tensor | None
    weights: Tensor


def biased(module: nn.Module) -> Callable[..., tuple[Any, Attended]] | None:
    """A function that runs the layer as it is and also returns what it computed; None for layers of other families."""
    parts = signature(module.forward).parameters
    if "alibi" in parts and hasattr(module, "_reshape") and hasattr(module, "query_key_value"):
        return _runs(module, "query_key_value", _bloom)
    if "position_bias" in parts and hasattr(module, "Wqkv") and hasattr(module, "softmax_scale"):
        return _runs(module, "Wqkv", _mpt)
    return None


def _runs(module: Any, projection: str, read: Callable[..., Attended]) -> Callable[..., tuple[Any, Attended]]:
    forward = module.forward
    names = list(signature(forward).parameters)

    def run(*args: Any, **kwargs: Any) -> tuple[Any, Attended]:
        projected: list[Tensor] = []
        hook = getattr(module, projection).register_forward_hook(lambda _, __, output: projected.append(output))
        try:
            result = forward(*args, **kwargs)
        finally:
            hook.remove()
        return result, read(module, projected[-1], dict(zip(names, args, strict=False)) | kwargs, result[1])

    return run


def _bloom(module: Any, projected: Tensor, given: dict[str, Any], weights: Tensor) -> Attended:
    query, key, value = module._reshape(projected)
    bias = module.beta * given["alibi"].reshape(len(query), query.shape[1], -1)
    return Attended(query, key, value, given.get("attention_mask"), module.inv_norm_factor, bias, weights)


def _mpt(module: Any, projected: Tensor, given: dict[str, Any], weights: Tensor) -> Attended:
    if module.clip_qkv:
        projected = projected.clamp(-module.clip_qkv, module.clip_qkv)
    query, key, value = (
        part.unflatten(-1, (module.n_heads, module.head_dim)).transpose(1, 2) for part in projected.chunk(3, -1)
    )
    bias, hidden = given.get("position_bias"), given.get("attention_mask")
    if bias is not None:
        bias = bias[:, 0, -key.shape[-2] :].expand(len(key), -1, -1)
    return Attended(query, key, value, None if hidden is None else ~hidden, module.softmax_scale, bias, weights)
