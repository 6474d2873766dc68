"""Accuracy of a chat model by task and length from its answers, and what stands beside it: paper B, a profile, other models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...runs import read_run
from ...tasks.chat import is_right, is_single
from .grid import Grid

PAPER_LENGTHS = (12, 16, 24, 32, 48, 64, 80, 100, 200, 300)
PAPER: dict[str, dict[str, tuple[float, ...]]] = {
    "GPT 5.4": {
        "number": (0.98, 0.87, 0.73, 0.45, 0.17, 0.14, 0.10, 0.08, 0.08, 0.06),
        "letter": (0.96, 0.98, 1.0, 0.99, 0.99, 0.98, 0.96, 0.85, 0.52, 0.40),
    },
    "GPT 5.5": {
        "number": (0.55, 0.56, 0.42, 0.23, 0.21, 0.12, 0.10, 0.07, 0.06, 0.04),
        "letter": (0.87, 0.95, 0.96, 0.96, 0.77, 0.84, 0.75, 0.66, 0.55, 0.50),
    },
    "Claude Sonnet 3.7": {
        "number": (0.40, 0.34, 0.22, 0.15, 0.11, 0.08, 0.06, 0.06, 0.05, 0.05),
        "letter": (0.92, 0.89, 0.88, 0.88, 0.80, 0.87, 0.89, 0.86, 0.77, 0.80),
    },
}
"""Mean accuracy over five runs in table 3 of paper B (arXiv 2605.31558, section 3.7 and appendix H), one value per length."""

SCREENED = ("letter", 16)
"""The cell of the grid that decides whether a model is measured at all."""
LEAST_RIGHT = 0.85
LEAST_SINGLE = 0.95
"""Paper B wants answers that stay single tokens and gives no number; this one is ours."""


@dataclass(frozen=True)
class Answer:
    """The text of an answer, and its tokens as the model or its server counts them (None if it does not)."""

    text: str
    tokens_in: int | None = None
    tokens_out: int | None = None
    reasoning: int | None = None


def accuracy(grid: Grid, answers: Mapping[str, Answer]) -> dict[str, dict[str, Any]]:
    """Of each task and length that was answered in full: mean and standard deviation over runs, and what answers were like."""
    found: dict[str, dict[str, Any]] = {task: {} for task in grid.tasks}
    for task, length in grid.cells():
        if (cell := cell_result(grid, answers, task, length)) is not None:
            found[task][str(length)] = cell
    return found


def cell_result(grid: Grid, answers: Mapping[str, Answer], task: str, length: int) -> dict[str, Any] | None:
    """One cell of the grid; None unless all its questions are answered."""
    asked = grid.cell(task, length)
    if any(question.key not in answers for question in asked):
        return None
    right, single, sizes = defaultdict(list), [], []
    for question in asked:
        answer = answers[question.key].text
        right[question.run].append(is_right(question, answer))
        single.append(is_single(question, answer, grid.hops))
        sizes.append(len(answer.strip()))
    runs = [float(np.mean(right[run])) for run in grid.numbers()]
    return {
        "mean": float(np.mean(runs)),
        "std": float(np.std(runs, ddof=1)) if len(runs) > 1 else None,
        "runs": runs,
        "samples": len(asked),
        "right": sum(map(sum, right.values())),
        "single": float(np.mean(single)),
        "characters": float(np.mean(sizes)),
    }


def screening(grid: Grid, answers: Mapping[str, Answer]) -> dict[str, Any] | None:
    """Whether a model does the task at all: right on the letter task at length 16, with single tokens. None if not asked."""
    task, length = SCREENED
    cell = cell_result(grid, answers, task, length)
    if cell is None:
        return None
    return {
        "task": task,
        "length": length,
        "accuracy": cell["mean"],
        "least_accuracy": LEAST_RIGHT,
        "single": cell["single"],
        "least_single": LEAST_SINGLE,
        "passed": cell["mean"] >= LEAST_RIGHT and cell["single"] >= LEAST_SINGLE,
    }


def usage(answers: Mapping[str, Answer]) -> dict[str, Any]:
    """The number of answers and their tokens, as the model or its server counted them."""

    def total(name: str) -> int | None:
        counts = [value for answer in answers.values() if (value := getattr(answer, name)) is not None]
        return sum(counts) if counts else None

    return {"answers": len(answers), **{name: total(name) for name in ("tokens_in", "tokens_out", "reasoning")}}


def results(grid: Grid, answers: Mapping[str, Answer], too_long: Mapping[str, list[int]]) -> dict[str, Any]:
    """The results in the summary."""
    found, screened = accuracy(grid, answers), screening(grid, answers)
    return {
        "screening": screened,
        "accuracy": found,
        "too_long": dict(too_long),
        "with_length": with_length(found),
        "paper": {"lengths": list(PAPER_LENGTHS), "accuracy": {model: dict(tasks) for model, tasks in PAPER.items()}},
        "usage": usage(answers),
    }


def with_length(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The accuracy on each task at the shortest and the longest window, and what is lost between them."""
    lost = {}
    for task, cells in found.items():
        if len(cells) > 1:
            short, long = min(cells, key=int), max(cells, key=int)
            first, last = cells[short]["mean"], cells[long]["mean"]
            mean = float(np.mean([cell["mean"] for cell in cells.values()]))
            lost[task] = {"shortest": [int(short), first], "longest": [int(long), last], "lost": first - last, "mean": mean}
    return lost


def profile_beside(folder: Path, weights: Mapping[str, str] | None) -> dict[str, Any]:
    """Median scores of early and late layers from a run folder of `ropescope profile`; one of other weights is refused."""
    try:
        summary = read_run(folder).summary
        depth, model = summary["results"]["depth"], summary["config"]["model"]
    except (ValueError, LookupError, TypeError):
        raise ValueError(f"profile {folder} holds no profile: give a folder of `ropescope profile`") from None
    if weights and model["weights"] and dict(weights) != model["weights"]:
        raise ValueError(f"profile {folder} is of other weights ({model['source']}): profile the same model")
    return {
        "model": model["source"],
        "prompts": summary["results"]["prompts"],
        "layers": model["layers"],
        **{f"{score}_{half}": depth[score][key] for score in ("positional", "symbolic") for half, key in HALVES.items()},
    }


def brief(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a model's results that is compared with other models."""
    return {"model": name, **{key: found[key] for key in ("accuracy", "with_length", "profile", "screening")}}


def run_beside(folder: Path) -> dict[str, Any]:
    """The results of another model from its run folder; its profile must be among them."""
    try:
        summary = read_run(folder).summary
        return brief(summary["config"]["model"]["source"], summary["results"])
    except (ValueError, LookupError, TypeError):
        raise ValueError(f"beside {folder} holds no run of `ropescope llm` with a profile: run it again with one") from None


HALVES = {"early": "first", "late": "second"}
