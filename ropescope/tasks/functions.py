"""What one ideal hop does at every position: Index counts positions (number task), Retrieval matches letters (letter task)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .letter import LetterTask
from .multihop import MultihopTask, Samples, Tokens
from .number import NumberTask


class Hop(NamedTuple):
    """One application of a function, at every position of every row.

    holds     the token that a position should hold afterwards; -1 where the function is not defined
    looks_at  the position it takes that from (the nearest, if there are several); -1 where there is none
    places    to how many positions its token points: 1, if all is well
    """

    holds: Tokens
    looks_at: Tokens
    places: Tokens


def index(task: NumberTask, tokens: Tokens) -> Hop:
    """An integer `i` at position `p` looks at `p - i` and takes what is there if it is a letter; else all stays.

    A letter looks at itself. An integer that points before the start is not defined.

    >>> from ropescope.tasks import NumberTask
    >>> from ropescope.tasks.functions import index
    >>> index(NumberTask(), NumberTask().encode("b a 2 1 9")[None]).looks_at
    array([[ 0,  1,  0,  2, -1]])
    """
    rows = np.arange(len(tokens))[:, None]
    back = np.maximum(tokens - task.letters + 1, 0)
    there = np.arange(tokens.shape[1]) - back
    found = tokens[rows, np.maximum(there, 0)]
    holds = np.where(found < task.letters, found, tokens)
    inside = there >= 0
    return Hop(np.where(inside, holds, -1), np.where(inside, there, -1), inside.astype(np.int64))


def retrieval(task: LetterTask, tokens: Tokens) -> Hop:
    """A pair `xy` takes the token that begins with `y`, a target `y3` the one that begins with `y`: itself.

    Positions up to its own count. Where several tokens begin so, `places` says it, and the nearest is meant: a target keeps
    itself. A pair whose second letter begins no token is not defined; in the letter task that befalls fillers only.

    >>> from ropescope.tasks import LetterTask
    >>> from ropescope.tasks.functions import retrieval
    >>> task = LetterTask()
    >>> task.decode(retrieval(task, task.encode("c2 b1 fc gb")[None]).holds[0])
    ['c2', 'b1', 'c2', 'b1']
    """
    rows = np.arange(len(tokens))[:, None]
    first, second = (np.array([name[side] for name in task.vocabulary]) for side in (0, 1))
    sought = np.where(np.char.isdigit(second), first, second)
    begins = first[tokens][:, None, :] == sought[tokens][:, :, None]
    begins &= np.tri(tokens.shape[1], dtype=bool)
    nearest = tokens.shape[1] - 1 - begins[:, :, ::-1].argmax(-1)
    places = begins.sum(-1)
    return Hop(np.where(places > 0, tokens[rows, nearest], -1), np.where(places > 0, nearest, -1), places)


def hop(task: MultihopTask, tokens: Tokens) -> Hop:
    """One ideal hop of either task: Index or Retrieval."""
    if isinstance(task, NumberTask):
        return index(task, tokens)
    if isinstance(task, LetterTask):
        return retrieval(task, tokens)
    raise ValueError(f"{type(task).__name__} has no ideal hop: there is one for NumberTask and LetterTask")


def reflexive(tokens: Tokens) -> Hop:
    """Every position looks at itself and keeps what it has."""
    return Hop(tokens, np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape), np.ones_like(tokens))


def ideal_layers(task: MultihopTask, samples: Samples, layers: int) -> list[Hop]:
    """What each of `layers` ideal layers does: as many hops as the input has, then Reflexive.

    A position for which a hop is not defined keeps what it has. After `h` hops the query of an `h`-hop input holds the answer:
    in the number task a position takes the answer once the one it points to has it, so the answer comes back along the path;
    in the letter task all positions run ahead at once, as the next node always holds what is one hop farther.
    """
    held, passed = samples.tokens, []
    for layer in range(layers):
        here, stay = hop(task, held), reflexive(held)
        moves = (layer < samples.hops)[:, None] & (here.looks_at >= 0)
        passed.append(Hop(*(np.where(moves, does, keeps) for does, keeps in zip(here, stay, strict=True))))
        held = passed[-1].holds
    return passed
