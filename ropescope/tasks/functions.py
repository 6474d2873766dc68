"""What ideal layers do at every position: hops of the task, then nothing.

Index, the hop of the number task, counts positions. Retrieval, the hop of the letter task, matches letters.
"""

from __future__ import annotations

import numpy as np

from .letter import LetterTask
from .multihop import Hop, MultihopTask, Samples, Tokens
from .number import NumberTask

index, retrieval = NumberTask.ideal_hop, LetterTask.ideal_hop
"""The two hops as functions of a task and its tokens."""


def reflexive(tokens: Tokens) -> Hop:
    """Reflexive: every position looks at itself and keeps its token."""
    return Hop(tokens, np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape), np.ones_like(tokens))


def ideal_layers(task: MultihopTask, samples: Samples, layers: int) -> list[Hop]:
    """What each of `layers` ideal layers does: as many hops as the input has, then Reflexive.

    A position for which a hop is not defined keeps its token. After `h` hops the query of an `h`-hop input holds the answer.
    In the number task a position copies the answer once the position it points to holds it, so the answer moves back along
    the path. In the letter task all positions advance at once, because the next node always holds the token one hop farther.
    """
    held, passed = samples.tokens, []
    for layer in range(layers):
        here, stay = task.ideal_hop(held), reflexive(held)
        moves = (layer < samples.hops)[:, None] & (here.looks_at >= 0)
        passed.append(Hop(*(np.where(moves, does, keeps) for does, keeps in zip(here, stay, strict=True))))
        held = passed[-1].holds
    return passed
