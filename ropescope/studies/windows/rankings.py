"""Rankings of key heads by their need for the whole context: each a short function of what calibration measured.

Every function returns numbers (layer, head) of query heads; the larger, the more the head needs. A key head has the mean of the
query heads that share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Statistics = Mapping[str, Array]
PROSE, PASS_KEYS = "prose", "pass keys"
"""Texts to calibrate on."""


@dataclass(frozen=True)
class Ranking:
    """A ranking: its label, whether it is one of ours, the function, and the texts that it is calibrated on."""

    label: str
    ours: bool
    score: Callable[[Statistics], Array]
    texts: frozenset[str] = frozenset({PROSE})


def _lead(found: Statistics) -> Array:
    return found["symbolic"] - found["positional"]


def _retrieval_variance(found: Statistics) -> Array:
    # A copied token counts for far more than 1e-6, so far-variance decides only between heads that copy equally often.
    variance = found["far_variance"]
    return found["retrieval"] + 1e-6 * variance / max(float(variance.max()), 1e-300)


def _layer_order(found: Statistics) -> Array:
    layers, heads = found["mass"].shape
    return np.repeat(np.arange(layers, dtype=np.float64)[:, None], heads, 1)


RANKINGS: dict[str, Ranking] = {
    "lead": Ranking("symbolic minus positional score, mean over queries", True, _lead),
    "symbolic": Ranking("symbolic score, mean over queries", True, lambda found: found["symbolic"]),
    "reach": Ranking(
        "weight that the best content would have at far places, mean over queries", True, lambda found: found["reach"]
    ),
    "reach-last": Ranking("the same at the last query of each passage alone", True, lambda found: found["reach_last"]),
    "follow": Ranking(
        "weight that what the head attends to would have at far places, by the head's own weights",
        True,
        lambda found: found["follow"],
    ),
    "position-share": Ranking(
        "share of M's variance that is not of the place alone", True, lambda found: 1 - found["position_share"]
    ),
    "far-variance": Ranking("variance of M over contents within far places", True, lambda found: found["far_variance"]),
    "mass": Ranking("attention mass beyond the window", False, lambda found: found["mass"]),
    "retrieval": Ranking(
        "retrieval-head score: answer tokens that the head copies",
        False,
        lambda found: found["retrieval"],
        frozenset({PASS_KEYS}),
    ),
    "retrieval-variance": Ranking(
        "retrieval-head score, and far-variance among heads that copy equally often",
        True,
        _retrieval_variance,
        frozenset({PROSE, PASS_KEYS}),
    ),
    "mean-vectors": Ranking("mean query and mean key, as kvpress on the fly", False, lambda found: found["mean_vectors"]),
    "entropy": Ranking("entropy of attention", False, lambda found: found["entropy"]),
    "layer": Ranking("order of layers, late ones need more", False, _layer_order),
}
"""Every ranking that needs no training, by name."""


def ranking_named(name: str) -> Ranking:
    """The ranking with this name, or a ValueError that lists the names there are."""
    if name not in RANKINGS:
        raise ValueError(f"ranking must be one of {', '.join(RANKINGS)}, not {name!r}")
    return RANKINGS[name]


def key_head_scores(ranking: Ranking, found: Statistics, key_heads: int) -> Array:
    """Scores of key heads (layer, key head): means over the query heads that share them."""
    scores = ranking.score(found)
    grouped: Array = scores.reshape(scores.shape[0], key_heads, -1).mean(-1)
    return grouped


def order(scores: Array, candidates: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Candidates as (row of the layer, key head), those with least need first; of equals the earlier layer first."""
    places = [(int(layer), int(head)) for layer, head in np.argwhere(candidates)]
    return sorted(places, key=lambda place: (scores[place], place))


def random_order(candidates: NDArray[np.bool_], seed: int) -> list[tuple[int, int]]:
    """Candidates in random order."""
    places = np.argwhere(candidates)
    return [(int(a), int(b)) for a, b in np.random.default_rng(seed).permutation(places)]


def windowed_count(share: float, total: int) -> int:
    """How many of `total` key heads are windowed at a share, rounded as kvpress does."""
    return round(total * share)


def needs(ranked: list[tuple[int, int]], shape: tuple[int, int]) -> Array:
    """A number from 0 to 1 for every key head, in the order of a ranking: what patterns of DuoAttention hold.

    Ranks have no ties, so any threshold gives the split. Key heads that are not ranked (sliding layers) have 1: they stay as
    they are.
    """
    found = np.ones(shape)
    for number, place in enumerate(ranked):
        found[place] = number / max(1, len(ranked) - 1)
    return found
