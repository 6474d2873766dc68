"""The multi-hop tasks as questions to chat models (paper B, section 3.7): a rule, three examples, a sequence.

By default there is one hop: targets, then the query. More hops need a window of stops, as in `multihop`.

>>> from ropescope.tasks.chat import questions
>>> print(questions("number", length=12, run=1, samples=1)[0].text)
A list of letters ends with a number n. ...
Answer:
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from .multihop import MultihopTask, require_at_least
from .registry import task_class

LENGTHS = (12, 16, 24, 32, 48, 64, 80, 100, 150, 200, 300)
"""Sizes of the target window in paper B."""
RUNS = 5

EXAMPLES = 3
EXAMPLE_LENGTH = 6
EXAMPLE_SEED = 0
"""Runs are numbered from 1 and use their number as seed, so examples come from no run."""
STOPS = 8


@dataclass(frozen=True)
class Question:
    """A prompt and its correct answer."""

    task: str
    length: int
    run: int
    sample: int
    text: str
    answer: str

    @property
    def key(self) -> str:
        """Name of the question within a grid of tasks, lengths, runs and samples."""
        return f"{self.task}/{self.length}/{self.run}/{self.sample}"

    @property
    def items(self) -> list[str]:
        """The sequence, query included."""
        return self.text.rpartition("List: ")[2].removesuffix("\nAnswer:").split()


def questions(task: str, length: int, run: int, samples: int, hops: int = 1) -> list[Question]:
    """All questions of one cell of the grid.

    task     name of a task: "number" or "letter"
    length   size of the target window
    run      number of the run, which is also the seed
    samples  number of questions; answers and their positions are balanced over them
    hops     number of hops to the answer

    Targets of the number task are the letters a to z, and targets of the letter task begin with any of these. Letters off the
    path may repeat. In the letter task only the answer begins with its letter.
    """
    require_at_least("run", run, EXAMPLE_SEED + 1)
    require_at_least("samples", samples, 1)
    rule = game(task, length, hops)
    before = preamble(task, hops)
    return [
        Question(task, length, run, number, f"{before}{_asked(items)}", answer)
        for number, (items, answer) in enumerate(_drawn(rule, samples, run))
    ]


def game(task: str, length: int, hops: int = 1) -> MultihopTask:
    """The task from which the questions of one target window are drawn."""
    require_at_least("length", length, 2)
    require_at_least("hops", hops, 1)
    stops = STOPS if hops > 1 else 0
    return task_class(task).for_chat(length, stops, hops)


def preamble(task: str, hops: int = 1) -> str:
    """The text before the sequence, the same for all questions of a task: its rule and solved examples."""
    wording = task_class(task).wording
    rule = wording.one_hop if hops == 1 else wording.rule
    shown = [f"{_asked(items)} {answer}" for items, answer in worked_examples(task, hops)]
    # Without these words between examples and question, small models answer the first example again.
    turn = f"Now your turn. Output only the {wording.answer}, nothing else."
    return "\n\n".join((rule, *shown, turn, ""))


def worked_examples(task: str, hops: int = 1) -> list[tuple[list[str], str]]:
    """Sequences and answers that every question of a task begins with."""
    return _drawn(game(task, EXAMPLE_LENGTH, hops), EXAMPLES, EXAMPLE_SEED)


def is_right(question: Question, reply: str) -> bool:
    """Whether the reply is the answer, up to white space around it."""
    return reply.strip() == question.answer


def is_single(question: Question, reply: str, hops: int = 1) -> bool:
    """Whether the reply is one token of the task, right or wrong, and nothing else."""
    return reply.strip() in _names(question.task, question.length, hops)


@cache
def _names(task: str, length: int, hops: int) -> frozenset[str]:
    return frozenset(game(task, length, hops).vocabulary)


def _asked(items: list[str]) -> str:
    return f"List: {' '.join(items)}\nAnswer:"


def _drawn(rule: MultihopTask, count: int, seed: int) -> list[tuple[list[str], str]]:
    # Hop classes have equal size; only the longest paths are asked.
    samples = rule.sample(count * rule.hops, seed)
    samples = samples[samples.hops == rule.hops]
    return [
        (rule.decode(row), rule.decode([int(answer)])[0]) for row, answer in zip(samples.tokens, samples.answer, strict=True)
    ]
