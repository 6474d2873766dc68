"""One attention layer on a batch of inputs, as measures read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..heads import Heads
from ..logits import LogitFactors
from ..weights import attention_weights, with_sinks
from .blocks import block_logits
from .visible import Blocks

TAUS = (1e-4, 1e-3, 1e-2, 0.1, 1.0)
"""Temperatures of measures that have an axis "tau"."""
DRAWS = 20
"""Number of draws of measures that have an axis "draw": a number beyond all of them has p = 1 / 21, below 0.05."""
LAST_QUERIES = 64
"""Number of queries, counted from the end, over which measures of ordinary attention are averaged."""
MANY_TOKENS = 256
"""Number of single tokens from which on their swaps are computed without the matrix `M`, which would grow with its square."""

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class LayerView:
    """Everything a measure can read from one layer. What several measures share is computed once, when first used.

    heads         queries and keys of the layer
    factors       `M` of every head at the last query, from `layer_factors(heads)`
    blocks        half-open ranges of positions that move as a whole, the same for all inputs; None if every token before the
                  query moves alone
    ids           token ids (B, T); only measures that compare tokens read them
    tau           temperature of the weighting of swaps
    permutations  number of random permutations, for the measures that draw them
    seed          seed of these permutations, and of noise
    tolerance     error that scores may have where that saves time; 0 for none
    layer         number of the layer, for the measures that draw noise of their own in each
    """

    heads: Heads
    factors: LogitFactors
    blocks: Blocks | None = None
    ids: Int[Tensor, "B T"] | None = None
    tau: float = 1e-4
    permutations: int = 200
    seed: int = 0
    tolerance: float = 0.0
    layer: int = 0
    _results: dict[Callable[[Any], Any], Any] = field(default_factory=dict, repr=False)

    def once(self, function: Callable[[LayerView], Result]) -> Result:
        """`function(self)`, computed at the first call and cached."""
        if function not in self._results:
            self._results[function] = function(self)
        result: Result = self._results[function]
        return result

    @property
    def tokens(self) -> int:
        """Number of tokens of each input."""
        return self.heads.keys.shape[-2]

    @property
    def sizes(self) -> dict[str, int]:
        """Length of each axis that a measure of one layer can have."""
        batch, heads = self.heads.queries.shape[:2]
        planes = len(self.heads.rope.plane_frequencies)
        return {"input": batch, "head": heads, "plane": planes, "tau": len(TAUS), "draw": DRAWS}

    @cached_property
    def visible_blocks(self) -> list[tuple[int, int]]:
        """The blocks that the last query sees completely."""
        first = self.heads.first_seen()
        blocks = [(p, p + 1) for p in range(self.tokens - 1)] if self.blocks is None else self.blocks
        return [(start, stop) for start, stop in blocks if start >= first]

    @cached_property
    def many_tokens(self) -> Int[Tensor, " m"] | None:
        """Positions of the tokens that move, if all blocks are single tokens and there are `MANY_TOKENS` or more of them."""
        blocks = self.visible_blocks
        if len(blocks) < MANY_TOKENS or any(stop - start != 1 for start, stop in blocks):
            return None
        return torch.tensor([start for start, _ in blocks], device=self.heads.keys.device)

    @cached_property
    def log_total(self) -> Float[Tensor, "B H"]:
        """Log of the sum that normalises the attention weights of the last query."""
        total = self.factors.diagonal().logsumexp(-1)
        if self.heads.sinks is None:
            return total
        return torch.logaddexp(total, self.heads.sinks.to(total.dtype).expand_as(total))

    @cached_property
    def M(self) -> Float[Tensor, "B H n n"]:  # noqa: N802
        """`M` of the visible blocks, with everything that does not move in the last entry (see `block_logits`).

        Without blocks, it is `M` of the tokens.
        """
        if self.blocks is None:
            return self.token_logits()
        return block_logits(self.factors, self.visible_blocks, self.heads.sinks)

    def token_logits(self) -> Float[Tensor, "B H T T"]:
        """`M` of single tokens. Not cached, because it grows with the square of the length."""
        M = self.factors.matrix()
        if self.heads.sinks is not None:  # sinks only enter the normaliser, and so does the query, which never moves
            M[..., -1, -1] = torch.logaddexp(M[..., -1, -1], self.heads.sinks)
        return M

    @cached_property
    def weights(self) -> Float[Tensor, "B H T"]:
        """Attention weights of the last query, in double precision."""
        return with_sinks(self.factors.diagonal(), self.heads.sinks)

    @cached_property
    def last_positions(self) -> Int[Tensor, " Q"]:
        """Positions of the last queries, except 0, which sees nothing but itself."""
        return torch.arange(max(1, self.tokens - LAST_QUERIES), self.tokens, device=self.heads.keys.device)

    @cached_property
    def last_weights(self) -> Float[Tensor, "B H Q T"]:
        """Attention weights of the last queries, in single precision."""
        return attention_weights(self.heads, self.last_positions, single=True)

    @cached_property
    def plane_factors(self) -> LogitFactors:
        """`factors` split by RoPE plane, in a leading axis."""
        return self.factors.by_plane()
