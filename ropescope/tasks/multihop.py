"""Base of the multi-hop tasks: layout of a sequence, balanced sampling, splitting into parts, and a solver.

A sequence has a window of target tokens, a window of stops, and one query token:

    target 0 ... target P-1 | stop 0 ... stop S-1 | query

The query and the stops point to earlier tokens. A path of `h` hops starts at the query, visits `h - 1` stops from right to
left, and ends at a target, which is the answer. All other tokens are fillers. `extra` more targets at the front make a sequence
longer without changing its path.

A task defines its vocabulary, the tokens of paths and fillers, and where each token points.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Int, Int64, UInt64

from ..inputs import whole, whole_array

Tokens = Int64[np.ndarray, "B T"]
Paths = Int64[np.ndarray, "B steps"]
PerRow = Int64[np.ndarray, " B"]
Cells = Int64[np.ndarray, "3 B"]

DRAWS_PER_ROW = 100
"""How often `split` redraws a sequence that two parts share before it gives up."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Sequences with their answers and paths. Indexing selects rows, as in `samples[:64]`.

    tokens  token ids
    answer  id of the target at the end of the path
    hops    number of hops from query to answer
    path    positions from query to answer, padded with -1 to the longest path

    All arrays are int64, which embedding and cross-entropy of torch expect.
    """

    tokens: Tokens
    answer: PerRow
    hops: PerRow
    path: Paths

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice | np.ndarray | list[int]) -> Samples:
        return Samples(self.tokens[rows], self.answer[rows], self.hops[rows], self.path[rows])


class Solution(NamedTuple):
    """Result of the solver; fields are those of `Samples`."""

    answer: PerRow
    hops: PerRow
    path: Paths


class Hop(NamedTuple):
    """What one ideal hop does at every position of every row.

    holds     token that the position holds afterwards; -1 where the hop is not defined
    looks_at  position that it copies this token from, the nearest if there are several; -1 where there is none
    places    number of positions that its token points to; 1 in a well-formed sequence
    """

    holds: Tokens
    looks_at: Tokens
    places: Tokens


class Wording(NamedTuple):
    """A task in English, for language models.

    rule     how to find the answer in any number of hops
    one_hop  how to find it in one hop, as chat models are told
    answer   what an answer is called
    python   the same one hop as a Python expression: `xs` is the list before the query, and `query` the query's name
    """

    rule: str
    one_hop: str
    answer: str
    python: str = ""


@dataclass(frozen=True, kw_only=True)
class MultihopTask(ABC):
    """Base of all multi-hop tasks, such as `NumberTask`. Target tokens have the ids 0 ... `answers` - 1, all others follow.

    name       of the task in commands, run folders and figures
    mechanism  how a head can make one hop: it counts positions ("positional"), matches content ("symbolic"), or "either"
    hop_name   what paper B calls this hop
    wording    the task in English
    """

    name: ClassVar[str]
    mechanism: ClassVar[Literal["positional", "symbolic", "either"]]
    hop_name: ClassVar[str]
    wording: ClassVar[Wording]

    targets: int = 8
    stops: int = 8
    hops: int = 4

    def __post_init__(self) -> None:
        require_at_least("targets", self.targets, 1)
        require_at_least("stops", self.stops, 0)
        require_at_least("hops", self.hops, 1)
        if self.hops > self.stops + 1:
            raise ValueError(
                f"hops is {self.hops} but stops only {self.stops}, and a path of h hops passes h - 1 stops: "
                f"set hops to at most {self.stops + 1} or stops to at least {self.hops - 1}"
            )

    @property
    @abstractmethod
    def answers(self) -> int:
        """Number of different answers."""

    @cached_property
    @abstractmethod
    def vocabulary(self) -> tuple[str, ...]:
        """Name of every token, in the order of ids."""

    @abstractmethod
    def _fill(self, hops: PerRow, answer: PerRow, path: Paths, extra: int, rng: np.random.Generator) -> Tokens:
        """Sequences of fillers with the tokens of the path, except the answer, in place; `path` includes `extra`.

        Targets are drawn last, starting with the one nearest to the stops, so `extra` does not change the tokens after it.
        """

    @abstractmethod
    def _is_target(self, name: str) -> bool:
        """Whether a path ends at the token of this name."""

    @abstractmethod
    def _follow(self, tokens: Tokens, here: PerRow) -> tuple[PerRow, PerRow]:
        """Position that the token at `here` points to, and the number of such positions (1 in a well-formed sequence)."""

    @abstractmethod
    def ideal_hop(self, tokens: Tokens) -> Hop:
        """What one ideal hop does at every position of these rows."""

    @classmethod
    @abstractmethod
    def for_prompts(cls, targets: int, stops: int, hops: int) -> MultihopTask:
        """The task with tokens that a language model can read: one letter, number or pair each."""

    @classmethod
    def for_chat(cls, targets: int, stops: int, hops: int) -> MultihopTask:
        """The task as chat models are asked it."""
        return cls.for_prompts(targets, stops, hops)

    @abstractmethod
    def key_feature(self, name: str) -> str:
        """The part of a token by which other tokens point to it."""

    @abstractmethod
    def query_feature(self, name: str) -> str:
        """The part of a token that says where it points."""

    @property
    def vocab_size(self) -> int:
        """Number of different tokens."""
        return len(self.vocabulary)

    @property
    def length(self) -> int:
        """Number of tokens of a sequence without extra targets."""
        return self.targets + self.stops + 1

    def encode(self, text: str | Sequence[str]) -> Int64[np.ndarray, " T"]:
        """Token ids of names, given as a list or as one string separated by spaces.

        >>> from ropescope.tasks import NumberTask
        >>> NumberTask().encode("a b dp 1 16")
        array([  0,   1, 119, 120, 135])
        """
        names = text.split() if isinstance(text, str) else text
        ids = {name: i for i, name in enumerate(self.vocabulary)}
        if unknown := [name for name in names if name not in ids]:
            raise ValueError(
                f"{unknown[0]!r} is not a token of this task: use names from {self.vocabulary[0]!r} to {self.vocabulary[-1]!r}"
            )
        return np.array([ids[name] for name in names], dtype=np.int64)

    def decode(self, ids: Int[np.ndarray, " T"] | Sequence[int]) -> list[str]:
        """Names of token ids.

        >>> from ropescope.tasks import LetterTask
        >>> LetterTask().decode([0, 63, 64, 127])
        ['a1', 'h8', 'aa', 'hh']
        """
        return [self.vocabulary[i] for i in self._checked(ids)]

    def render(self, ids: Int[np.ndarray, " T"] | Sequence[int], path: Int[np.ndarray, " steps"] | Sequence[int]) -> str:
        """A readable example: its tokens, the steps of the path below them, then the path in words.

        >>> from ropescope.tasks import NumberTask
        >>> ids = NumberTask().encode("c b a 1 4 1 3 2 1")
        >>> print(NumberTask().render(ids, [8, 7, 5, 4, 0]))
        c b a 1 4 1 3 2 1
        4       3 2   1 0
        answer c in 4 hops: 1 → 2 → 1 → 4 → c
        """
        names = self.decode(ids)
        path = [int(position) for position in path if position >= 0]
        steps = {position: str(step) for step, position in enumerate(path)}
        columns = [(name, steps.get(position, "")) for position, name in enumerate(names)]
        widths = [max(map(len, column)) for column in columns]
        lines = [" ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) for line in zip(*columns, strict=True)]
        hops = len(path) - 1
        way = " → ".join(names[position] for position in path)
        lines.append(f"answer {names[path[-1]]} in {hops} {'hop' if hops == 1 else 'hops'}: {way}")
        return "\n".join(line.rstrip() for line in lines)

    def sample(self, count: int, seed: int, extra: int = 0) -> Samples:
        """`count` shuffled sequences, the same for the same seed.

        Samples are balanced over the cells (number of hops, answer position, answer) and over each of the three alone, to
        within one. The stops of a path are uniform over all sets of distinct stops. The same seed with another `extra`
        gives the same sequences after a longer or shorter front.

        >>> from ropescope.tasks import NumberTask
        >>> samples = NumberTask().sample(48_000, seed=0)
        >>> [int((samples.hops == hops).sum()) for hops in (1, 2, 3, 4)]
        [12000, 12000, 12000, 12000]
        """
        require_at_least("count", count, 1)
        require_at_least("extra", extra, 0)
        rng = np.random.default_rng(seed)
        return self._draw(balanced_cells(self, count, rng), rng, extra)

    def behind_one_front(self, samples: Samples, share: int) -> Iterator[Samples]:
        """The samples in groups of up to `share` with the same number of hops; all of a group get the first one's front.

        A model needs to read the extra targets only once per group. The distribution of a single sample does not change.
        """
        require_at_least("share", share, 1)
        extra = samples.tokens.shape[1] - self.length
        for hops in np.unique(samples.hops):
            rows = np.flatnonzero(samples.hops == hops)
            for start in range(0, len(rows), share):
                group = self._alike(samples[rows[start : start + share]])
                group.tokens[:, :extra] = group.tokens[0, :extra]
                yield group

    def _alike(self, samples: Samples) -> Samples:
        """Samples with the same number of hops, renamed so that fillers of the first are fillers for all of them."""
        return samples

    def _draw(self, cells: Cells, rng: np.random.Generator, extra: int = 0) -> Samples:
        """One sequence for each column of `cells`: number of hops, position of the answer in the target window, answer."""
        hops, position, answer = cells
        path = self._draw_paths(hops, position, rng)
        path[path >= 0] += extra
        tokens = self._fill(hops, answer, path, extra, rng)
        tokens[np.arange(len(hops)), extra + position] = answer
        return Samples(tokens, answer, hops, path)

    def _draw_paths(self, hops: PerRow, position: PerRow, rng: np.random.Generator) -> Paths:
        """Positions of the query, of `hops` - 1 distinct stops in descending order, and of the target; then -1."""
        passed = rng.random((len(hops), self.stops)).argsort(axis=1)[:, : self.hops - 1] + self.targets
        passed[np.arange(self.hops - 1) >= hops[:, None] - 1] = -1
        path = np.full((len(hops), self.hops + 1), -1)
        path[:, 0] = self.length - 1
        path[:, 1:-1] = -np.sort(-passed, axis=1)
        path[np.arange(len(hops)), hops] = position
        return path

    def solve(self, tokens: Int[np.ndarray, "*rows T"]) -> Solution:
        """Answers found by following the rule from the last token of each row, using only the names of tokens.

        Raises ValueError for rows without an answer: if a token on the path points outside the sequence, to no token or to
        several, if the query is a target, or if there are more than `self.hops` hops.

        >>> from ropescope.tasks import NumberTask
        >>> NumberTask().solve(NumberTask().encode("c b a 1 4 1 3 2 1"))
        Solution(answer=array([2]), hops=array([4]), path=array([[8, 7, 5, 4, 0]]))
        """
        tokens = np.atleast_2d(self._checked(tokens))
        if tokens.ndim != 2 or tokens.shape[1] == 0:
            raise ValueError(f"tokens must be rows of at least one token, not of shape {tokens.shape}: give (B, T) or (T,)")
        target = np.array([self._is_target(name) for name in self.vocabulary])
        if (ends := target[tokens[:, -1]]).any():
            row = int(ends.argmax())
            name = self.vocabulary[tokens[row, -1]]
            raise ValueError(f"row {row} of tokens ends in the target {name!r}: its last token must point to an earlier one")

        answer, hops = np.full(len(tokens), -1), np.zeros(len(tokens), dtype=np.int64)
        path = np.full((len(tokens), self.hops + 1), -1)
        path[:, 0] = tokens.shape[1] - 1
        rows, here = np.arange(len(tokens)), path[:, 0]
        for hop in range(1, self.hops + 1):
            there, places = self._follow(tokens[rows], here)
            self._refuse_lost(tokens, rows, here, places)
            path[rows, hop] = there
            arrived = target[tokens[rows, there]]
            answer[rows[arrived]] = tokens[rows[arrived], there[arrived]]
            hops[rows[arrived]] = hop
            rows, here = rows[~arrived], there[~arrived]
        if rows.size:
            raise ValueError(f"row {rows[0]} of tokens has no target within {self.hops} hops: use a task with more hops")
        return Solution(answer, hops, path)

    def _refuse_lost(
        self, tokens: Tokens, rows: Int64[np.ndarray, " b"], here: Int64[np.ndarray, " b"], places: Int64[np.ndarray, " b"]
    ) -> None:
        lost = np.flatnonzero(places != 1)
        if lost.size:
            row, position, found = rows[lost[0]], here[lost[0]], places[lost[0]]
            raise ValueError(
                f"row {row} of tokens is malformed: {self.vocabulary[tokens[row, position]]!r} at position {position} "
                f"points to {found} earlier tokens and must point to one"
            )

    def _checked(self, ids: np.ndarray | Sequence[int]) -> np.ndarray:
        ids = whole_array("token ids", ids)
        if ids.size and not (ids.min() >= 0 and ids.max() < self.vocab_size):
            raise ValueError(f"token ids must be between 0 and {self.vocab_size - 1}, not {ids.min()} ... {ids.max()}")
        return ids


def balanced_cells(task: MultihopTask, count: int, rng: np.random.Generator) -> Cells:
    """`count` cells (hops, answer position, answer) in random order, as balanced as possible.

    Cell `k` gets position `k mod P` and answer `k mod A`, and the answer is shifted by one whenever both would repeat, which is
    every lcm(P, A) cells. So P * A consecutive cells contain every pair once. Hop classes are equal ranges of the list, hence
    balanced over pairs too. Labels are permuted at the end, so that any remainder is random.
    """
    k = np.arange(count)
    pair = k % (task.targets * task.answers)
    cells = np.stack(
        (
            rng.permutation(task.hops)[k * task.hops // count] + 1,
            rng.permutation(task.targets)[pair % task.targets],
            rng.permutation(task.answers)[(pair + pair // math.lcm(task.targets, task.answers)) % task.answers],
        )
    )
    return cells[:, rng.permutation(count)]


def split(task: MultihopTask, sizes: tuple[int, ...] = (432_000, 2_400, 45_600), seed: int = 0) -> dict[str, Samples]:
    """Training, validation and test samples, each balanced, without common sequences.

    >>> from ropescope.tasks import LetterTask, split
    >>> {name: len(part) for name, part in split(LetterTask(), sizes=(900, 5, 95)).items()}
    {'train': 900, 'validation': 5, 'test': 95}
    """
    names = ("train", "validation", "test")
    if len(sizes) != len(names):
        raise ValueError(f"sizes must be three numbers, for {', '.join(names)}, not {len(sizes)}")
    for name, size in zip(names, sizes, strict=True):
        require_at_least(f"sizes ({name})", size, 1)
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(4)]
    weights = streams.pop().integers(2**64, size=task.length, dtype=np.uint64)

    parts: dict[str, Samples] = {}
    taken = np.empty(0, dtype=np.uint64)
    # The smallest part is drawn first: a large one could use up all sequences of a small cell.
    for size, name, rng in sorted(zip(sizes, names, streams, strict=True), key=lambda part: part[0]):
        cells = balanced_cells(task, size, rng)
        part = task._draw(cells, rng)
        keys = _hash_rows(part.tokens, weights)
        shared = np.flatnonzero(np.isin(keys, taken))
        for _ in range(DRAWS_PER_ROW):
            if not shared.size:
                break
            fresh = task._draw(cells[:, shared], rng)
            part.tokens[shared], part.path[shared] = fresh.tokens, fresh.path
            keys[shared] = _hash_rows(fresh.tokens, weights)
            shared = shared[np.isin(keys[shared], taken)]
        if shared.size:
            raise ValueError(
                f"sizes {sizes} ask for more distinct sequences than this task has ({shared.size} of {name} stay shared): "
                f"use smaller sizes or a task with more tokens"
            )
        parts[name] = part
        taken = np.concatenate((taken, keys))
    return {name: parts[name] for name in names}


def _hash_rows(tokens: Tokens, weights: UInt64[np.ndarray, " T"]) -> UInt64[np.ndarray, " B"]:
    """A hash of each row. Equal rows have equal hashes, so no common row is missed; a collision only causes a redraw."""
    keys: UInt64[np.ndarray, " B"] = tokens.view(np.uint64) @ weights
    return keys


def require_at_least(name: str, value: int, least: int) -> None:
    """Raise ValueError if a named size is no whole number or too small."""
    if whole(name, value) < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
