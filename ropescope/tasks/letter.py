"""The letter task: find the answer by matching letters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from string import ascii_lowercase

import numpy as np

from .multihop import Hop, MultihopTask, Paths, PerRow, Samples, Tokens, Wording, require_at_least


@dataclass(frozen=True, kw_only=True)
class LetterTask(MultihopTask):
    """The letter task. A pair `xy` points to the earlier pair that begins with `y`; the answer is a pair like `a3`.

    targets      number of letter-digit pairs before the stops
    stops        number of letter pairs between targets and query
    hops         longest path from query to answer
    alphabet     number of different letters
    digits       number of different digits
    share_query  whether fillers may contain the first letter of the query

    Raises ValueError if the sizes do not allow every path.

    The tokens of a path, query included, begin with different letters, and no filler contains any of them, so there is one
    path. Both letters of a filler are uniform over the letters off the path, and digits are uniform. Extra targets at the front
    are drawn like those in the window. A filler may point to no token.

    With `share_query`, sequences are those of the sampler released with the paper. There is still one path: pairs point to
    earlier ones and the query is last, so no pair can point to it.

    >>> from ropescope.tasks import LetterTask
    >>> task = LetterTask(alphabet=9)
    >>> ids = task.encode("c2 b1 a3 fa ec de hf gd ig")
    >>> print(task.render(ids, task.solve(ids).path[0]))
    c2 b1 a3 fa ec de hf gd ig
    4           3  2     1  0
    answer c2 in 4 hops: ig → gd → de → ec → c2
    """

    name = "letter"
    mechanism = "symbolic"
    hop_name = "Retrieval"
    wording = Wording(
        rule="Each pair of letters leads to the earlier pair that begins with its second letter. "
        "Start at the last pair and go on until you reach a letter with a digit.",
        one_hop="A list of letter-digit pairs ends with a pair of two letters. The answer is the only earlier pair that "
        "begins with the second letter of the last pair.",
        answer="pair",
        python="next(x for x in xs if x.startswith('{query[1]}'))",
    )

    alphabet: int = 8
    digits: int = 8
    share_query: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("digits", self.digits, 1)
        reserved = self.hops + self._of_query
        if self.alphabet < reserved + 1:
            raise ValueError(
                f"alphabet is {self.alphabet} but the tokens of {self.hops} hops begin with {reserved} different letters "
                f"and fillers need one more: set alphabet to at least {reserved + 1} or hops to less"
            )
        if self.alphabet > len(ascii_lowercase):
            raise ValueError(f"alphabet must be at most {len(ascii_lowercase)}, the letters a to z, not {self.alphabet}")

    @property
    def _of_query(self) -> int:
        """1 if no filler may contain the first letter of the query, as for answer and stops; 0 with `share_query`."""
        return 0 if self.share_query else 1

    @property
    def answers(self) -> int:
        """Number of different answers: pairs of a letter and a digit."""
        return self.alphabet * self.digits

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Pairs of a letter and a digit (from 1), then pairs of two letters."""
        letters = ascii_lowercase[: self.alphabet]
        return (
            *(f"{x}{digit}" for x in letters for digit in range(1, self.digits + 1)),
            *(f"{x}{y}" for x in letters for y in letters),
        )

    def _fill(self, hops: PerRow, answer: PerRow, path: Paths, extra: int, rng: np.random.Generator) -> Tokens:
        count, front = len(path), extra + self.targets
        tokens = np.empty((count, extra + self.length), dtype=np.int64)

        # Each row's letters in order of use: the answer's, those of the path from there back to the query, the free ones.
        # With `share_query` the query's letter is the first free one: uniform over them, and independent of every filler.
        others = rng.permuted(np.tile(np.arange(self.alphabet - 1), (count, 1)), axis=1)
        last = answer // self.digits
        letters = np.column_stack((last, others + (others >= last[:, None])))
        every = np.arange(count)
        reserved = hops + self._of_query
        free = self.alphabet - reserved

        pair = rng.integers(free**2, size=(self.stops + 1, count))
        x, y = letters[every, reserved + pair // free], letters[every, reserved + pair % free]
        tokens[:, front:] = self._pair(x, y).T
        rows, step = np.nonzero(path[:, 1:] >= 0)
        use = hops[rows] - step
        tokens[rows, path[rows, step]] = self._pair(letters[rows, use], letters[rows, use - 1])

        pair = rng.integers(free * self.digits, size=(front, count))[::-1]
        tokens[:, :front] = (letters[every, reserved + pair // self.digits] * self.digits + pair % self.digits).T
        return tokens

    def _pair(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Id of the token `xy`."""
        ids: np.ndarray = self.answers + x * self.alphabet + y
        return ids

    def _alike(self, samples: Samples) -> Samples:
        """Samples renamed so that all have the path letters of the first, which keeps probabilities: all letters are alike."""
        hops = int(samples.hops[0])
        path = samples.path[:, 1 - self._of_query : hops + 1]
        ids = np.take_along_axis(samples.tokens, path, 1)
        first = np.where(ids < self.answers, ids // self.digits, (ids - self.answers) // self.alphabet)
        on_path = np.zeros((len(samples), self.alphabet), dtype=bool)
        np.put_along_axis(on_path, first, True, 1)
        order = np.argsort(on_path, axis=1, kind="stable")  # letters off the path, then those on it
        renamed = np.empty_like(order)
        np.put_along_axis(renamed, order, np.broadcast_to(order[0], order.shape), 1)
        every = np.arange(len(samples))[:, None]

        def rename(ids: np.ndarray) -> np.ndarray:
            pair = ids - self.answers
            target = renamed[every, ids // self.digits % self.alphabet] * self.digits + ids % self.digits
            other = self._pair(renamed[every, pair // self.alphabet % self.alphabet], renamed[every, pair % self.alphabet])
            return np.where(pair < 0, target, other)

        return Samples(rename(samples.tokens), rename(samples.answer[:, None])[:, 0], samples.hops, samples.path)

    def _is_target(self, name: str) -> bool:
        return name[1:].isdigit()

    def _follow(self, tokens: Tokens, here: PerRow) -> tuple[PerRow, PerRow]:
        first, second = (np.array([ord(name[side]) for name in self.vocabulary], dtype=np.uint8) for side in (0, 1))
        wanted = second[tokens[np.arange(len(tokens)), here]]
        found = (first[tokens] == wanted[:, None]) & (np.arange(tokens.shape[1]) < here[:, None])
        return found.argmax(axis=1), found.sum(axis=1)

    def ideal_hop(self, tokens: Tokens) -> Hop:
        """Retrieval: a pair `xy` copies the token that begins with `y`, and a target `y3` the one that begins with `y`: itself.

        A token looks at positions up to its own. Where several tokens match, `places` counts them and the nearest is copied,
        so a target keeps itself. A pair whose second letter begins no token is not defined; only fillers are such pairs.

        >>> from ropescope.tasks import LetterTask
        >>> task = LetterTask()
        >>> task.decode(task.ideal_hop(task.encode("c2 b1 fc gb")[None]).holds[0])
        ['c2', 'b1', 'c2', 'b1']
        """
        rows = np.arange(len(tokens))[:, None]
        first, second = (np.array([name[side] for name in self.vocabulary]) for side in (0, 1))
        sought = np.where(np.char.isdigit(second), first, second)
        begins = first[tokens][:, None, :] == sought[tokens][:, :, None]
        begins &= np.tri(tokens.shape[1], dtype=bool)
        nearest = tokens.shape[1] - 1 - begins[:, :, ::-1].argmax(-1)
        places = begins.sum(-1)
        return Hop(np.where(places > 0, tokens[rows, nearest], -1), np.where(places > 0, nearest, -1), places)

    @classmethod
    def for_prompts(cls, targets: int, stops: int, hops: int) -> MultihopTask:
        """As few letters as the hops allow, and at least eight."""
        return cls(targets=targets, stops=stops, hops=hops, alphabet=max(8, hops + 2))

    @classmethod
    def for_chat(cls, targets: int, stops: int, hops: int) -> MultihopTask:
        """Letters are a to z."""
        return cls(targets=targets, stops=stops, hops=hops, alphabet=26)

    def key_feature(self, name: str) -> str:
        """The first letter."""
        return name[0]

    def query_feature(self, name: str) -> str:
        """The second letter."""
        return name[1]
