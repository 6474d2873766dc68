"""Which rotation a layer applies: its tables of cosines and sines, and how its dimensions are paired into planes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from jaxtyping import Complex
from torch import Tensor, nn

from ...logits import exact_dtype
from ...rope import Pairing, Rope
from .calls import ROUNDED, Arguments, AttentionCall, RefusedError
from .wrapped import named_tensors

TableCache = dict[tuple[int, int], tuple[Tensor, Tensor, dict[str, Tensor]]]
"""Cosines and sines by their ids, with the rotations that they may stand for. Storing them keeps ids unique."""


@dataclass(frozen=True)
class Layout:
    """How a layer rotates its heads: which table of rotations, which dimensions, how they are paired."""

    table: str | None  # None: keys do not depend on position
    pairing: Pairing = "half"
    first: int = 0
    backwards: bool = False
    key_weight: Tensor | None = None  # of a norm between rotation and attention

    def contents(self, call: AttentionCall, first: int = 0) -> tuple[Tensor, Tensor, Rope, Tensor | None]:
        """Content queries from position `first` on, content keys (rotary dimensions first), the rotation, and its turns."""
        dtype = exact_dtype(call.key.device)
        query, key = call.query[:, :, first:].to(dtype), call.key.to(dtype)
        size = key.shape[-1]
        if self.key_weight is not None:
            weight = self.key_weight.to(dtype)
            query, key = query * weight, key / weight
        if self.table is None:
            return query, key, Rope(size, rotary_dim=0), None
        turns = self.turns(call.tables)
        if call.stopped:
            turns = stopped_turns(turns, call.stopped)
        rope = Rope(size, pairing=self.pairing, frequencies=_frequencies(turns))
        back = 1 / turns

        def unrotated(x: Tensor, back: Tensor) -> Tensor:
            turning, still = rope.to_planes(x.roll(-self.first, -1) if self.first else x)
            return rope.from_planes(turning * back, still)

        return unrotated(query, back[first:]), unrotated(key, back), rope, turns

    def turns(self, tables: Mapping[str, Tensor]) -> Complex[Tensor, "T F"]:
        """The complex factor of each plane at each position."""
        assert self.table is not None
        turns = tables[self.table]
        return turns.conj().resolve_conj() if self.backwards else turns


def stopped_turns(turns: Complex[Tensor, "T F"], planes: Sequence[int]) -> Complex[Tensor, "T F"]:
    """The same turns with some planes at angle 0. A factor on the rotation (YaRN) does not depend on position and stays."""
    factor = turns[:, list(planes)].abs()
    factor = torch.where((factor - 1).abs() < 1e-6, 1.0, factor)  # cosines and sines are rounded
    still = turns.clone()
    still[:, list(planes)] = factor.to(turns.dtype)
    return still


def find_layout(constant: AttentionCall, limit: float) -> tuple[Layout, float]:
    """The layout that turns the keys of equal tokens back into equal keys, and the largest difference that remains."""
    best, least = Layout(None), math.inf
    for layout in _candidates(constant):
        key = layout.contents(constant)[1]
        error = float((key - key[:, :, :1]).abs().max() / key.abs().max().clamp(min=1e-30))
        if error < least:
            best, least = layout, error
        if least <= limit / 10:
            break
    if not least <= max(limit, ROUNDED):
        why = "no table of rotations was found" if not constant.tables else "no pairing of dimensions fits"
        raise RefusedError(f"its keys depend on position otherwise than by a rotation we know ({why})")
    return best, least


def _candidates(call: AttentionCall) -> list[Layout]:
    size = call.key.shape[-1]
    layouts = [Layout(None)]
    for weight in (None, *_key_weights(call.module, size)):
        for name, table in call.tables.items():
            planes = table.shape[-1]
            starts = {0, size - 2 * planes} if 0 < 2 * planes <= size else set()
            pairings: tuple[Pairing, ...] = ("half", "interleaved")
            for first, pairing, backwards in product(sorted(starts), pairings, (False, True)):
                layouts.append(Layout(name, pairing, first, backwards, weight))
    return layouts


def _key_weights(module: nn.Module, size: int) -> list[Tensor]:
    """Weights of norms on keys, which some families apply after the rotation."""
    return [
        weight
        for name, weight in named_tensors(module)
        if re.search(r"k(ey)?_?(layer_?)?norm", name) and name.endswith("weight") and weight.shape == (size,)
    ]


def _frequencies(turns: Complex[Tensor, "T F"]) -> list[float]:
    """Radians per token, from the first step. They are for tables and plots: `M` is computed from the turns themselves."""
    step = turns[1] / turns[0] if len(turns) > 1 else torch.ones_like(turns[0])
    angles: list[float] = step.angle().tolist()
    return angles


def rotation_tables(
    module: nn.Module, tokens: int, arguments: Arguments, rotary: Mapping[str, Any], cache: TableCache
) -> dict[str, Tensor]:
    """Rotations that the layer may have used, complex (T, F): from its arguments, rotary modules and its own buffers."""
    args, kwargs = arguments
    sources = {f"argument {n}": value for n, value in enumerate(args)} | {f"argument {n}": v for n, v in kwargs.items()}
    sources |= {f"module {name}": value for name, value in rotary.items()}
    sinusoids = getattr(module, "embed_positions", None)
    if isinstance(sinusoids, Tensor):
        sin, cos = sinusoids[:tokens].chunk(2, -1)
        sources["buffer"] = (cos, sin)
    tables: dict[str, Tensor] = {}
    for name, value in sources.items():
        if isinstance(value, Tensor) and value.is_complex():
            if (table := _per_token(value, tokens)) is not None:
                tables[name] = table
        elif isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(x, Tensor) for x in value):
            cos, sin = value
            if not (cos.is_floating_point() and cos.shape == sin.shape):
                continue
            if (id(cos), id(sin)) not in cache:
                cache[id(cos), id(sin)] = (cos, sin, _by_repetition(cos, sin, tokens))
            tables |= {f"{name}, {layout}": table for layout, table in cache[id(cos), id(sin)][2].items()}
    return tables


def _by_repetition(cos: Tensor, sin: Tensor, tokens: int) -> dict[str, Tensor]:
    """The rotations of a table, by how it may repeat them; empty if it is not one of positions."""
    table = _per_token(torch.complex(cos.double(), sin.double()), tokens)
    if table is None:
        return {}
    found, half = {}, table.shape[-1] // 2
    if table.shape[-1] % 2 == 0 and torch.equal(table[:, :half], table[:, half:]):
        found["halves"] = table[:, :half]
    if table.shape[-1] % 2 == 0 and torch.equal(table[:, ::2], table[:, 1::2]):
        found["pairs"] = table[:, ::2]
    return found | {"whole": table}


def _per_token(x: Tensor, tokens: int) -> Tensor | None:
    """The table as (T, F) without its axes of length one; None if the inputs of a batch are rotated differently."""
    x = x.to(torch.complex128)
    if x.ndim < 2 or x.shape[-1] == 0:
        return None
    if x.numel() == tokens * x.shape[-1]:
        return x.reshape(tokens, -1)
    if x.ndim >= 3 and tokens in x.shape[1:-1]:
        rest = x.reshape(x.shape[0], -1, x.shape[-1]) if x[0].numel() == tokens * x.shape[-1] else None
        if rest is not None and (rest == rest[:1]).all():
            return rest[0]
    return None
