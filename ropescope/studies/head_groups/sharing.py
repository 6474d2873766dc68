"""How pure the heads of a layer are, and how much of its work they share, from the results of one model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...measures.purity import POSITIONAL, SYMBOLIC, purity

NEEDED = 0.05
"""A layer does work if accuracy falls by at least so much without all of its heads."""

Row = Mapping[str, Any]


class Layer(NamedTuple):
    """One layer of one model.

    purity   mean over its heads of how pure they are, from 0 to 1
    mixed    whether it has both a pure positional and a pure symbolic head
    damage   how much accuracy falls without all of its heads
    largest  how much it falls without one of them, for the head that is missed most
    shared   share of the damage that no single head does, from 0 to 1; None if the layer does no work
    """

    number: int
    purity: float
    mixed: bool
    damage: float
    largest: float
    shared: float | None


def degrees(row: Row) -> NDArray[np.float64]:
    """How pure each head is, by layer, then by head: the smaller of one score and 1 minus the other, in the better sense."""
    positional, symbolic = np.array(row["positional"]), np.array(row["symbolic"])
    return np.asarray(np.maximum(np.minimum(positional, 1 - symbolic), np.minimum(symbolic, 1 - positional)))


def kinds_of(row: Row) -> NDArray[np.int8]:
    """Kinds of the heads, by layer, then by head, at the paper's tolerance."""
    return purity(row["positional"], row["symbolic"])


def layers_of(row: Row) -> list[Layer]:
    """The layers of a model."""
    whole = float(np.mean(row["accuracy"]))
    found = []
    for number, (pure, kinds, alone, together) in enumerate(
        zip(degrees(row), kinds_of(row), row["alone"], row["together"], strict=True)
    ):
        damage, largest = whole - together, max(0.0, whole - min(alone))
        shared = None if damage < NEEDED else max(0.0, 1 - largest / damage)
        both = POSITIONAL in kinds and SYMBOLIC in kinds
        found.append(Layer(number, float(pure.mean()), both, damage, largest, shared))
    return found
