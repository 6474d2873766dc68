"""What an attention layer hands over so that its heads can be measured."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Complex, Float
from torch import Tensor

from .rope import Rope


@dataclass(frozen=True)
class Heads:
    """Content (un-rotated) queries and keys of all heads of one layer, and how the layer turns them into logits.

    With grouped-query attention there are fewer key heads than query heads; query head `h` reads key head
    `h // (H // G)`, as everywhere in `transformers`.

    Queries may be those of the last positions only: as many fewer than keys as there are positions without one.

    `turns` are the rotations that the layer really applied, plane by plane, where those differ from what `rope` says: by the
    rounding of its angles, or by a factor (YaRN). `sinks` are logits that take part in the softmax and belong to no key.
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
