"""Models trained on the number or letter task, as studies take them: the bundled ones, or one in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..models.gptj import GPTJ
    from ..tasks import MultihopTask
    from ..training.recipe import Recipe

TASKS = ("number", "letter")


def task_names(task: str, model: Path | None) -> list[str]:
    """The tasks that are meant by a name: all of them by "all", for which there must be no model of one task."""
    if task == "all" and model is not None:
        raise ValueError("model needs the task that it was trained on: choose task number or letter")
    return list(TASKS) if task == "all" else [task]


def paper_recipe(task: str) -> tuple[Recipe, MultihopTask]:
    """The recipe of preset paper, and the task in its sizes."""
    from ..training.recipe import recipe  # noqa: PLC0415

    found = recipe(task)
    return found, found.make_task()


def task_model(name: str, task: MultihopTask, model: Path | None) -> tuple[GPTJ, str]:
    """The model of a task, bundled or in a folder, and the hash of its weights."""
    from ..models.bundled import model_of  # noqa: PLC0415
    from ..runs import sha256  # noqa: PLC0415

    network, source = model_of(name, task.vocab_size, model)
    return network, sha256(source / "model.safetensors")


def run_seed(seed: int | None, task: str, model: Path | None) -> int:
    """The seed of the run whose test sequences to use: the one given, else that of the bundled model, else 0."""
    from ..models.bundled import bundled_seed  # noqa: PLC0415

    return seed if seed is not None else bundled_seed(task) if model is None else 0


def model_name(folder: Path | None) -> str:
    """The name of a model in tables and figures: that of its run, as the model of a run folder is always in "model"."""
    if folder is None:
        return "bundled model"
    path = folder.resolve()
    return f"model {path.parent.name if path.name == 'model' else path.name}"
