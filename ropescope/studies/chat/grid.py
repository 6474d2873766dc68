"""The questions of a run, and what it costs to ask them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...tasks import task_class, task_names
from ...tasks.chat import LENGTHS, RUNS, Question, questions
from ...tasks.multihop import require_at_least


@dataclass(frozen=True)
class Grid:
    """Tasks x lengths of the target window x runs x samples. Runs are numbered from `seed`; a run's number is its seed."""

    tasks: tuple[str, ...] = task_names()
    lengths: tuple[int, ...] = LENGTHS
    runs: int = RUNS
    samples: int = 20
    hops: int = 1
    max_tokens: int = 8
    seed: int = 1

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError("tasks must hold one at least")
        for task in self.tasks:
            task_class(task)
        if not self.lengths or list(self.lengths) != sorted(set(self.lengths)):
            raise ValueError("lengths must grow, and there must be one at least")
        for name, least in (("runs", 1), ("samples", 1), ("hops", 1), ("max_tokens", 1), ("seed", 1)):
            require_at_least(name, getattr(self, name), least)

    def numbers(self) -> range:
        """The numbers of the runs."""
        return range(self.seed, self.seed + self.runs)

    def cell(self, task: str, length: int) -> list[Question]:
        """All questions of one task and length."""
        return [question for run in self.numbers() for question in questions(task, length, run, self.samples, self.hops)]

    def cells(self) -> Iterator[tuple[str, int]]:
        """Task and length of every cell, by task and with growing length."""
        for task in self.tasks:
            for length in self.lengths:
                yield task, length


def estimate(asked: Sequence[Question], max_tokens: int, price_in: float | None, price_out: float | None) -> dict[str, Any]:
    """Requests, input tokens (estimated from the text, as tokenizers differ), most output tokens, and what they cost."""
    tokens_in = sum(estimated_tokens(question.text) for question in asked)
    tokens_out = len(asked) * max_tokens
    cost = None if price_in is None or price_out is None else (tokens_in * price_in + tokens_out * price_out) / 1e6
    return {"requests": len(asked), "tokens_in": tokens_in, "tokens_out_at_most": tokens_out, "cost_at_most": cost}


def estimate_line(
    total: int, left: Sequence[Question], max_tokens: int, price_in: float | None, price_out: float | None
) -> str:
    """The estimate in one line."""
    cost = estimate(left, max_tokens, price_in, price_out)
    price = "" if cost["cost_at_most"] is None else f", {cost['cost_at_most']:,.2f} at the prices given"
    return (
        f"{total:,} questions, {total - len(left):,} of them answered already; {len(left):,} to ask: about "
        f"{cost['tokens_in']:,} tokens in, at most {cost['tokens_out_at_most']:,} out{price}"
    )


def estimated_tokens(text: str) -> int:
    """About as many tokens as common tokenizers make of it: one for each word, digit, sign and end of a line, and a frame."""
    return len(re.findall(r"[^\W\d]+|\d|[^\w\s]|\n+", text)) + 20
