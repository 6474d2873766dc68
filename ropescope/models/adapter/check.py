"""The self-check of a layer: `M` must predict the logits and weights that the layer itself computes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
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
from .rounding import output_bounds, weight_bounds
from .single import SinglePrecision, in_single

STEPS = 16
"""Roundings between the hidden states of a half-precision layer and its rotated queries and keys: at most this many, of norms,
projections, biases and rotation, each by at most half of the precision's eps of the largest number."""


class CheckedLayer(NamedTuple):
    """The rotation of a layer that passed, its error of predicted logits, and whether it computes in single precision."""

    layout: Layout
    error: float
    rounded: bool


def check_layer(call: AttentionCall) -> CheckedLayer:
    """The layout of a layer that `M` describes; otherwise RefusedError says why not.

    A layer in half precision runs once more in single precision, on the same hidden states, and is checked there: rounding is
    then too small to hide a wrong rotation. What it computed in its own precision must be the same but for rounding.
    """
    tokens = call.key.shape[-2]
    if tokens != call.query.shape[-2]:
        raise RefusedError(f"it has {tokens} keys for {call.query.shape[-2]} tokens: keys are not those of single tokens")
    if call.query.shape[1] % call.key.shape[1]:
        raise RefusedError("its query heads do not share key heads evenly")
    call.extent()  # refuses queries that see later tokens
    if not (call.query.any() and call.key.any()):
        raise RefusedError("its queries or keys are all zero, so that its rotation cannot be seen: has the model been trained?")
    exact = _in_single(call) if call.half else call
    limit = TOLERANCE[exact.query.dtype]
    constant = _rerun(exact, lambda x: x[:, -1:].expand_as(x))
    if torch.equal(constant.key, exact.key):
        raise RefusedError("its keys do not come from its own input but from an earlier layer")
    layout, error = find_layout(constant, limit)
    shuffled = torch.randperm(tokens - 1, generator=torch.Generator().manual_seed(1)).to(call.key.device)
    order = torch.cat((shuffled, shuffled.new_tensor([tokens - 1])))
    moved = _rerun(exact, lambda x: x[:, order])
    worst = max(error, _prediction_error(layout, exact, moved, order))
    rounded = not worst <= limit and call.query.dtype == torch.float64 and worst <= ROUNDED
    if not (worst <= limit or rounded):
        raise RefusedError(
            f"moving tokens changes its logits otherwise than M predicts (by {worst:.1e}): its keys are not the "
            f"rotated contents of single tokens"
        )
    read = read_call(call, layout, tokens - 1)
    if not read.error <= read.limit:
        raise RefusedError(f"its attention weights differ by {read.error:.1e} from those that follow from M")
    return CheckedLayer(layout, worst, rounded)


def _in_single(call: AttentionCall) -> AttentionCall:
    """The call that a half-precision layer makes in single precision. Refuses a layer that then has other queries or keys."""
    exact = _rerun(replace(call, single=True, arguments=in_single(call.arguments)), lambda x: x)
    unit = torch.finfo(call.query.dtype).eps / 2
    for name, half, single in (("queries", call.query, exact.query), ("keys", call.key, exact.key)):
        error = float((half.float() - single.float()).abs().max() / single.abs().max().clamp(min=1e-30))
        if single.dtype != torch.float32 or not error <= STEPS * unit:
            raise RefusedError(
                f"its {name} in {str(call.query.dtype).removeprefix('torch.')} differ by {error:.1e} from those of the same "
                f"layer in float32, more than the {STEPS * unit:.0e} of rounding"
            )
    return exact


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
    with observer(calls.append), SinglePrecision() if call.single else contextlib.nullcontext():
        call.module.forward(*args, **kwargs)
    if not calls or any(call.query is not calls[0].query for call in calls):
        raise RefusedError("it attends several times when it runs alone")
    tables = call.tables
    if call.single and call.find_tables is not None:  # a layer that makes its own table has made one with more digits
        tables = call.find_tables((args, kwargs))
    return replace(calls[0], single=call.single, arguments=(args, kwargs), tables=tables, find_tables=call.find_tables)


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


class ReadCall(NamedTuple):
    """The heads of a layer, `M` at a query, the largest difference between the attention that follows from it and the layer's
    own, and the bound of rounding there. In half precision every key has a bound of its own: if a difference exceeds it, both
    are of that key.
    """

    heads: Heads
    factors: LogitFactors
    error: float
    limit: float


def read_call(call: AttentionCall, layout: Layout, at: int, first: int = 0) -> ReadCall:
    """What a call of attention gives at the query `at`. Refuses half precision if attention is another in single precision."""
    queries, keys, rope, turns = layout.contents(call, first)
    window, chunk = call.extent(first)
    sinks = None if call.sinks is None else call.sinks.to(queries.dtype)
    heads = Heads(queries, keys, rope, call.scale, call.soft_cap, window, call.alibi, turns, sinks, chunk)
    factors = layer_factors(heads, at)
    ours = with_sinks(factors.diagonal(), sinks)
    if not call.half:
        return ReadCall(heads, factors, *_full_precision(ours, call, at))
    again, bounds, dtype = _differences(ours, call, at, torch.float32)
    excess = again - bounds.clamp(min=ROUNDED)
    if dtype == torch.float32 and not (excess <= 0).all():  # of the same queries and keys: no rounding explains it
        worst = float(again.flatten()[excess.argmax()])
        raise RefusedError(f"its attention, computed in float32, differs by {worst:.1e} from the one that follows from M")
    differences, bounds, _ = _differences(ours, call, at, None)
    beyond = differences / bounds
    worst = int((differences if (beyond <= 1).all() else beyond).argmax())
    return ReadCall(heads, factors, float(differences.flatten()[worst]), float(bounds.flatten()[worst]))


def _full_precision(ours: Tensor, call: AttentionCall, at: int) -> tuple[float, float]:
    """Error and limit of a layer in single or double precision: one limit for all keys, unless logits are very large."""
    limit = max(ROUNDED, TOLERANCE[call.query.dtype])  # most families compute their softmax in single precision in any case
    differences = _differences(ours, call, at, None, bounded=False)[0]
    if differences.max() <= limit:
        return float(differences.max()), limit
    differences, bounds, _ = _differences(ours, call, at, None)
    bounds = bounds.clamp(min=limit)
    worst = int((differences / bounds).argmax())
    return float(differences.flatten()[worst]), float(bounds.flatten()[worst])


def _differences(
    ours: Tensor, call: AttentionCall, at: int, dtype: torch.dtype | None, bounded: bool = True
) -> tuple[Tensor, Tensor, torch.dtype]:
    """Differences of the layer's own attention, in a precision (None: its own), from ours; their bounds, zero unless `bounded`;
    and the precision.

    With sinks, or where the layer returns no weights, its outputs are compared: weights times values. Where attention cannot be
    computed again, it comes in its own precision.
    """
    result, weights = call.own(at, slice(None), dtype)
    precision = call.query.dtype if dtype is None or dtype != result.dtype else dtype
    bounds = weight_bounds(call, at, ours, precision, fused=weights is None) if bounded else torch.zeros_like(ours)
    if weights is not None and call.sinks is None:
        return (ours - weights[..., : at + 1].to(ours.dtype)).abs(), bounds, precision
    values = call.value[:, :, : at + 1].to(ours.dtype)
    largest = values.abs().max().clamp(min=1e-30)
    values = (values / largest).repeat_interleave(ours.shape[1] // values.shape[1], 1)
    output = (ours[:, :, None] @ values)[:, :, 0]
    own = result.to(ours.dtype) / largest
    return (output - own).abs(), output_bounds(bounds, ours, values, precision), precision


def own_weights(heads: Heads, at: int) -> Float[Tensor, "B H T"]:
    """The attention weights at a query that follow from the diagonal of `M`, including sinks."""
    return with_sinks(layer_factors(heads, at).diagonal(), heads.sinks)
