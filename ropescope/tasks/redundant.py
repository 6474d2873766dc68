"""The redundant task: find the answer by counting positions, by matching letters, or by both."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from .letter import LetterTask
from .multihop import Paths, PerRow, Samples, Tokens, Wording, require_at_least

Cue = Literal["integers", "letters"]
Jumps = Int64[np.ndarray, "B pointing"]


@dataclass(frozen=True, kw_only=True)
class RedundantTask(LetterTask):
    """The redundant task. A token `xy3` points 3 positions back, and to the earlier token that begins with `y`: the same one.

    targets   number of letter-digit pairs before the stops
    stops     number of pointing tokens between targets and query
    hops      longest path from query to answer
    alphabet  number of different letters
    digits    number of different digits

    Raises ValueError if the sizes do not allow every path.

    Letters are those of the letter task, integers those of the number task. A filler points uniformly to any earlier position
    of the two windows that is off the path, and its second letter is the first letter of the token there. By its letter alone
    a filler may point to several tokens. A token on the path points to one token by either cue.

    A pointing token is one token, so that one hop is one look back, as in the other two tasks. The vocabulary has
    alphabet² x integers pointing tokens: 200 with the default sizes, of which every sequence shows five.

    >>> from ropescope.tasks import RedundantTask
    >>> task = RedundantTask()
    >>> ids = task.encode("c2 b1 a3 c4 eb3 ac2 aa4 cc4 de4")
    >>> print(task.render(ids, task.solve(ids).path[0]))
    c2 b1 a3 c4 eb3 ac2 aa4 cc4 de4
       2        1               0
    answer b1 in 2 hops: de4 → eb3 → b1
    """

    name = "redundant"
    mechanism = "either"  # type: ignore[assignment]  # it is declared so in MultihopTask; the letter task narrows it
    hop_name = "Index or Retrieval"
    wording = Wording(
        rule="Each item of two letters and a number says twice which earlier item comes next: the number says how many places "
        "to go back, and the second letter is the first letter of that item. Start at the last item and go on until you reach "
        "an item of one letter and a number.",
        one_hop="A list of items like a3 ends with an item of two letters and a number. The answer is the item that is that "
        "many places to the left; it is also the only earlier item that begins with the second letter.",
        answer="item",
    )

    targets: int = 4
    stops: int = 4
    hops: int = 2
    alphabet: int = 5
    digits: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("targets", self.targets, 2)  # so that a filler has a target off the path to point to

    @property
    def integers(self) -> int:
        """The largest integer: a jump from the query to the first target."""
        return self.targets + self.stops

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Pairs of a letter and a digit (from 1), then all of two letters and an integer (from 1)."""
        names = super().vocabulary
        pairs = names[self.answers :]
        return (*names[: self.answers], *(f"{pair}{jump}" for pair in pairs for jump in range(1, self.integers + 1)))

    def _fill(self, hops: PerRow, answer: PerRow, path: Paths, extra: int, rng: np.random.Generator) -> Tokens:
        jumps = self.jumps(path - np.where(path >= 0, extra, 0), rng.random((len(path), self.stops + 1)))
        letters = super()._fill(hops, answer, path, extra, rng)
        front = extra + self.targets
        here = np.arange(front, extra + self.length)
        # The first letter of the token that each integer leads to. Tokens of the path have it already.
        second = np.take_along_axis(self._first(letters), here - jumps, 1)
        filler = ~(here == path[..., None]).any(1)
        pairs = letters[:, front:]
        pairs += np.where(filler, second - (pairs - self.answers) % self.alphabet, 0)
        return self.joined(letters, jumps)

    def jumps(self, path: Paths, draws: Float64[np.ndarray, "B pointing"]) -> Jumps:
        """Integers of all pointing tokens, so that they lead along the path, in a sequence without extra targets.

        draws  uniform numbers from 0 to 1; those of fillers are mapped to the earlier positions off the path
        """
        here = np.arange(self.targets, self.length)
        on_path = (np.arange(self.length) == path[..., None]).any(1)
        before = np.cumsum(~on_path, 1)  # positions off the path, up to and with each
        chosen = (draws * before[:, here - 1]).astype(np.int64)
        there = (before[:, None, :] > chosen[..., None]).argmax(-1)
        rows, step = np.nonzero(path[:, 1:] >= 0)
        there[rows, path[rows, step] - self.targets] = path[rows, step + 1]
        found: Jumps = here - there
        return found

    def joined(self, letters: Tokens, jumps: Jumps) -> Tokens:
        """Sequences with the letters and targets of sequences of the letter task, and these integers."""
        front = letters.shape[1] - jumps.shape[1]
        pairs = letters[:, front:] - self.answers
        return np.column_stack((letters[:, :front], self.answers + pairs * self.integers + jumps - 1))

    def parted(self, tokens: Tokens) -> tuple[Tokens, Jumps]:
        """The inverse of `joined`: sequences of the letter task, and the integers of all pointing tokens."""
        front = tokens.shape[1] - self.stops - 1
        pairs = tokens[:, front:] - self.answers
        return np.column_stack((tokens[:, :front], self.answers + pairs // self.integers)), pairs % self.integers + 1

    def _first(self, letters: Tokens) -> Tokens:
        """Number of the first letter of each token of the letter task."""
        return np.where(letters < self.answers, letters // self.digits, (letters - self.answers) // self.alphabet)

    def _alike(self, samples: Samples) -> Samples:
        letters, jumps = self.parted(samples.tokens)
        found = super()._alike(Samples(letters, samples.answer, samples.hops, samples.path))
        return Samples(self.joined(found.tokens, jumps), found.answer, found.hops, found.path)

    def _follow(self, tokens: Tokens, here: PerRow) -> tuple[PerRow, PerRow]:
        jump = np.array([0 if self._is_target(name) else int(name[2:]) for name in self.vocabulary])
        there, places = super()._follow(tokens, here)
        counted = here - jump[tokens[np.arange(len(tokens)), here]]
        return counted, np.where((places == 1) & (counted != there), 0, places)


class Conflict(NamedTuple):
    """Sequences whose two cues lead to different answers: letters lead along one path, integers along another.

    tokens       token ids
    by_letters   answers found by matching alone
    by_integers  answers found by counting alone
    """

    tokens: Tokens
    by_letters: PerRow
    by_integers: PerRow


def conflicting(task: RedundantTask, samples: Samples, seed: int) -> Conflict:
    """The samples with integers that lead to another target, along a path of its own with as many hops."""
    rng = np.random.default_rng(seed)
    extra, every = samples.tokens.shape[1] - task.length, np.arange(len(samples))
    position = samples.path[every, samples.hops] - extra
    if (position < 0).any():
        raise ValueError("samples must have their answers in the target window")
    other = (position + rng.integers(1, task.targets, size=len(samples))) % task.targets
    path = task._draw_paths(samples.hops, other, rng)
    letters, _ = task.parted(samples.tokens)
    tokens = task.joined(letters, task.jumps(path, rng.random((len(samples), task.stops + 1))))
    return Conflict(tokens, samples.answer, tokens[every, extra + other])


def scrambled(task: RedundantTask, samples: Samples, cue: Cue, seed: int) -> Samples:
    """The samples with one cue of every pointing token drawn anew, so that only the other leads to the answer.

    Integers point uniformly to any earlier position of the two windows, both letters are uniform over the alphabet. The new cue
    can still lead to the answer by chance.
    """
    rng = np.random.default_rng(seed)
    letters, jumps = task.parted(samples.tokens)
    if cue == "integers":
        jumps = rng.integers(1, np.arange(task.targets, task.length) + 1, size=jumps.shape)
    else:
        letters[:, -jumps.shape[1] :] = task.answers + rng.integers(task.alphabet**2, size=jumps.shape)
    return Samples(task.joined(letters, jumps), samples.answer, samples.hops, samples.path)
