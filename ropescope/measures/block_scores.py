"""Registered measures of `M` of blocks: both scores, the three shares, and the exclusion principle."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .registry import joint_measures
from .scores import swap_scores
from .shares import exclusion, variance_shares
from .view import LayerView


@joint_measures(
    {
        "positional": "positional score over swaps of two blocks",
        "symbolic": "symbolic score over swaps of two blocks",
    },
    group="scores",
)
def swaps(view: LayerView) -> Sequence[Tensor]:
    """Both scores over all swaps of two blocks."""
    return swap_scores(view.M, view.tau)


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
    return variance_shares(view.M)


@joint_measures(
    {
        "exclusion_variance": "variance of the real logits of blocks",
        "exclusion_bound": "its bound by the exclusion principle",
    },
    group="exclusion",
)
def certificate(view: LayerView) -> Sequence[Tensor]:
    """Variance of the real logits and its bound."""
    return exclusion(view.M)
