"""The number task: find the answer by counting positions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from string import ascii_lowercase

import numpy as np

from .multihop import Hop, MultihopTask, Paths, PerRow, Tokens, Wording, require_at_least

LETTERS = (*ascii_lowercase, *map("".join, product(ascii_lowercase, repeat=2)))
"""a ... z, aa, ab ... zz."""


@dataclass(frozen=True, kw_only=True)
class NumberTask(MultihopTask):
    """The number task. An integer `i` at position `p` points to position `p - i`; the answer is the first letter reached.

    targets   number of letters before the stops
    stops     number of integers between targets and query
    hops      longest path from query to answer
    letters   number of different letters
    integers  largest integer

    Raises ValueError if the sizes do not allow every path.

    Filler letters, extra ones included, are uniform over all letters. A filler integer points uniformly to any earlier position
    of the two windows, never to an extra target, so that integers have the same distribution at every length.

    >>> from ropescope.tasks import NumberTask
    >>> task = NumberTask()
    >>> ids = task.encode("b a 2 2 1 4")
    >>> print(task.render(ids, task.solve(ids).path[0]))
    b a 2 2 1 4
      1       0
    answer a in 1 hop: 4 → a
    """

    name = "number"
    mechanism = "positional"
    hop_name = "Index"
    wording = Wording(
        rule="Each number says how many places to go back. Start at the last item and go back until you reach a letter.",
        one_hop="A list of letters ends with a number n. The answer is the letter n places to the left of the number: "
        "1 means the letter right before the number, 2 the one before that, and so on.",
        answer="letter",
        python="xs[-{query}]",
    )

    letters: int = 120
    integers: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("letters", self.letters, 1)
        if self.letters > len(LETTERS):
            raise ValueError(f"letters is {self.letters} but only {len(LETTERS)} have a name (a to zz): use fewer letters")
        # One hop must be able to reach every target, even the farthest. Then every path is possible.
        if self.integers < self.targets + self.stops:
            raise ValueError(
                f"integers is {self.integers} but a jump from the query to the first target takes targets + stops = "
                f"{self.targets + self.stops}: set integers to at least that"
            )

    @property
    def answers(self) -> int:
        """Number of different answers: the letters."""
        return self.letters

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Letters, then the integers from 1."""
        return (*LETTERS[: self.letters], *map(str, range(1, self.integers + 1)))

    def _fill(self, hops: PerRow, answer: PerRow, path: Paths, extra: int, rng: np.random.Generator) -> Tokens:
        count, front = len(path), extra + self.targets
        tokens = np.empty((count, extra + self.length), dtype=np.int64)
        before = np.arange(self.targets, self.length)  # number of positions of the windows before each integer
        tokens[:, front:] = self.letters + rng.integers(before, size=(count, self.stops + 1))
        rows, step = np.nonzero(path[:, 1:] >= 0)
        here, there = path[rows, step], path[rows, step + 1]
        tokens[rows, here] = self.letters + here - there - 1
        tokens[:, :front] = rng.integers(self.letters, size=(front, count))[::-1].T
        return tokens

    def _is_target(self, name: str) -> bool:
        return name.isalpha()

    def _follow(self, tokens: Tokens, here: PerRow) -> tuple[PerRow, PerRow]:
        jump = np.array([0 if self._is_target(name) else int(name) for name in self.vocabulary])
        there = here - jump[tokens[np.arange(len(tokens)), here]]
        return there, (there >= 0).astype(np.int64)

    def ideal_hop(self, tokens: Tokens) -> Hop:
        """Index: an integer `i` at position `p` looks at `p - i` and copies the token there if it is a letter.

        Otherwise it keeps its own token. A letter looks at itself. An integer that points before the start is not defined.

        >>> from ropescope.tasks import NumberTask
        >>> NumberTask().ideal_hop(NumberTask().encode("b a 2 1 9")[None]).looks_at
        array([[ 0,  1,  0,  2, -1]])
        """
        rows = np.arange(len(tokens))[:, None]
        back = np.maximum(tokens - self.letters + 1, 0)
        there = np.arange(tokens.shape[1]) - back
        found = tokens[rows, np.maximum(there, 0)]
        holds = np.where(found < self.letters, found, tokens)
        inside = there >= 0
        return Hop(np.where(inside, holds, -1), np.where(inside, there, -1), inside.astype(np.int64))

    @classmethod
    def for_prompts(cls, targets: int, stops: int, hops: int) -> MultihopTask:
        """Letters are a to z."""
        return cls(targets=targets, stops=stops, hops=hops, letters=26, integers=targets + stops)

    def key_feature(self, name: str) -> str:
        """Whether the token is a letter or an integer."""
        return "letter" if self._is_target(name) else "integer"

    def query_feature(self, name: str) -> str:
        """The integer."""
        return name
