"""Three tasks for one head: find by position (Index), content (Retrieval), or content and latest position (partial induction).

A sequence is a number of items and a query:

    item 0 ... item n-1 | query

The answer depends on one item. All sequences of a task have the same length, so a position is a distance from the query.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from string import ascii_lowercase

import numpy as np
from jaxtyping import Int64

from .multihop import PerRow, Samples, Solution, Tokens, require_at_least


@dataclass(frozen=True, kw_only=True)
class CanonicalTask(ABC):
    """Base of the three tasks. Items have the ids 0 ... `item_tokens` - 1; queries have the ids after these."""

    items: int = 12
    symbols: int = 12

    def __post_init__(self) -> None:
        require_at_least("items", self.items, 2)
        require_at_least("symbols", self.symbols, 2)
        if self.symbols > len(ascii_lowercase):
            raise ValueError(f"symbols must be at most {len(ascii_lowercase)}, the letters a to z, not {self.symbols}")

    @property
    @abstractmethod
    def answers(self) -> int:
        """Number of different answers."""

    @property
    @abstractmethod
    def item_tokens(self) -> int:
        """Number of different tokens that can be items."""

    @cached_property
    @abstractmethod
    def vocabulary(self) -> tuple[str, ...]:
        """Name of every token, in the order of ids."""

    @abstractmethod
    def _draw(self, place: PerRow, rng: np.random.Generator) -> Tokens:
        """Sequences whose answers are at these positions."""

    @abstractmethod
    def _find(self, tokens: Tokens) -> tuple[PerRow, PerRow]:
        """Answer of each row and its position, which is -1 if there is none."""

    @property
    def vocab_size(self) -> int:
        """Number of different tokens."""
        return len(self.vocabulary)

    @property
    def length(self) -> int:
        """Number of tokens of a sequence."""
        return self.items + 1

    @property
    def first_place(self) -> int:
        """Earliest position of an answer in samples."""
        return 0

    def sample(self, count: int, seed: int | np.random.SeedSequence) -> Samples:
        """`count` sequences, the same for the same seed, balanced over positions of the answer to within one.

        `path` holds the positions of query and answer.
        """
        require_at_least("count", count, 1)
        rng = np.random.default_rng(seed)
        places = self.items - self.first_place
        place = self.first_place + rng.permutation(np.arange(count) % places)
        tokens = self._draw(place, rng)
        answer, _ = self._find(tokens)
        path = np.column_stack((np.full(count, self.items), place))
        return Samples(tokens, answer, np.ones(count, dtype=np.int64), path)

    def solve(self, tokens: Int64[np.ndarray, "B T"]) -> Solution:
        """Answers found by the rule.

        Raises ValueError for rows without an answer.
        """
        self._check(tokens)
        answer, place = self._find(tokens)
        if (lost := np.flatnonzero(place < 0)).size:
            raise ValueError(f"row {lost[0]} of tokens has no answer: its query matches no item")
        count = len(tokens)
        return Solution(answer, np.ones(count, dtype=np.int64), np.column_stack((np.full(count, self.items), place)))

    def every_input(self) -> Iterator[Int64[np.ndarray, "B T"]]:
        """All sequences that have an answer, in arrays with one query each."""
        items = np.array(list(product(range(self.item_tokens), repeat=self.items)), dtype=np.int64)
        for query in range(self.item_tokens, self.vocab_size):
            tokens = np.column_stack((items, np.full(len(items), query)))
            yield tokens[self._valid(tokens)]

    def _valid(self, tokens: Tokens) -> np.ndarray:
        """Whether each row is an input of the task."""
        valid: np.ndarray = self._find(tokens)[1] >= 0
        return valid

    def _check(self, tokens: np.ndarray) -> None:
        if tokens.ndim != 2 or tokens.shape[1] != self.length:
            raise ValueError(f"tokens must be rows of {self.length} tokens, not of shape {tokens.shape}")
        items, queries = tokens[:, :-1], tokens[:, -1]
        right = (items >= 0).all() and (items < self.item_tokens).all()
        if not (right and (queries >= self.item_tokens).all() and (queries < self.vocab_size).all()):
            raise ValueError(
                f"rows of tokens must be items (ids 0 to {self.item_tokens - 1}) and then one query (ids {self.item_tokens} to "
                f"{self.vocab_size - 1})"
            )


@dataclass(frozen=True, kw_only=True)
class IndexTask(CanonicalTask):
    """Items are uniform letters; the query `j` asks for the letter at position `j`, counted from 0."""

    @property
    def answers(self) -> int:
        """Number of different answers: the letters."""
        return self.symbols

    @property
    def item_tokens(self) -> int:
        """The letters."""
        return self.symbols

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Letters, then positions from 0."""
        return (*ascii_lowercase[: self.symbols], *map(str, range(self.items)))

    def _draw(self, place: PerRow, rng: np.random.Generator) -> Tokens:
        return np.column_stack((rng.integers(self.symbols, size=(len(place), self.items)), self.symbols + place))

    def _find(self, tokens: Tokens) -> tuple[PerRow, PerRow]:
        place = tokens[:, -1] - self.symbols
        return tokens[np.arange(len(tokens)), place], place


@dataclass(frozen=True, kw_only=True)
class PairTask(CanonicalTask):
    """Items are pairs `a3` of a symbol and an attribute, one token each; the query is a symbol, the answer an attribute."""

    attributes: int = 12

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("attributes", self.attributes, 2)

    @property
    def answers(self) -> int:
        """Number of different answers: the attributes."""
        return self.attributes

    @property
    def item_tokens(self) -> int:
        """The pairs."""
        return self.symbols * self.attributes

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Pairs of a symbol and an attribute (from 1), then symbols."""
        letters = ascii_lowercase[: self.symbols]
        return (*(f"{x}{n}" for x in letters for n in range(1, self.attributes + 1)), *letters)

    def _find(self, tokens: Tokens) -> tuple[PerRow, PerRow]:
        """Attribute and position of the latest pair that begins with the symbol asked for."""
        items, wanted = tokens[:, :-1], tokens[:, -1:] - self.item_tokens
        match = items // self.attributes == wanted
        place = np.where(match.any(1), self.items - 1 - match[:, ::-1].argmax(1), -1)
        return items[np.arange(len(tokens)), place] % self.attributes, place

    def _joined(self, symbols: Int64[np.ndarray, "B items"], query: PerRow, rng: np.random.Generator) -> Tokens:
        """Pairs of these symbols with uniform attributes, followed by the query."""
        return np.column_stack(
            (symbols * self.attributes + rng.integers(self.attributes, size=symbols.shape), self.item_tokens + query)
        )


@dataclass(frozen=True, kw_only=True)
class RetrievalTask(PairTask):
    """All symbols of a sequence are different; the query asks for the attribute of one of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.symbols < self.items:
            raise ValueError(f"symbols must be at least items = {self.items}, not {self.symbols}: no symbol occurs twice")

    def _draw(self, place: PerRow, rng: np.random.Generator) -> Tokens:
        symbols = rng.random((len(place), self.symbols)).argsort(1)[:, : self.items]
        return self._joined(symbols, symbols[np.arange(len(place)), place], rng)

    def _valid(self, tokens: Tokens) -> np.ndarray:
        symbols = np.sort(tokens[:, :-1] // self.attributes, axis=1)
        valid: np.ndarray = super()._valid(tokens) & (np.diff(symbols, axis=1) > 0).all(1)
        return valid

    def solve(self, tokens: Int64[np.ndarray, "B T"]) -> Solution:
        """Answers found by the rule.

        Raises ValueError for rows without an answer or with a symbol that occurs twice.
        """
        solution = super().solve(tokens)
        if (double := np.flatnonzero(~self._valid(tokens))).size:
            raise ValueError(f"row {double[0]} of tokens has a symbol twice: that is partial induction")
        return solution


@dataclass(frozen=True, kw_only=True)
class PartialInductionTask(PairTask):
    """Symbols may occur several times; the query asks for the attribute of the latest pair with its symbol.

    In samples the symbol asked for occurs at least twice, so that order always matters: at the answer's position, never after
    it, at one earlier position for certain, and at other earlier positions by chance, like any symbol.
    """

    symbols: int = 4

    @property
    def first_place(self) -> int:
        """Earliest position of an answer in samples: one other pair comes before it."""
        return 1

    def _draw(self, place: PerRow, rng: np.random.Generator) -> Tokens:
        count, every = len(place), np.arange(len(place))
        asked = rng.integers(self.symbols, size=count)
        symbols = rng.integers(self.symbols, size=(count, self.items))
        others = (asked[:, None] + rng.integers(1, self.symbols, size=(count, self.items))) % self.symbols
        symbols = np.where(np.arange(self.items) > place[:, None], others, symbols)
        symbols[every, place] = symbols[every, rng.integers(place)] = asked
        return self._joined(symbols, asked, rng)


def order_blind_accuracy(task: PartialInductionTask, samples: Samples) -> float:
    """Best expected accuracy without knowing the order of items: answer with the symbol's most frequent attribute.

    Attributes have the same distribution at all positions, so each of the m matching pairs is
    the latest with probability 1 / m.
    """
    items, asked = samples.tokens[:, :-1], samples.tokens[:, -1:] - task.item_tokens
    match = items // task.attributes == asked
    counts = (match[..., None] & (items[..., None] % task.attributes == np.arange(task.attributes))).sum(1)
    return float((counts.max(1) / match.sum(1)).mean())
