"""Copies of the histories that a run of dynamics was made from."""

from __future__ import annotations

from pathlib import Path

from ...runs import Trajectory, make_trajectory, read_arrays, read_json

CONFIGS = "histories.json"
"""Settings of the training runs by name."""


def history_file(name: str) -> str:
    """The file in the run folder that holds the history of a training run."""
    return f"histories/{name}.safetensors"


def stored_histories(folder: Path) -> dict[str, Trajectory]:
    """The histories in a run folder by name; empty for runs of version 0.1, which stored none."""
    if not (folder / CONFIGS).exists():
        return {}
    return {
        name: make_trajectory(folder / history_file(name), name, config, read_arrays(folder / history_file(name)))
        for name, config in read_json(folder / CONFIGS).items()
    }
