"""How far rounding can move the attention of a query: a bound for every key, from the layer's own queries and keys.

Half-precision attention computes, with `u` half of the precision's eps and `v` that of float32,

1. logits `z = scale * q . k`: the product is summed in float32, off by at most `d v a` where `a = scale * |q| . |k|`, and it is
   rounded twice, with its scale and without, by `u |z|` each. PyTorch's fused attention may round `q` and `k` with the square
   root of the scale instead, which adds `2 u a`. A soft cap rounds three times more;
2. weights `w = softmax(z)`, in float32, to which logits in double precision are rounded first. If every logit is off by at
   most `e`, the weight of key `j` is largest if its own logit is `e_j` larger and all others are `e_k` smaller:

       w_j exp(e_j) / (w_j exp(e_j) + sum of w_k exp(-e_k) over the other keys),

   and smallest the other way round. It is then rounded by `u` of its size. A sink is one more key;
3. outputs `w . values`, summed in float32 and rounded.

Nothing here is an estimate: unless a sum is not accumulated in float32, rounding cannot exceed the bound.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from .calls import AttentionCall

SINGLE = torch.finfo(torch.float32).eps / 2
WIDEST = 300.0
"""Errors of logits above this are as good as this: its exponential is still finite."""


def weight_bounds(
    call: AttentionCall, at: int, weights: Float[Tensor, "B H T"], dtype: torch.dtype, fused: bool = False
) -> Float[Tensor, "B H T"]:
    """The largest error of each attention weight of the query at `at` that rounding explains.

    weights  the exact ones, up to the query
    dtype    the precision that attention is computed in
    fused    whether by PyTorch's own function
    """
    unit, tokens = torch.finfo(dtype).eps / 2, weights.shape[-1]
    error = _logit_errors(call, at, weights.dtype, unit, fused)
    if call.sinks is not None:  # one more key
        weights = torch.cat((weights, (1 - weights.sum(-1, keepdim=True)).clamp(min=0)), -1)
    grown, shrunk = weights * error.exp(), weights * (-error).exp()
    others = [(each.sum(-1, keepdim=True) - each).clamp(min=0) for each in (shrunk, grown)]
    most, least = grown / (grown + others[0]).clamp(min=1e-300), shrunk / (shrunk + others[1]).clamp(min=1e-300)
    smallest = max(torch.finfo(dtype).tiny * torch.finfo(dtype).eps, torch.finfo(torch.float32).tiny)
    bounds = torch.maximum(most - weights, weights - least) + (unit + (tokens + 8) * SINGLE) * most + smallest
    return bounds[..., :tokens]


def output_bounds(
    bounds: Float[Tensor, "B H T"], weights: Float[Tensor, "B H T"], values: Float[Tensor, "B H T v"], dtype: torch.dtype
) -> Float[Tensor, "B H v"]:
    """The largest error of each output that rounding explains, from the bounds of weights."""
    unit = torch.finfo(dtype).eps / 2
    more = (unit + weights.shape[-1] * SINGLE) * (weights + bounds)
    return ((bounds + more)[:, :, None] @ values.abs())[:, :, 0]


def _logit_errors(call: AttentionCall, at: int, dtype: torch.dtype, unit: float, fused: bool) -> Float[Tensor, "B H T"]:
    """The largest error of each logit of a query; that of the sink, if there is one, is the last."""
    query, keys = call.query[:, :, at, None].to(dtype), call.key[:, :, : at + 1].to(dtype)
    keys = keys.repeat_interleave(query.shape[1] // keys.shape[1], 1)
    logits = call.scale * (query @ keys.mT)[:, :, 0]
    sizes = call.scale * (query.abs() @ keys.abs().mT)[:, :, 0]
    summed = query.shape[-1] * min(unit, SINGLE)
    error = 2 * unit * logits.abs() + (summed + (2 * unit if fused else 0.0)) * sizes
    if (cap := call.soft_cap) is not None:  # it flattens errors of large logits; its own are of the quotient and the result
        before, error = logits.abs(), error + unit * logits.abs()
        logits = cap * torch.tanh(logits / cap)
        error = logits.abs() - cap * torch.tanh((before - error) / cap) + 2 * unit * logits.abs()
    if call.sinks is not None:
        sink = call.sinks.to(logits)[None, :, None].expand(len(logits), -1, 1)
        logits, error = torch.cat((logits, sink), -1), torch.nn.functional.pad(error, (0, 1))
    below = logits.amax(-1, keepdim=True) - logits  # softmax subtracts the largest: in float32 or, with sinks, as they are
    error = error + (SINGLE if call.sinks is None else max(unit, SINGLE)) * below + SINGLE * logits.abs()
    return (error * (1 + 8 * unit)).clamp(max=WIDEST)  # roundings of rounded numbers
