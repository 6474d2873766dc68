"""Every form, task and length is a cell: its questions are put to the model, and what it chose is stored in the folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from transformers import DynamicCache

from ...models.load import Loaded, load_model
from ...tasks import task_names
from ...tasks.chat import Question, questions
from ...tasks.posed import FORMS, posed
from ..study import Outcome, Work
from . import Settings
from .forced import encoded, read, scored
from .scores import beside_from, by_place, cell_of, held, late_symbolic


class Cell(NamedTuple):
    """One form, task and length."""

    form: str
    task: str
    length: int


@dataclass(frozen=True)
class Subject:
    """A model and how much it is asked."""

    loaded: Loaded
    settings: Settings

    def questions(self, cell: Cell) -> list[Question]:
        """The questions of all draws of a cell."""
        settings = self.settings
        numbers = range(settings.seed, settings.seed + settings.runs)
        return [each for run in numbers for each in questions(cell.task, cell.length, run, settings.samples)]


def run(settings: Settings, work: Work) -> Outcome:
    """Accuracy of forced choice by form, task and length, beside chance and guesses by place."""
    loaded = load_model(settings.model, settings.dtype, settings.trust_remote_code)
    if loaded.tokenizer is None:
        raise ValueError("the model comes without a tokenizer, which questions need")
    late = None if settings.profile is None else late_symbolic(settings.profile, loaded.about["weights"])
    others = [beside_from(folder) for folder in settings.beside]
    subject = Subject(loaded, settings)
    sizes = {name: getattr(settings, name) for name in ("runs", "samples", "seed")}
    same = {"model": loaded.about, **sizes, "first": _first_text(settings)}
    work.resumed(same, __name__, "study of choices", "answers of another model or other questions")
    cells = [Cell(*each) for each in _cells(settings)]
    names = [f"units/{cell.form}-{cell.task}-{cell.length}" for cell in cells]
    accuracy: dict[str, Any] = {form: {task: {} for task in settings.tasks} for form in settings.forms}
    too_long: dict[str, Any] = {form: {task: [] for task in settings.tasks} for form in settings.forms}
    for cell, found in zip(cells, work.units(names, chosen, subject, cells, "cells"), strict=True):
        if len(found["right"]):
            accuracy[cell.form][cell.task][str(cell.length)] = cell_of(found, settings.runs)
        else:
            too_long[cell.form][cell.task].append(cell.length)
    results: dict[str, Any] = {"accuracy": accuracy, "too_long": too_long, "held": held(accuracy), "late_symbolic": late}
    if others:
        own = {name: results[name] for name in ("accuracy", "held", "late_symbolic")}
        results["beside"] = [{"model": loaded.about["source"], **own}, *others]
    config = asdict(settings) | {
        "model": loaded.about,
        "profile": None if settings.profile is None else settings.profile.name,
        "beside": [folder.name for folder in settings.beside],
    }
    return Outcome(config, results, {}, ["config.json"])


def _cells(settings: Settings) -> list[tuple[str, str, int]]:
    """Short windows first, so that an interrupted run has something of everything."""
    return [(form, task, length) for length in settings.lengths for form in settings.forms for task in settings.tasks]


def _first_text(settings: Settings) -> dict[str, str]:
    """A short question of every form and task: another wording is another study."""
    return {f"{form} {task}": posed(questions(task, 2, 1, 1)[0], form).text for form in FORMS for task in task_names()}


def chosen(subject: Subject, cell: Cell) -> Mapping[str, NDArray[Any]]:
    """What the model chose for every question of a cell; empty arrays if one does not fit into its context.

    right    share of the chosen options that is right: 1, 0, or 1/k if k options are equally likely and one of them is right
    greedy   whether greedy decoding begins with the right answer
    options  how many there are
    nats     log probability of the right answer
    mass     probability that the answer begins with any option
    by_place accuracy of the places chosen for other questions of the cell
    """
    model: Any = subject.loaded.model
    tokenizer, context = subject.loaded.tokenizer, subject.loaded.context
    asked = subject.questions(cell)
    forms = [posed(question, cell.form) for question in asked]
    texts = [encoded(tokenizer, form.text, form.written) for form in forms]
    longest = max(len(ids) + max(map(len, answers)) for ids, answers in texts)
    rows: dict[str, list[float]] = {name: [] for name in ("right", "greedy", "options", "nats", "mass")}
    if context is not None and longest > context:
        return {name: np.zeros(0) for name in (*rows, "by_place")}
    # All questions of a cell begin with the same rule and examples, which are read once.
    shared = _common_start([ids[:-1] for ids, _ in texts])
    start = DynamicCache(config=model.config)
    if shared:
        read(model, shared, start)
    picks, answers_at = np.zeros((len(asked), cell.length)), np.zeros((len(asked), cell.length))
    for number, (question, form, (ids, answers)) in enumerate(zip(asked, forms, texts, strict=True)):
        found = scored(model, ids[len(shared) :], answers, start if shared else None)
        right = form.options.index(question.answer)
        best = found.nats == found.nats.max()
        rows["right"].append(best[right] / best.sum())
        rows["greedy"].append(float(found.greedy[right]))
        rows["options"].append(len(form.options))
        rows["nats"].append(found.nats[right])
        rows["mass"].append(float(np.exp(found.nats).sum()))
        items = np.array(question.items[:-1])
        for option in np.array(form.options)[best]:
            picks[number] += (items == option) / (items == option).sum() / best.sum()
        answers_at[number] = items == question.answer
    return {name: np.array(values) for name, values in rows.items()} | {"by_place": np.array(by_place(picks, answers_at))}


def _common_start(rows: Sequence[Sequence[int]]) -> Sequence[int]:
    """The tokens that all rows begin with."""
    same = takewhile(lambda column: len(set(column)) == 1, zip(*rows, strict=False))
    return rows[0][: sum(1 for _ in same)]
