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

TASKS: dict[str, type[MultihopTask]] = {task.name: task for task in (NumberTask, LetterTask)}


def task_names() -> tuple[str, ...]:
    """Names of all tasks."""
    return tuple(TASKS)


def task_class(name: str) -> type[MultihopTask]:
    """The class of a task.

    Raises ValueError if no task has this name.
    """
    if name not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, not {name!r}")
    return TASKS[name]
