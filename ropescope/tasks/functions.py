"""What one ideal hop does at every position: Index counts positions (number task), Retrieval matches letters (letter task)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .letter import LetterTask
from .multihop import Tokens
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
