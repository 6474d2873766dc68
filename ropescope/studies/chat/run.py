"""A chat model is screened, then asked all questions of the grid that no log answers yet."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...tasks import task_names
from ...tasks.chat import Question, preamble
from ..study import Declined, Outcome, Work
from .grid import Grid, estimate_line
from .scores import SCREENED, Answer, brief, profile_beside, results, run_beside, screening

if TYPE_CHECKING:
    from . import Settings
    from .asking import Asked

LOGS = "logs"
TOGETHER = 100
"""Questions in one log, which is written anew with every answer."""


def run(settings: Settings, work: Work) -> Outcome:
    """Accuracy by task and length, beside paper B's; answers are those in the logs of the folder."""
    asked = _model(settings)
    grid = settings.grid
    heads = None if settings.profile is None else profile_beside(settings.profile, asked.about.get("weights"))
    others = [run_beside(path) for path in settings.beside]
    from .asking import answers_in  # noqa: PLC0415

    questions, too_long = plan(grid, asked)
    send = settings.yes or settings.is_local
    if send or (work.folder / "config.json").exists():
        shared = _shared(asked.about, grid)
        made_by = __name__ if settings.is_local else None  # answers of a server depend on what is sent, which is in the key
        work.resumed(shared, made_by, "config.json of such a run", "answers of another model or other settings")
    answers = answers_in(work.folder / LOGS, questions, work.tell)
    left = [question for question in questions if question.key not in answers]
    work.tell(estimate_line(len(questions), left, grid.max_tokens, settings.price_in, settings.price_out))
    if left and not send:
        raise Declined("nothing was sent: set yes to send the questions")
    _ask(settings, work, asked, left, answers)
    found = results(grid, answers, too_long)
    found |= {"profile": heads} if heads else {}
    if others:
        found["beside"] = [brief(asked.about["source"], found), *others]
    config = {"model": asked.about, **asdict(grid), "profile": None if settings.profile is None else settings.profile.name}
    exported = _exported(questions, answers)
    return Outcome(config, found, {"answers.jsonl": exported}, ["config.json"])


def _model(settings: Settings) -> Asked:
    """The model to ask."""
    if find_spec("inspect_ai") is None:
        raise ValueError("chat models are asked through Inspect AI: pip install 'ropescope[llm]'")
    from . import LOCAL  # noqa: PLC0415

    if settings.is_local:
        from .local import Local  # noqa: PLC0415

        return Local(settings.model.removeprefix(LOCAL))
    from .servers import Server  # noqa: PLC0415

    return Server(settings)


def plan(grid: Grid, asked: Asked) -> tuple[list[Question], dict[str, list[int]]]:
    """Questions in the order in which to ask them, those that screen a model first; and lengths that are too long, by task.

    Too long is a length where not all questions fit into the context of a model that tells it.
    """
    too_long: dict[str, list[int]] = defaultdict(list)
    questions = []
    for task, length in dict.fromkeys([SCREENED, *grid.cells()]):
        cell = grid.cell(task, length)
        if all(asked.fits(question.text, grid.max_tokens) for question in cell):
            questions += cell
        elif (task, length) in grid.cells():
            too_long[task].append(length)
    return questions, dict(too_long)


def _ask(settings: Settings, work: Work, asked: Asked, left: Sequence[Question], answers: dict[str, Answer]) -> None:
    """Add answers to the questions that are left, unless those that screen the model show that it fails."""
    from .asking import ask  # noqa: PLC0415

    grid, concurrency = settings.grid, 1 if settings.is_local else settings.concurrency
    first = [question for question in left if (question.task, question.length) == SCREENED]
    rest = left[len(first) :]
    batches = [first] * bool(first) + [rest[n : n + TOGETHER] for n in range(0, len(rest), TOGETHER)]
    for batch in work.progress(batches, len(batches), "answers"):
        screened = None if batch is first or settings.anyway else screening(grid, answers)
        if screened is not None and not screened["passed"]:
            break
        answers |= ask(asked, batch, grid.hops, grid.max_tokens, concurrency, work.folder / LOGS)


def _shared(model: Mapping[str, Any], grid: Grid) -> dict[str, Any]:
    """What answers of one folder must have in common. Tasks, lengths and runs may be added later."""
    wording = {task: text_hash(preamble(task, grid.hops)) for task in task_names()}
    same = {key: getattr(grid, key) for key in ("samples", "hops", "max_tokens", "seed")}
    return {"model": dict(model), **same, "wording": wording}


def _exported(questions: Sequence[Question], answers: Mapping[str, Answer]) -> str:
    """The answers as lines of JSON, for other programs."""
    rows = [
        {"key": question.key, "question": text_hash(question.text), **asdict(answers[question.key])}
        for question in questions
        if question.key in answers
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def text_hash(text: str) -> str:
    """The hash by which a text is recognised."""
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]
