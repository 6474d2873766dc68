"""One-hop questions with their options: in words as chat models are asked, or as a Python session for models of code.

The options of a question are the items of its window. A model chooses among them by their probability as the answer.

>>> from ropescope.tasks.chat import questions
>>> from ropescope.tasks.posed import posed
>>> asked = posed(questions("letter", length=6, run=1, samples=1)[0], "python")
>>> asked.text.splitlines()[-1], asked.written[0]
(">>> next(x for x in xs if x.startswith('m'))", "'i2")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .chat import Question, worked_examples
from .registry import task_class

FORMS = ("words", "python")


@dataclass(frozen=True)
class Posed:
    """A question as text, and its options.

    text     what a model reads
    options  the different items of the window
    written  what a model would write for each option, right after the text
    """

    text: str
    options: tuple[str, ...]
    written: tuple[str, ...]


def posed(question: Question, form: str) -> Posed:
    """A one-hop question in a form.

    form  "words": the rule, three worked examples and the list; "python": the same examples and the list as a session of the
          Python interpreter. An item is written after a space, or as a string without its closing quote.
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, not {form!r}")
    options = tuple(sorted(set(question.items[:-1])))
    if form == "words":
        return Posed(question.text, options, tuple(f" {item}" for item in options))
    before = [f"{_session(question.task, items)}{answer!r}\n" for items, answer in worked_examples(question.task)]
    text = "".join((*before, _session(question.task, question.items)))
    return Posed(text, options, tuple(repr(item)[:-1] for item in options))


def _session(task: str, items: Sequence[str]) -> str:
    expression = task_class(task).wording.python
    if not expression:
        raise ValueError(f"the {task} task has no form in Python: give its wording one")
    return f">>> xs = {list(items[:-1])}\n>>> {expression.format(query=items[-1])}\n"
