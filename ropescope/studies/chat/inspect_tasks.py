"""The number and letter tasks for Inspect AI: `inspect eval ropescope/letter_one_hop --model PROVIDER/NAME -T samples=20`.

The questions are those of `ropescope llm`, which asks them through `inspect_task`, too. Accuracy is given over all samples and
by length of the target window, beside the share of answers that are single tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import Score, Scorer, Target, accuracy, grouped, mean, scorer
from inspect_ai.solver import TaskState, generate

from ...tasks.chat import LENGTHS, RUNS, Question, is_right, is_single
from .grid import Grid

Lengths = int | str | list[int] | list[str]
"""As they come from Inspect AI's command line: 12, "12,16" or a list."""


@task
def number_one_hop(lengths: Lengths = list(LENGTHS), runs: int = RUNS, samples: int = 20, seed: int = 1) -> Task:  # noqa: B006
    """The last token is a number n, the answer the token n places to its left."""
    return _whole("number", lengths, runs, samples, 1, seed)


@task
def letter_one_hop(lengths: Lengths = list(LENGTHS), runs: int = RUNS, samples: int = 20, seed: int = 1) -> Task:  # noqa: B006
    """The last token is a pair, the answer the only earlier token that begins with its second letter."""
    return _whole("letter", lengths, runs, samples, 1, seed)


@task
def number_multi_hop(
    hops: int = 2,
    lengths: Lengths = list(LENGTHS),  # noqa: B006
    runs: int = RUNS,
    samples: int = 20,
    seed: int = 1,
) -> Task:
    """The number task with a path of several hops."""
    return _whole("number", lengths, runs, samples, hops, seed)


@task
def letter_multi_hop(
    hops: int = 2,
    lengths: Lengths = list(LENGTHS),  # noqa: B006
    runs: int = RUNS,
    samples: int = 20,
    seed: int = 1,
) -> Task:
    """The letter task with a path of several hops."""
    return _whole("letter", lengths, runs, samples, hops, seed)


def _whole(name: str, lengths: Lengths, runs: int, samples: int, hops: int, seed: int) -> Task:
    given = lengths.split(",") if isinstance(lengths, str) else [lengths] if isinstance(lengths, int) else lengths
    grid = Grid((name,), tuple(int(n) for n in given), runs, samples, hops, seed=seed)
    asked = [question for cell in grid.cells() for question in grid.cell(*cell)]
    return inspect_task(asked, hops, grid.max_tokens)


def inspect_task(asked: Sequence[Question], hops: int, max_tokens: int, name: str | None = None) -> Task:
    """The task of Inspect AI that asks these questions, with temperature 0."""
    return Task(
        dataset=MemoryDataset([_sample(question) for question in asked], name=asked[0].task),
        solver=generate(),
        scorer=exact_token(hops),
        config=GenerateConfig(temperature=0.0, max_tokens=max_tokens),
        name=name,
    )


def _sample(question: Question) -> Sample:
    about = {"task": question.task, "length": question.length, "run": question.run, "sample": question.sample}
    return Sample(input=question.text, target=question.answer, id=question.key, metadata=about)


@scorer(metrics={"right": [grouped(accuracy(), "length")], "single": [mean()], "characters": [mean()]})
def exact_token(hops: int = 1) -> Scorer:
    """Exact match but for white space around it; whether the answer is a single token; its length in characters."""

    async def score(state: TaskState, target: Target) -> Score:
        text, about = state.output.completion, state.metadata
        question = Question(about["task"], about["length"], about["run"], about["sample"], state.input_text, target.text)
        value = {
            "right": float(is_right(question, text)),
            "single": float(is_single(question, text, hops)),
            "characters": len(text.strip()),
        }
        return Score(value=value, answer=text.strip())

    return score
