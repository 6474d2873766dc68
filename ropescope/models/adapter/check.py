"""The self-check of a layer: `M` must predict the logits and weights that the layer itself computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ...heads import Heads
from ...logits import LogitFactors, layer_factors
from ...weights import with_sinks
from .calls import ROUNDED, TOLERANCE, AttentionCall, RefusedError
from .hooks import observer
from .rotation import Layout, find_layout


class CheckedLayer(NamedTuple):
    """The rotation of a layer that passed, its error of predicted logits, and whether it computes in single precision."""

    layout: Layout
    error: float
    rounded: bool


def check_layer(call: AttentionCall) -> CheckedLayer:
    """The layout of a layer that `M` describes; otherwise RefusedError says why not."""
    tokens = call.key.shape[-2]
    if tokens != call.query.shape[-2]:
        raise RefusedError(f"it has {tokens} keys for {call.query.shape[-2]} tokens: keys are not those of single tokens")
    if call.query.shape[1] % call.key.shape[1]:
        raise RefusedError("its query heads do not share key heads evenly")
    for at in (0, tokens - 1):  # refuses a query that sees later tokens
        call.visible(at)
    limit = TOLERANCE.get(call.query.dtype, 3e-2)
    constant = _rerun(call, lambda x: x[:, -1:].expand_as(x))
    if torch.equal(constant.key, call.key):
        raise RefusedError("its keys do not come from its own input but from an earlier layer")
    layout, error = find_layout(constant, limit)
    shuffled = torch.randperm(tokens - 1, generator=torch.Generator().manual_seed(1)).to(call.key.device)
    order = torch.cat((shuffled, shuffled.new_tensor([tokens - 1])))
    moved = _rerun(call, lambda x: x[:, order])
    worst = max(error, _prediction_error(layout, call, moved, order))
    rounded = not worst <= limit and call.query.dtype == torch.float64 and worst <= ROUNDED
    if not (worst <= limit or rounded):
        raise RefusedError(
            f"moving tokens changes its logits otherwise than M predicts (by {worst:.1e}): its keys are not the "
            f"rotated contents of single tokens{call.advice}"
        )
    weights_error = read_call(call, layout, tokens - 1)[2]
    if not weights_error <= call.weight_limit:
        raise RefusedError(f"its attention weights differ by {weights_error:.1e} from those that follow from M{call.advice}")
    return CheckedLayer(layout, worst, rounded)


def _rerun(call: AttentionCall, change: Callable[[Tensor], Tensor]) -> AttentionCall:
    """The layer's call of attention on changed hidden states."""
    args, kwargs = call.arguments
    if isinstance(kwargs.get("hidden_states"), Tensor):
        kwargs = kwargs | {"hidden_states": change(kwargs["hidden_states"])}
    elif args and isinstance(args[0], Tensor):
        args = (change(args[0]), *args[1:])
    else:
        raise RefusedError("its hidden states are not passed in a way we know")
    calls: list[AttentionCall] = []
    with observer(calls.append):
        call.module.forward(*args, **kwargs)
    if not calls or any(call.query is not calls[0].query for call in calls):
        raise RefusedError("it attends several times when it runs alone")
    calls[0].tables = call.tables
    return calls[0]


def _prediction_error(layout: Layout, call: AttentionCall, moved: AttentionCall, order: Tensor) -> float:
    """Largest difference between the logits of a permuted input and those that `M` of the original input predicts."""
    queries, keys, rope, turns = layout.contents(call)
    heads = Heads(queries, keys, rope, call.scale, soft_cap=call.soft_cap, turns=turns)
    predicted = layer_factors(heads).matrix()[:, :, order, torch.arange(len(order), device=order.device)]
    query, key = (x.to(predicted.dtype) for x in (moved.query[:, :, -1:], moved.key))
    real = (query @ key.repeat_interleave(query.shape[1] // key.shape[1], 1).mT)[:, :, 0] * call.scale
    if call.soft_cap is not None:
        real = call.soft_cap * torch.tanh(real / call.soft_cap)
    return float((real - predicted).abs().max() / max(1.0, float(predicted.abs().max())))


def read_call(call: AttentionCall, layout: Layout, at: int, first: int = 0) -> tuple[Heads, LogitFactors, float]:
    """The heads of a layer, `M` at the query `at`, and the error of the attention that follows from it."""
    queries, keys, rope, turns = layout.contents(call, first)
    seen = call.visible(at)
    sinks = None if call.sinks is None else call.sinks.to(queries.dtype)
    window = None if seen == at + 1 else seen
    heads = Heads(queries, keys, rope, call.scale, soft_cap=call.soft_cap, window=window, turns=turns, sinks=sinks)
    result, weights = call.own(at)
    factors = layer_factors(heads, at)
    ours = with_sinks(factors.diagonal(), sinks)
    if weights is not None and sinks is None:
        return heads, factors, float((ours - weights[..., : at + 1].to(ours.dtype)).abs().max())
    # With sinks, or where the layer returns no weights, its outputs are compared: weights times values.
    values = call.value[:, :, : at + 1].to(ours.dtype)
    output = (ours[:, :, None] @ values.repeat_interleave(ours.shape[1] // values.shape[1], 1))[:, :, 0]
    return heads, factors, float((output - result.to(ours.dtype)).abs().max() / values.abs().max().clamp(min=1e-30))


def own_weights(heads: Heads, at: int) -> Float[Tensor, "B H T"]:
    """The attention weights at a query that follow from the diagonal of `M`, including sinks."""
    return with_sinks(layer_factors(heads, at).diagonal(), heads.sinks)
