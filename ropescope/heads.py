"""Queries and keys of an attention layer: everything its heads are measured from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from .rope import Rope


@dataclass(frozen=True)
class Heads:
    """Content (un-rotated) queries and keys of all heads of one layer, and how the layer computes logits from them.

    queries   (B, H, Q, d), of the last Q positions; Q < T if only the last positions are needed
    keys      (B, G, T, d); with grouped-query attention G < H, and query head `h` reads key head `h // (H // G)`, as in all
              models of `transformers`
    rope      the rotation, the same for all heads
    scale     factor of the dot product, usually 1 / sqrt(d)
    soft_cap  logits are `cap * tanh(logit / cap)`
    window    number of positions that a query sees, its own included
    chunk     queries see only positions of their own chunk; chunks of this many positions follow each other (Llama 4)
    alibi     slopes of a linear distance bias, one per head
    turns     rotations that the layer really applied to each plane, if they differ from `rope` by rounding or by a factor
              (YaRN)
    sinks     logits that enter the softmax without a key, one per head

    Raises ValueError if queries or keys do not have four axes, or query heads cannot share key heads evenly.

    >>> import torch, ropescope as rs
    >>> queries, keys = torch.randn(1, 8, 10, 16), torch.randn(1, 2, 10, 16)  # eight query heads share two key heads
    >>> heads = rs.Heads(queries, keys, rs.Rope(head_dim=16), scale=0.25)
    >>> rs.swap_scores(rs.layer_logits(heads)).positional.shape
    torch.Size([1, 8])
    """

    queries: Float[Tensor, "B H Q d"]
    keys: Float[Tensor, "B G T d"]
    rope: Rope
    scale: float
    soft_cap: float | None = None
    window: int | None = None
    alibi: Float[Tensor, " H"] | None = None
    turns: Complex[Tensor, "T F"] | None = None
    sinks: Float[Tensor, " H"] | None = None
    chunk: int | None = None

    def __post_init__(self) -> None:
        if self.queries.ndim != 4 or self.keys.ndim != 4:
            raise ValueError(
                f"queries and keys must be (batch, head, token, dimension), not {tuple(self.queries.shape)} and "
                f"{tuple(self.keys.shape)}"
            )
        if self.queries.shape[1] % self.keys.shape[1]:
            raise ValueError(
                f"queries has {self.queries.shape[1]} heads, which {self.keys.shape[1]} key heads cannot share evenly"
            )

    def first_seen(self, at: int | None = None) -> int:
        """The first position that the query at position `at` sees; that of the last query by default."""
        at = self.keys.shape[-2] - 1 if at is None else at
        first = 0 if self.window is None else max(0, at + 1 - self.window)
        return first if self.chunk is None else max(first, at // self.chunk * self.chunk)

    @classmethod
    def from_arrays(
        cls,
        queries: Any,
        keys: Any,
        rope: Rope,
        *,
        rotated: bool,
        scale: float | None = None,
        soft_cap: float | None = None,
        window: int | None = None,
    ) -> Heads:
        """Heads of one layer from arrays that any runtime has dumped: of numpy, torch, or nested lists.

        queries   (head, token, dimension), or with an input axis in front; of all tokens or of the last ones
        keys      the same with as many heads as the layer has for keys, of all tokens from position 0 on
        rope      the rotation of the layer
        rotated   whether queries and keys are rotated already, as a KV cache holds keys; then they are turned back
        scale     factor of the dot product; 1 / sqrt(dimension) unless given
        soft_cap  as in `Heads`
        window    as in `Heads`

        Raises ValueError if shapes do not fit together or numbers are not finite. The arrays do not show whether
        `rope` is the rotation that they were made with: a wrong one gives wrong scores.

        >>> import numpy as np, ropescope as rs
        >>> rng, rope = np.random.default_rng(0), rs.Rope(head_dim=16)
        >>> heads = rs.Heads.from_arrays(rng.normal(size=(8, 10, 16)), rng.normal(size=(2, 10, 16)), rope, rotated=True)
        >>> rs.swap_scores(rs.layer_logits(heads)).positional.shape
        torch.Size([1, 8])
        """
        asked, kept = _array("queries", queries, rope), _array("keys", keys, rope)
        count, tokens = asked.shape[-2], kept.shape[-2]
        if len(asked) != len(kept) or count > tokens:
            raise ValueError(
                f"queries and keys must be of the same inputs, and queries not of more tokens, not {tuple(asked.shape)} and "
                f"{tuple(kept.shape)}"
            )
        if rotated:
            positions = torch.arange(tokens, dtype=torch.float64, device=kept.device)
            asked, kept = rope.unrotate(asked, positions[tokens - count :]), rope.unrotate(kept, positions)
        return cls(asked, kept, rope, rope.head_dim**-0.5 if scale is None else scale, soft_cap, window)


def _array(name: str, values: Any, rope: Rope) -> Float[Tensor, "B H T d"]:
    """Values as (input, head, token, dimension) in double precision."""
    found = torch.as_tensor(values).to(torch.float64)
    found = found[None] if found.ndim == 3 else found
    if found.ndim != 4 or not found.numel() or found.shape[-1] != rope.head_dim:
        raise ValueError(
            f"{name} must be (head, token, dimension) with {rope.head_dim} dimensions, as rope has, or have an input axis in "
            f"front, not {tuple(found.shape)}"
        )
    if not found.isfinite().all():
        raise ValueError(f"{name} must be finite: they hold NaN or infinite numbers")
    return found
