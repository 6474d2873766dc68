"""Registered measures of `M` of blocks: both scores, the three shares, and the exclusion principle."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .factored import Moments, factored_exclusion, factored_shares, moments
from .registry import joint_measures, measure
from .scores import swap_scores
from .shares import exclusion, variance_shares
from .tiles import tile_scores
from .view import LayerView


def swaps_and_error(view: LayerView) -> Sequence[Tensor]:
    """Both scores over all swaps of two blocks, and a bound on their error."""
    if view.many_tokens is None:
        scores = swap_scores(view.M, view.tau)
        return *scores, torch.zeros_like(scores.positional)
    (positional, symbolic), error = tile_scores(view.factors, view.many_tokens, view.log_total, [view.tau], view.tolerance)
    return positional[0], symbolic[0], error[0] if view.tolerance else torch.zeros_like(error[0])


@joint_measures(
    {
        "positional": "positional score over swaps of two blocks",
        "symbolic": "symbolic score over swaps of two blocks",
    },
    group="scores",
)
def swaps(view: LayerView) -> Sequence[Tensor]:
    """Both scores over all swaps of two blocks."""
    return view.once(swaps_and_error)[:2]


@measure("score_error", "bound on the error of both scores; 0 if all swaps were computed in double precision", group="errors")
def score_error(view: LayerView) -> Tensor:
    """The bound on the error of both scores over swaps of two blocks."""
    return view.once(swaps_and_error)[2]


def parts_of_tokens(view: LayerView) -> Moments:
    """Parts of `M` of many single tokens, which shares and certificate read."""
    assert view.many_tokens is not None
    return moments(view.factors.select(view.many_tokens))


@joint_measures(
    {
        "symbol_share": "share of the variance of M that depends on the content",
        "position_share": "share of the variance of M that depends on the place",
        "binding_share": "share of the variance of M that depends on which content stands where",
    },
    group="scores",
)
def shares(view: LayerView) -> Sequence[Tensor]:
    """The three shares of the variance of `M`."""
    return variance_shares(view.M) if view.many_tokens is None else factored_shares(view.once(parts_of_tokens))


@joint_measures(
    {
        "exclusion_variance": "variance of the real logits of blocks",
        "exclusion_bound": "its bound by the exclusion principle",
    },
    group="exclusion",
)
def certificate(view: LayerView) -> Sequence[Tensor]:
    """Variance of the real logits and its bound."""
    if view.many_tokens is None:
        return exclusion(view.M)
    return factored_exclusion(view.once(parts_of_tokens), view.factors.diagonal()[..., view.many_tokens])
