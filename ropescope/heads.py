"""Queries and keys of an attention layer: everything its heads are measured from."""

from __future__ import annotations

from dataclasses import dataclass

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
