"""Models trained on the number or letter task, as studies take them: the bundled ones, or one in a folder."""

from __future__ import annotations

from pathlib import Path

from ..models.bundled import bundled_seed, model_of
from ..models.gptj import GPTJ
from ..runs import sha256
from ..tasks import MultihopTask, task_names


def chosen_tasks(task: str, model: Path | None) -> list[str]:
    """The tasks that a setting names: every task by "all", which must come without a model of one task."""
    if task == "all" and model is not None:
        raise ValueError(f"model needs the task that it was trained on: choose task {' or '.join(task_names())}")
    if task not in (*task_names(), "all"):
        raise ValueError(f"task must be one of {', '.join(task_names())} or all, not {task!r}")
    return list(task_names()) if task == "all" else [task]


def task_model(name: str, task: MultihopTask, model: Path | None) -> tuple[GPTJ, str, str]:
    """The model of a task, bundled or in a folder, and the hashes of its weights and of its settings."""
    network, source = model_of(name, task.vocab_size, model)
    return network, sha256(source / "model.safetensors"), sha256(source / "config.json")


def run_seed(seed: int | None, task: str, model: Path | None) -> int:
    """The seed of the run whose test sequences to use: the one given, else that of the bundled model, else 0."""
    return seed if seed is not None else bundled_seed(task) if model is None else 0


def model_name(folder: Path | None) -> str:
    """The name of a model in tables and figures: that of its run, as the model of a run folder is always in "model"."""
    if folder is None:
        return "bundled model"
    path = folder.resolve()
    return f"model {path.parent.name if path.name == 'model' else path.name}"
