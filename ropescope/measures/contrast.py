"""Registered measures that say whether a head can be judged: weight on what moves, contrast of its weights, centred scores.

Equal weights score 1 on both sides, whatever the head does: a swap of equal weights shows nothing. How much a swap can show
follows from the real weights alone. A purely positional head leaves `(D_i, D_j)` in place and a purely symbolic one exchanges
them, so the other score of a pure head is the cosine of `(D_i, D_j)` and `(D_j, D_i)`,

    1 / cosh(u)    with u = log(D_i / D_j).

Its mean over swaps, weighted as in the scores, is the *floor* of a head: what a pure head of the other kind would score with
these weights. Contrast is 1 minus the floor. Centred scores put the floor at 0 and leave 1 at 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from .attention import on_blocks
from .block_scores import swaps
from .registry import joint_measures
from .view import LayerView

LEAST_WEIGHT = 0.1
"""Least weight on all that moves with which a head can be judged."""
LEAST_CONTRAST = 0.2
"""Least contrast with which a head can be judged: that of a swap of two weights of which one is twice the other."""
OMITTED = 1e-9
"""Largest share of swaps, by weight, that may be left out of the floor."""
ROWS = 1 << 16
"""Numbers processed at a time."""


def identifiable(floor: Float[Tensor, "*batch"], weight: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """1 where a head can be judged, and 0 where it cannot.

    floor   from `score_floor`
    weight  weight on all that moves
    """
    return ((weight >= LEAST_WEIGHT) & (1 - floor >= LEAST_CONTRAST)).to(floor.dtype)


def centred(score: Float[Tensor, "*batch"], floor: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """A score with the floor at 0 and 1 at 1; NaN where nothing lies between them."""
    room = 1 - floor
    return torch.where(room > 1e-6, (score - floor) / room.clamp(min=1e-6), torch.nan)


@torch.no_grad()
def score_floor(logits: Float[Tensor, "*batch m"], log_total: Float[Tensor, "*batch"], tau: float) -> Float[Tensor, "*batch"]:
    """Mean of `1 / cosh(u)` over all swaps, weighted as in `swap_scores`, up to 1e-9.

    logits     real logits of the keys or blocks that move; -inf for those that the query does not see
    log_total  log of the sum of exponentials of all logits of the query
    """
    flat, total = logits.reshape(-1, logits.shape[-1]), log_total.reshape(-1)
    weight, seen = (flat - total[:, None]).exp(), flat > -torch.inf
    heavy, light = swap_weights(weight, seen, tau)
    item, row = heavy_rows(heavy, OMITTED)
    sums = flat.new_zeros(2, len(flat))
    step = max(1, ROWS // flat.shape[-1])
    for start in range(0, len(item), step):
        n, a = item[start : start + step], row[start : start + step]
        ratio = -(flat[n, a][:, None] - flat[n]).abs()
        alpha = row_weights(heavy, light, weight, n, a)
        cosine = 2 * ratio.exp() / (1 + (2 * ratio).exp())
        parts = alpha.sum(-1), torch.linalg.vecdot(alpha, torch.where(seen[n], cosine, 0))
        sums.index_add_(1, n, torch.stack(parts))
    return (sums[1] / sums[0]).clamp(max=1).reshape(log_total.shape)


def swap_weights(weight: Float[Tensor, "N m"], seen: Tensor, tau: float) -> tuple[Tensor, Tensor]:
    """Two factors of each key: the weight of a swap is that of its heavier key in the first times the other's in the second."""
    high = weight.masked_fill(~seen, -torch.inf).amax(-1, keepdim=True)
    low = weight.masked_fill(~seen, torch.inf).amin(-1, keepdim=True)
    heavy, light = ((weight - high) / tau).exp(), ((low - weight) / tau).exp()
    return heavy.masked_fill(~seen, 0), light.masked_fill(~seen, 0)


def heavy_rows(heavy: Float[Tensor, "N m"], omitted: float) -> tuple[Tensor, Tensor]:
    """Items and keys whose swaps are needed: swaps among all other keys of an item have at most the share `omitted`.

    The factors of all keys that are left out add up to at most omitted / 2. The heaviest key alone has the factor 1, and its
    swaps have at least half of the sum of the other factor.
    """
    item, row = (heavy > omitted / (2 * heavy.shape[-1])).nonzero(as_tuple=True)
    return item, row


def row_weights(heavy: Tensor, light: Tensor, weight: Tensor, item: Tensor, row: Tensor) -> Float[Tensor, "R m"]:
    """Weight of the swap of key `row` of `item` with each lighter key; of two equal ones the first counts as heavier."""
    own, others = weight[item, row][:, None], weight[item]
    places = torch.arange(weight.shape[-1], device=weight.device)
    lighter = (others < own) | ((others == own) & (places > row[:, None]))
    return torch.where(lighter, heavy[item, row][:, None] * light[item], 0)


@joint_measures(
    {
        "contrast": "how much swaps can show: 1 minus what a pure head of the other kind would score, 0 for equal weights",
        "identifiable": "1 if the head can be judged: weight on what moves and contrast above their limits",
        "positional_centred": "positional score, with 0 for a purely symbolic head of the same weights",
        "symbolic_centred": "symbolic score, with 0 for a purely positional head of the same weights",
        "heaviest": "position of the heaviest block that moves, its first token's",
        "heaviest_weight": "its weight, mean over its tokens",
    },
    group="identifiability",
)
def identifiability(view: LayerView) -> Sequence[Tensor]:
    """Contrast, whether the head can be judged, both scores with the floor at 0, and where most weight is."""
    blocks, diagonal = view.visible_blocks, view.factors.diagonal()
    starts = torch.tensor([start for start, _ in blocks], device=diagonal.device)
    if all(stop - start == 1 for start, stop in blocks):
        real = diagonal.index_select(-1, starts)
    else:
        means = [diagonal[..., start:stop].logsumexp(-1) - math.log(stop - start) for start, stop in blocks]
        real = torch.stack(means, -1)
    floor = score_floor(real, view.log_total, view.tau)
    peak, at = (real - view.log_total[..., None]).exp().max(-1)
    scores = [centred(score, floor) for score in view.once(swaps)]
    return 1 - floor, identifiable(floor, on_blocks(view)), *scores, starts[at].to(floor.dtype), peak
