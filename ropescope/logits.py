"""The counterfactual logit matrix `M[content, position]`, whole or in parts.

`M[c, p]` is the logit that a query would give to content `c` at position `p`. With RoPE

    M[c, p] = scale * k_c . R(n - p) q,

and per plane `f`, with query and key as complex numbers, this is

    scale * Re(k_c conj(q)) * cos((n - p) theta_f)  +  scale * Im(k_c conj(q)) * sin((n - p) theta_f).

So `M = content @ place.T`: the first factor does not depend on positions, the second not on contents. One product gives the
logits of every permutation of the layer's input. A part of `M` needs only some rows of both factors, and a RoPE plane is a
pair of columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor

from .heads import Heads
from .inputs import number, whole, whole_tensor
from .rope import Rope


def exact_dtype(device: torch.device) -> torch.dtype:
    """Double precision, except on Apple GPUs, which lack it. Scores weight swaps by `exp(difference / 1e-4)` and need it."""
    return torch.float32 if device.type == "mps" else torch.float64


@dataclass(frozen=True)
class LogitFactors:
    """`M` in factored form: `content @ place.T`, soft-capped, plus `bias`, where `visible`. Multiplied only on request.

    content   (..., T, r): products of query and keys in each plane, independent of positions
    place     (..., T, r): how each position rotates them, independent of contents
    rope      the rotation; each of its planes has two columns, and the dimensions that do not rotate have one
    soft_cap  soft cap of the logits, or None
    bias      (..., T): added to the logits of each position, or None
    visible   (..., T): positions that the query sees, or None for all

    Returned by `logit_factors` and `layer_factors`.

    >>> import torch, ropescope as rs
    >>> factors = rs.logit_factors(torch.randn(6), torch.randn(5, 6), rs.Rope(head_dim=6))
    >>> factors.matrix().shape, factors.diagonal().shape, factors.planes().shape
    (torch.Size([5, 5]), torch.Size([5]), torch.Size([3, 5, 5]))
    >>> torch.allclose(factors.planes().sum(0), factors.matrix())
    True
    """

    content: Float[Tensor, "*batch T r"]
    place: Float[Tensor, "*#batch T r"]
    rope: Rope
    soft_cap: float | None
    bias: Float[Tensor, "*#batch T"] | None
    visible: Bool[Tensor, "*#batch T"] | None

    def matrix(self) -> Float[Tensor, "*batch T T"]:
        """The whole matrix `M`, with -inf at positions that the query cannot see."""
        return self._finish(_product(self.content, self.place), self.bias, self.visible)

    def diagonal(self) -> Float[Tensor, "*batch T"]:
        """The real logits `M[j, j]`, without computing the rest of `M`."""
        return self._diagonal

    @cached_property
    def _diagonal(self) -> Float[Tensor, "*batch T"]:
        logits = (self.content * self.place).sum(-1)
        return self._finish(logits[..., None, :], self.bias, self.visible)[..., 0, :]

    def piece(self, contents: Int[Tensor, " C"] | slice, positions: Int[Tensor, " P"] | slice) -> Float[Tensor, "*batch C P"]:
        """`M[contents][:, positions]`."""
        return self._finish(
            _product(_rows(self.content, contents), _rows(self.place, positions)),
            None if self.bias is None else self.bias[..., positions],
            None if self.visible is None else self.visible[..., positions],
        )

    def select(self, keys: Int[Tensor, " m"]) -> LogitFactors:
        """The factors of these keys only, in this order."""
        return replace(
            self,
            content=_rows(self.content, keys),
            place=_rows(self.place, keys),
            bias=None if self.bias is None else self.bias[..., keys],
            visible=None if self.visible is None else self.visible[..., keys],
        )

    def by_plane(self) -> LogitFactors:
        """The factors of each RoPE plane, along a new first axis, without soft cap and ALiBi, which belong to no plane."""
        pairs = len(self.rope.frequencies)
        factors: list[Tensor] = []
        for x in (self.content, self.place):
            planes = x[..., : 2 * pairs].unflatten(-1, (pairs, 2)).movedim(-2, 0)
            if x.shape[-1] > 2 * pairs:  # one column for what does not rotate: pad it to two
                still = torch.nn.functional.pad(x[..., 2 * pairs :], (0, 1))
                planes = torch.cat((planes, still[None]))
            factors.append(planes)
        content, place = factors
        while place.ndim < content.ndim:
            place = place.unsqueeze(1)
        return replace(self, content=content, place=place, soft_cap=None, bias=None)

    def some(self, first_axis: slice) -> LogitFactors:
        """The factors of a slice of the first axis (heads or planes)."""
        return replace(
            self,
            content=self.content[first_axis],
            place=self.place if self.place.ndim < self.content.ndim or len(self.place) == 1 else self.place[first_axis],
        )

    def only_planes(self, planes: Sequence[int]) -> LogitFactors:
        """The factors with all RoPE planes but these set to zero; the last plane is the one that does not rotate."""
        pairs = len(self.rope.frequencies)
        columns = torch.zeros(self.content.shape[-1], dtype=self.content.dtype, device=self.content.device)
        for plane in planes:
            columns[2 * plane : 2 * plane + 2 if plane < pairs else None] = 1
        return replace(self, content=self.content * columns)

    def planes(self) -> Float[Tensor, "F *batch T T"]:
        """`M_f` of every RoPE plane. They add up to `M` before soft cap and ALiBi, which belong to no plane."""
        return self.by_plane().matrix()

    def plane_diagonal(self) -> Float[Tensor, "F *batch T"]:
        """The contribution of every RoPE plane to the real logits, without computing the rest of `planes`."""
        return self.by_plane().diagonal()

    def item(self, *index: int) -> LogitFactors:
        """The factors of one head and query out of a batch."""
        batch = self.content.shape[:-2]

        def pick(x: Tensor, axes: int) -> Tensor:
            return x.expand(*batch, *x.shape[-axes:])[index]

        return replace(
            self,
            content=self.content[index],
            place=pick(self.place, 2),
            bias=None if self.bias is None else pick(self.bias, 1),
            visible=None if self.visible is None else pick(self.visible, 1),
        )

    def _finish(self, logits: Tensor, bias: Tensor | None, visible: Tensor | None) -> Tensor:
        if self.soft_cap is not None:
            logits = self.soft_cap * torch.tanh(logits / self.soft_cap)
        if bias is not None:
            logits = logits + bias[..., None, :]
        return logits if visible is None else logits.masked_fill(~visible[..., None, :], -math.inf)


def _rows(x: Float[Tensor, "*batch T r"], which: Int[Tensor, " m"] | slice) -> Float[Tensor, "*batch m r"]:
    # index_select is several times as fast as x[..., which, :].
    return x[..., which, :] if isinstance(which, slice) else x.index_select(-2, which)


def _product(content: Float[Tensor, "*batch C r"], place: Float[Tensor, "*#batch P r"]) -> Float[Tensor, "*batch C P"]:
    if content.shape[-1] != 2:
        return content @ place.mT.contiguous()
    # One plane is two outer products, for which a general matrix product is slow.
    (a, b), (x, y) = content.unbind(-1), place.unbind(-1)
    return (a[..., :, None] * x[..., None, :]).addcmul_(b[..., :, None], y[..., None, :])


def logit_factors(
    query: Float[Tensor, "*#batch d"],
    keys: Float[Tensor, "*#batch T d"],
    rope: Rope,
    *,
    scale: float | None = None,
    query_position: int | Int[Tensor, "*#batch"] | None = None,
    soft_cap: float | None = None,
    window: int | None = None,
    alibi: float | Float[Tensor, "*#batch"] | None = None,
    turns: Complex[Tensor, "T F"] | None = None,
) -> LogitFactors:
    """`M` in factored form, for contexts too long for a square matrix.

    Arguments and errors are those of `counterfactual_logits`.

    >>> import torch, ropescope as rs
    >>> factors = rs.logit_factors(torch.randn(64), torch.randn(8192, 64), rs.Rope(head_dim=64))
    >>> factors.content.shape  # instead of 8192 x 8192
    torch.Size([8192, 64])
    >>> factors.piece(slice(0, 3), slice(100, 104)).shape  # the first three contents at four positions
    torch.Size([3, 4])
    """
    for name, x, axes in (("query", query, "(..., d)"), ("keys", keys, "(..., T, d)")):
        if x.ndim < axes.count(",") or x.shape[-1] != rope.head_dim:
            raise ValueError(f"{name} must be {axes} with d = {rope.head_dim} as in rope, not {tuple(x.shape)}")
    if scale is None:
        scale = 1 / math.sqrt(rope.head_dim)
    for name, value in (("scale", scale), ("soft_cap", soft_cap), ("window", window)):
        if value is not None and not (math.isfinite(number(name, value)) and value > 0):
            raise ValueError(f"{name} must be a positive number, not {value}")
    window = None if window is None else whole("window", window)
    for name, x in (("query", query), ("keys", keys)):
        if not torch.isfinite(x.sum()) and not torch.isfinite(x).all():  # a finite sum is a quick check
            raise ValueError(f"{name} holds NaN or infinite numbers: check the model that made it")

    dtype = exact_dtype(keys.device)
    distance = _distances(query_position, keys.shape[-2], keys.device).to(dtype)
    tokens = distance.shape[-1]
    content = _content(query.to(dtype), keys[..., :tokens, :].to(dtype), rope)
    place = scale * (_turning(distance, rope) if turns is None else _turned(turns, query_position, keys.shape[-2], rope))
    if rope.rotary_dim < rope.head_dim:
        place = torch.cat((place, torch.full_like(distance[..., None], scale)), -1)
    bias = None if alibi is None else -torch.as_tensor(alibi, dtype=dtype, device=keys.device)[..., None] * distance
    _refuse_overflow(content, place, bias)
    visible = None
    if distance.ndim > 1 or (window is not None and window < tokens):
        visible = (distance >= 0) & (distance < (window or tokens))
    for name, varying in (("query_position", distance), ("alibi", bias)):
        if varying is not None and varying.ndim > 1:
            content = content.expand(*_shared_axes(name, varying.shape[:-1], content.shape[:-2]), *content.shape[-2:])
    return LogitFactors(content, place, rope, soft_cap, bias, visible)


def _refuse_overflow(content: Tensor, place: Tensor, bias: Tensor | None) -> None:
    """Raise ValueError if a logit could be infinite or NaN."""
    if bias is not None and not torch.isfinite(bias).all():
        raise ValueError("alibi must be finite numbers")
    if content.numel():
        low, high = torch.aminmax(content.detach())
        if not math.isfinite(float(torch.maximum(-low, high) * place.abs().max() * content.shape[-1])):
            raise ValueError("query and keys are so large that their logits overflow: divide them by a constant")


def _turning(distance: Float[Tensor, "*batch T"], rope: Rope) -> Float[Tensor, "*batch T r"]:
    """`place` from the exact rotation."""
    angles = distance[..., None] * torch.tensor(rope.frequencies, dtype=distance.dtype, device=distance.device)
    return torch.stack((angles.cos(), angles.sin()), -1).flatten(-2)


def _turned(turns: Tensor, query_position: int | Tensor | None, tokens: int, rope: Rope) -> Float[Tensor, "T r"]:
    """`place` from the rotations that the layer really applied."""
    if isinstance(query_position, Tensor):
        raise ValueError("turns need one query_position for all queries: give an integer")
    if turns.shape != (tokens, len(rope.frequencies)):
        raise ValueError(f"turns must be (T, F) = ({tokens}, {len(rope.frequencies)}), not {tuple(turns.shape)}")
    at = tokens - 1 if query_position is None else query_position
    relative = turns[: at + 1] * turns[at].conj()
    return torch.view_as_real(relative.conj().resolve_conj()).flatten(-2)


def _content(query: Float[Tensor, "*#batch d"], keys: Float[Tensor, "*#batch T d"], rope: Rope) -> Float[Tensor, "*batch T r"]:
    """Dot and cross product of query and key in each plane, and the dot product of the dimensions that do not rotate."""
    _shared_axes("query", query.shape[:-1], keys.shape[:-2])
    query_turning, query_still = rope.to_planes(query)
    keys_turning, keys_still = rope.to_planes(keys)
    content = torch.view_as_real(keys_turning * query_turning.conj().resolve_conj()[..., None, :]).flatten(-2)
    if rope.rotary_dim == rope.head_dim:
        return content
    return torch.cat((content, (keys_still * query_still[..., None, :]).sum(-1, keepdim=True)), -1)


def _shared_axes(name: str, one: torch.Size, keys: torch.Size) -> torch.Size:
    if one == keys:
        return one
    try:
        return torch.Size(torch.broadcast_shapes(one, keys))
    except RuntimeError:
        raise ValueError(
            f"{name} and keys must share their leading axes, not have {tuple(one)} and {tuple(keys)}: give each query its keys "
            f"(for grouped-query attention, an axis of length 1 in keys)"
        ) from None


def _distances(given: int | Tensor | None, tokens: int, device: torch.device) -> Int[Tensor, "... t"]:
    """Distance from each position to its query, up to the last query position; negative after the query."""
    bad = ValueError(
        f"query_position must be whole numbers from 0 to {tokens - 1} (keys holds {tokens} positions), not {given}"
    )
    if isinstance(given, Tensor):
        if not whole_tensor("query_position", given).numel() or given.min() < 0 or given.max() >= tokens:
            raise bad
        return given.to(device)[..., None] - torch.arange(int(given.max()) + 1, device=device)
    at = tokens - 1 if given is None else whole("query_position", given)
    if not 0 <= at < tokens:
        raise bad
    return torch.arange(at, -1, -1, device=device)


def counterfactual_logits(
    query: Float[Tensor, "*#batch d"],
    keys: Float[Tensor, "*#batch T d"],
    rope: Rope,
    *,
    scale: float | None = None,
    query_position: int | Int[Tensor, "*#batch"] | None = None,
    soft_cap: float | None = None,
    window: int | None = None,
    alibi: float | Float[Tensor, "*#batch"] | None = None,
    turns: Complex[Tensor, "T F"] | None = None,
    by_plane: bool = False,
) -> Float[Tensor, "..."]:
    """`M[..., content, position]`: the logit that each query would give to each key at each position.

    query           content (un-rotated) queries, (..., d); leading axes broadcast against those of `keys`
    keys            content keys, (..., T, d), including the query's own
    scale           factor of the dot product; 1 / sqrt(d) by default
    query_position  position of the query, one or one per query; that of the last key by default
    soft_cap        logits are `cap * tanh(logit / cap)`, as in Gemma 2
    window          number of positions that a sliding-window layer sees, the query's own included
    alibi           slope of a linear distance bias `slope * (position - query_position)`, one or one per query
    turns           complex factors by which each plane was really multiplied at each position, if the model's table of cosines
                    and sines differs from `rope` by rounding or by a factor
    by_plane        return one matrix per RoPE plane, along a new first axis; they add up to `M` before soft cap and ALiBi

    The result has a row and a column for each key up to the last query position, in double precision. Positions that a
    query cannot see hold -inf. The query's own key, at the last position it sees, never moves.

    Raises ValueError if shapes do not match each other or `rope`, a number is not positive, a query position has no key, or
    query or keys hold NaN or infinite numbers.

    >>> import torch, ropescope as rs
    >>> M = rs.counterfactual_logits(torch.randn(8, 64), torch.randn(8, 17, 64), rs.Rope(head_dim=64))
    >>> M.shape
    torch.Size([8, 17, 17])
    >>> keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])  # one plane, a quarter turn per position
    >>> M = rs.counterfactual_logits(keys[2], keys, rs.Rope(frequencies=[torch.pi / 2]), scale=1)
    >>> M.round().int().tolist()
    [[-1, 0, 1], [0, 1, 0], [-1, 0, 1]]
    """
    factors = logit_factors(
        query,
        keys,
        rope,
        scale=scale,
        query_position=query_position,
        soft_cap=soft_cap,
        window=window,
        alibi=alibi,
        turns=turns,
    )
    return factors.planes() if by_plane else factors.matrix()


def layer_factors(heads: Heads, query_position: int | None = None) -> LogitFactors:
    """`M` of every head of a layer, (B, H, T, T), in factored form, for the query at one position.

    heads           queries and keys of the layer
    query_position  position of the query; the last by default

    Raises ValueError if the position has no query.

    >>> import torch, ropescope as rs
    >>> heads = rs.Heads(torch.randn(2, 4, 9, 8), torch.randn(2, 4, 9, 8), rs.Rope(head_dim=8), scale=8**-0.5)
    >>> factors = rs.layer_factors(heads)
    >>> factors.matrix().shape, factors.only_planes([0]).matrix().shape  # the whole head, and its fastest plane alone
    (torch.Size([2, 4, 9, 9]), torch.Size([2, 4, 9, 9]))
    """
    at = heads.keys.shape[-2] - 1 if query_position is None else whole("query_position", query_position)
    groups = heads.keys.shape[1]
    factors = logit_factors(
        heads.queries[:, :, query_row(heads, at)].unflatten(1, (groups, -1)),
        heads.keys[:, :, None],
        heads.rope,
        scale=heads.scale,
        query_position=at,
        soft_cap=heads.soft_cap,
        window=at + 1 - heads.first_seen(at),
        alibi=None if heads.alibi is None else heads.alibi.unflatten(0, (groups, -1)),
        turns=heads.turns,
    )

    # Merge the axes of key heads and of query heads per key head. `place` and `visible` are shared by all heads.
    bias = None if factors.bias is None else factors.bias.flatten(-3, -2)
    return replace(factors, content=factors.content.flatten(1, 2), bias=bias)


def query_row(heads: Heads, at: int) -> int:
    """Index of the query of a position. Raises ValueError if the position has no query."""
    tokens, queries = heads.keys.shape[-2], heads.queries.shape[-2]
    if not tokens - queries <= at < tokens:
        raise ValueError(f"query_position must be a position that has a query, {tokens - queries} to {tokens - 1}, not {at}")
    return at - (tokens - queries)


def layer_logits(heads: Heads, query_position: int | None = None, by_plane: bool = False) -> Float[Tensor, "..."]:
    """`M` of every head of a layer, (B, H, T, T), for the query at one position.

    heads           queries and keys of the layer
    query_position  position of the query; the last by default
    by_plane        return one matrix per RoPE plane: (F, B, H, T, T)

    Raises ValueError if the position has no query.

    >>> import torch, ropescope as rs
    >>> heads = rs.Heads(torch.randn(2, 4, 9, 8), torch.randn(2, 4, 9, 8), rs.Rope(head_dim=8), scale=8**-0.5)
    >>> rs.layer_logits(heads).shape
    torch.Size([2, 4, 9, 9])
    >>> rs.layer_logits(heads, query_position=5, by_plane=True).shape  # keys 0 to 5
    torch.Size([4, 2, 4, 6, 6])
    """
    factors = layer_factors(heads, query_position)
    return factors.planes() if by_plane else factors.matrix()
