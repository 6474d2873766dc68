"""`M` of whole blocks without `M` of single tokens, so that the cost of a long prompt grows with its number of blocks."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..logits import LogitFactors
from .visible import Blocks, Spans, movable_spans, slot_logits


@torch.no_grad()
def block_logits(
    factors: LogitFactors, blocks: Blocks, sinks: Float[Tensor, "*#batch"] | None = None
) -> Float[Tensor, "*batch n n"]:
    """`M` of blocks, (..., n, n), which every measure accepts: one key per block, and a last one for all that never moves.

    factors  from `logit_factors` or `layer_factors`; only the parts of `M` that blocks need are computed
    blocks   half-open `(start, stop)` ranges of positions
    sinks    logits that enter the softmax without a key, one per head

    Row c, column p is the log of the mean weight (up to the normaliser) of block c in the place of block p. The last entry of
    the diagonal holds the rest of the softmax: the query, tokens in no block, `sinks`. So `swap_scores`, `variance_shares` and
    `exclusion` of the result equal those of `M` with `blocks`.

    Raises ValueError if blocks overlap, are fewer than two, or contain the query or positions it cannot see, or if queries
    see different keys.

    >>> import torch, ropescope as rs
    >>> factors = rs.logit_factors(torch.randn(3, 8), torch.randn(3, 20, 8), rs.Rope(head_dim=8))
    >>> blocks = [(1, 6), (6, 11), (11, 17)]  # positions 0 and 17 to 19 stay
    >>> small = rs.block_logits(factors, blocks)
    >>> small.shape
    torch.Size([3, 4, 4])
    >>> torch.allclose(rs.swap_scores(small).symbolic, rs.swap_scores(factors.matrix(), blocks=blocks).symbolic)
    True
    """
    diagonal = factors.diagonal()
    first = 0
    if factors.visible is not None:
        seen = factors.visible.reshape(-1, factors.visible.shape[-1])
        if not (seen == seen[:1]).all():
            raise ValueError("factors holds queries that see different keys: give them one by one")
        first = int(seen[0].to(torch.uint8).argmax())
    spans = movable_spans(blocks, diagonal.shape[-1] - first, first, diagonal.device)
    spans = Spans(spans.starts + first, spans.stops + first)
    every = torch.arange(len(spans.starts), device=diagonal.device)
    moving = slot_logits(factors.piece, spans, every, every)
    total = diagonal.logsumexp(-1)
    if sinks is not None:
        total = torch.logaddexp(total, sinks.to(total.dtype).expand_as(total))
    share = (moving.diagonal(dim1=-2, dim2=-1).logsumexp(-1) - total).exp()
    # If the share rounds to 1, the rest is smaller than any weight that double precision can represent.
    rest = total + torch.log1p(-share.clamp(max=1 - torch.finfo(share.dtype).eps))
    result = torch.nn.functional.pad(moving, (0, 1, 0, 1))
    result[..., -1, -1] = rest
    return result
