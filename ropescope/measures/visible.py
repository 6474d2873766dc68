"""The keys of `M` that a measure moves: those that the query sees, except its own, one by one or in blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from ..inputs import shown, whole
from ..logits import exact_dtype

Blocks = Sequence[tuple[int, int]]
"""Half-open `(start, stop)` ranges of positions. Tokens outside all of them keep their order between the blocks."""


@dataclass(frozen=True)
class Spans:
    """Valid blocks, in order of position."""

    starts: Tensor
    stops: Tensor

    @property
    def lengths(self) -> Tensor:
        return self.stops - self.starts

    @property
    def single(self) -> bool:
        return bool((self.lengths == 1).all())


def over_visible(
    M: Float[Tensor, "*batch T T"], measure: Callable[[Float[Tensor, "N t t"], int], Float[Tensor, "*k N"]]
) -> Float[Tensor, "*k *batch"]:
    """The results of a measure of square matrices, applied to the part of each matrix that its query sees.

    Positions that a query cannot see (outside a sliding window, or after an earlier query) hold -inf. The visible positions
    must be consecutive, so each matrix has a visible square. `measure` is called with all visible squares that start and stop
    at the same positions, and with the first position.
    """
    if M.ndim < 2 or M.shape[-1] != M.shape[-2] or M.numel() == 0 or not M.is_floating_point():
        raise ValueError(f"M must be (..., content, position) with as many contents as positions, not {tuple(M.shape)}")
    batch, tokens = M.shape[:-2], M.shape[-1]
    flat = M.to(exact_dtype(M.device)).reshape(-1, tokens, tokens)
    if torch.isfinite(flat.sum()):
        return measure(flat, 0).unflatten(-1, batch) if batch else measure(flat, 0)[..., 0]
    seen = flat.diagonal(dim1=-2, dim2=-1) > -math.inf
    count, first = seen.sum(-1), seen.to(torch.uint8).argmax(-1)
    last = tokens - 1 - seen.flip(-1).to(torch.uint8).argmax(-1)
    finite = torch.isfinite(flat) | ~seen[:, :, None] | (~seen[:, None, :] & (flat == -math.inf))
    if torch.isnan(flat).any() or not finite.all() or not ((count > 0) & (last - first + 1 == count)).all():
        raise ValueError(
            "M holds NaN or infinite logits: every logit must be finite, except whole columns of -inf before and after the "
            "positions that the query sees"
        )
    results: Tensor | None = None
    for start, stop in torch.unique(torch.stack((first, last + 1), -1), dim=0).tolist():
        rows = ((first == start) & (last + 1 == stop)).nonzero()[:, 0]
        part = measure(flat[rows, start:stop, start:stop], start)
        if results is None:
            results = part.new_empty(*part.shape[:-1], len(flat))
        results[..., rows] = part
    assert results is not None
    return results.unflatten(-1, batch) if batch else results[..., 0]


def movable_spans(blocks: Blocks | None, tokens: int, offset: int, device: torch.device, at_least: int = 2) -> Spans:
    """Blocks inside a visible square of `tokens` positions from `offset` on, relative to it; without blocks, single tokens.

    Raises ValueError if a block is not inside, blocks overlap, or there are fewer than `at_least`.
    """
    query = tokens - 1
    if blocks is None:
        starts = torch.arange(query, device=device)
        spans = Spans(starts, starts + 1)
        if query < at_least:
            raise ValueError(
                f"M holds {query} key{'' if query == 1 else 's'} before the query, so no swap exists: "
                f"use a query at position {offset + at_least} or later"
            )
        return spans
    try:
        ranges = sorted((whole("blocks", start), whole("blocks", stop)) for start, stop in blocks)
    except (TypeError, ValueError):
        raise ValueError(f"blocks must be pairs (start, stop) of whole numbers, not {shown(blocks)}") from None
    for start, stop in ranges:
        if not offset <= start < stop <= offset + query:
            raise ValueError(
                f"blocks: ({start}, {stop}) must be a range of positions from {offset} to {offset + query} with start < stop; "
                f"only keys that the query sees can move, and the query at {offset + query} stays"
            )
    for (_, stop), (start, _) in pairwise(ranges):
        if start < stop:
            raise ValueError(f"blocks overlap at position {start}: each token may belong to one block only")
    if len(ranges) < at_least:
        raise ValueError(f"blocks must hold at least {at_least} ranges, not {len(ranges)}: no swap exists")
    bounds = torch.tensor(ranges, device=device) - offset
    return Spans(bounds[:, 0].contiguous(), bounds[:, 1].contiguous())


Lookup = Callable[[Tensor, Tensor], Tensor]
"""Function from contents (C,) and positions (P,) to logits (..., C, P)."""


def log_sum(parts: Callable[[], Iterator[Tensor]]) -> Tensor:
    """Elementwise log of the sum of exponentials of tensors, in the memory of one. Parts are overwritten.

    `parts` is called again, with a shift, if a sum overflows or underflows.
    """
    for shifted in (False, True):
        total: Tensor | None = None
        for part in parts():
            if total is None:
                shift = part.amax((-2, -1), keepdim=True) if shifted else None
                total = (part if shift is None else part.sub_(shift)).exp_()
            else:
                total += (part if shift is None else part.sub_(shift)).exp_()
        assert total is not None
        least, most = torch.aminmax(total)
        if least > 1e-290 and most < 1e290:  # no overflow or underflow
            return total.log_() if shift is None else total.log_().add_(shift)
    total = None
    for part in parts():
        total = part if total is None else torch.logaddexp(total, part)
    assert total is not None
    return total


def slot_logits(lookup: Lookup, spans: Spans, contents: Tensor, slots: Tensor) -> Float[Tensor, "... C S"]:
    """Log of the mean weight (up to the normaliser) of block `contents[c]` in the place of block `slots[s]`.

    When two blocks of unequal length change places, the tokens between them shift. The later block then starts where the
    earlier one started, and the earlier one stops where the later one stopped. The tokens between enter only the normaliser,
    which cancels in every cosine.
    """
    if spans.single:
        return lookup(spans.starts[contents], spans.starts[slots])
    lengths = spans.lengths[contents]

    def aligned(at: Callable[[Tensor, int], Tensor]) -> Tensor:
        def parts() -> Iterator[Tensor]:
            for t in range(int(lengths.max())):
                part, short = lookup(at(contents, t), at(slots, t)), t >= lengths
                yield part.masked_fill(short[:, None], -math.inf) if short.any() else part

        total = log_sum(parts)
        return total.sub_(lengths.to(total.dtype).log()[:, None])

    # Blocks shorter than t are masked above; clamping only keeps their indices valid.
    end = int(spans.stops.max()) - 1
    from_start = aligned(lambda block, t: (spans.starts[block] + t).clamp(max=end))
    if bool((spans.lengths == spans.lengths[0]).all()):
        return from_start
    from_stop = aligned(lambda block, t: (spans.stops[block] - 1 - t).clamp(min=0))
    return torch.where(contents[:, None] > slots, from_start, from_stop)


def movable_logits(M: Float[Tensor, "N t t"], blocks: Blocks | None, offset: int, at_least: int = 2) -> Float[Tensor, "N m m"]:
    """`M` of the keys that can move, or of whole blocks: row c, column p is block c in the place of block p."""
    spans = movable_spans(blocks, M.shape[-1], offset, M.device, at_least)
    if blocks is None:
        return M[:, :-1, :-1]
    every = torch.arange(len(spans.starts), device=M.device)
    return slot_logits(lambda contents, positions: M[:, contents[:, None], positions], spans, every, every)
