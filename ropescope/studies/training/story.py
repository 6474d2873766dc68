"""What the page calls training runs."""

from __future__ import annotations

from ...runs import Run


def title(run: Run) -> str:
    """Task and seed of a training run."""
    return f"{str(run.config['task']).capitalize()} task, seed {run.config['seed']}"


def watched_title(run: Run) -> str:
    """The model that was watched."""
    return str(run.config.get("model", {}).get("name", "A watched model"))


def evaluate_title(run: Run) -> str:
    """What was tested."""
    return f"Accuracy of {run.config['model']} on the {run.config['task']} task"
