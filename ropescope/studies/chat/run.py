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


def run(settings: Settings, work: Work) -> Outcome:
    """Accuracy by task and length, beside paper B's; answers are those in the logs of the folder."""
    asked = _model(settings)
    grid = settings.grid
    heads = None if settings.profile is None else profile_beside(settings.profile, asked.about.get("weights"))
    others = [run_beside(path) for path in settings.beside]
    from .asking import answers_in  # noqa: PLC0415

    cells, too_long = plan(grid, asked)
    questions = [question for cell in cells for question in cell]
    send = settings.yes or settings.is_local
    if send or (work.folder / "config.json").exists():
        shared = _shared(asked.about, grid)
        work.resumed(shared, "config.json of such a run", "answers of another model or other settings")
    logs = work.folder / LOGS
    answers, _ = answers_in(logs, questions, work.tell)
    left = [question for question in questions if question.key not in answers]
    work.tell(estimate_line(len(questions), left, grid.max_tokens, settings.price_in, settings.price_out))
    if left and not send:
        raise Declined("nothing was sent: set yes to send the questions")
    _ask_all(settings, work, asked, cells, answers)
    answers, whole = answers_in(logs, questions, lambda _: None)
    found = results(grid, answers, too_long)
    found |= {"profile": heads} if heads else {}
    if others:
        found["beside"] = [brief(asked.about["source"], found), *others]
    config = {"model": asked.about, **asdict(grid), "profile": None if settings.profile is None else settings.profile.name}
    exported = _exported(questions, answers)
    return Outcome(config, found, {"answers.jsonl": exported}, ["config.json", *(f"{LOGS}/{path.name}" for path in whole)])


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


def plan(grid: Grid, asked: Asked) -> tuple[list[list[Question]], dict[str, list[int]]]:
    """Questions cell by cell, in the order in which to ask them: the cell that screens a model first; and what is too long.

    Too long are lengths of a task whose questions do not all fit into the context of a model that tells it.
    """
    too_long: dict[str, list[int]] = defaultdict(list)
    cells = []
    for task, length in dict.fromkeys([SCREENED, *grid.cells()]):
        cell = grid.cell(task, length)
        if all(asked.fits(question.text, grid.max_tokens) for question in cell):
            cells.append(cell)
        elif (task, length) in grid.cells():
            too_long[task].append(length)
    return cells, dict(too_long)


def _ask_all(
    settings: Settings, work: Work, asked: Asked, cells: Sequence[Sequence[Question]], answers: Mapping[str, Answer]
) -> None:
    """Have all cells answered; only the first one where it shows that the model fails the screening."""
    from .asking import answers_in, ask  # noqa: PLC0415

    grid, logs = settings.grid, work.folder / LOGS
    concurrency = 1 if settings.is_local else settings.concurrency
    for number, cell in enumerate(work.progress(cells, len(cells), "answers")):
        if left := [question for question in cell if question.key not in answers]:
            ask(asked, left, grid.hops, grid.max_tokens, concurrency, logs)
        if number == 0 and not settings.anyway:
            screened = screening(grid, answers_in(logs, cell, lambda _: None)[0])
            if screened is not None and not screened["passed"]:
                return


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
