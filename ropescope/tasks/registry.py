"""The multi-hop tasks, each named once.

Training, prompts, chat questions, studies and commands look tasks up here. A new task takes two steps: write its class, which
carries its name, wording, ideal hop and sizes, in a module of this folder, and list the class in `TASKS`.

>>> from ropescope.tasks import task_class
>>> task_class("number")(hops=2).sample(4, seed=0).tokens.shape
(4, 17)
"""

from __future__ import annotations

from .letter import LetterTask
from .multihop import MultihopTask
from .number import NumberTask
from .redundant import RedundantTask

TASKS: dict[str, type[MultihopTask]] = {task.name: task for task in (NumberTask, LetterTask)}
"""The papers' tasks. Studies of all tasks take these, and each has a bundled model."""
OWN_TASKS: dict[str, type[MultihopTask]] = {task.name: task for task in (RedundantTask,)}
"""Tasks of our own. Models can be trained on them; everything else knows the papers' tasks alone."""


def task_names() -> tuple[str, ...]:
    """Names of the papers' tasks."""
    return tuple(TASKS)


def task_class(name: str) -> type[MultihopTask]:
    """The class of a task of the papers.

    Raises ValueError if no task has this name.
    """
    return _found(name, TASKS)


def trainable_class(name: str) -> type[MultihopTask]:
    """The class of a task that models can be trained on, one of the papers' or our own.

    Raises ValueError if no task has this name.
    """
    return _found(name, TASKS | OWN_TASKS)


def _found(name: str, tasks: dict[str, type[MultihopTask]]) -> type[MultihopTask]:
    if name not in tasks:
        raise ValueError(f"task must be one of {', '.join(tasks)}, not {name!r}")
    return tasks[name]
