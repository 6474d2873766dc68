"""Milestones of training runs, and of checkpoints, which are measured first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...models.checkpoints import find_checkpoints
from ...runs import read_trajectory, sha256, write_whole
from ..histories.milestones import check_layers, milestones
from ..study import Outcome, Work
from . import Settings
from .stored import CONFIGS, history_file, stored_histories
from .sweep import Asked, same_weights, sweep


def run(settings: Settings, work: Work) -> Outcome:
    """Milestones of every history. The histories are copied into the run folder, so that figures need no other folder."""
    folders = [_history_folder(source, settings, work) for source in settings.sources]
    found = [read_trajectory(folder) for folder in folders]
    if len({one.name for one in found}) < len(found):
        raise ValueError("two of the folders have the same name: rename one, as figures are named after them")
    for one in found:
        milestones(one)  # refuses a history without scores before anything is written
        check_layers(one, settings.layers or ())
    for one, folder in zip(found, folders, strict=True):
        write_whole(work.folder / history_file(one.name), (folder / "history.safetensors").read_bytes())
    write_whole(work.folder / CONFIGS, json.dumps({one.name: dict(one.config) for one in found}, indent=1) + "\n")
    stored = stored_histories(work.folder)
    results = {name: milestones(history) for name, history in stored.items()}
    files = [history_file(name) for name in stored]
    config: dict[str, Any] = {"runs": {name: sha256(work.folder / history_file(name)) for name in stored}}
    if settings.layers is not None:
        config["layers"] = list(settings.layers)
    return Outcome(config, results, written=[CONFIGS, *files], sources=folders)


def _history_folder(source: str, settings: Settings, work: Work) -> Path:
    """The folder with a training's history: the source itself, or one made of the checkpoints in it."""
    if not settings.revisions and (Path(source) / "history.safetensors").exists():
        return Path(source)
    names = ("prompts", "count", "pairs", "chat", "tau", "seed")
    asked = Asked(**{name: getattr(settings, name) for name in names})
    folder, checkpoints = work.folder / Path(source).resolve().name, find_checkpoints(source, settings.revisions)
    units = sweep(source, settings.revisions, asked, folder, work.engine)
    measured = list(work.progress(units, len(checkpoints), Path(source).name))
    for same in same_weights({one.checkpoint.name: one.weights for one in measured}):
        work.tell(f"{', '.join(same)} hold the same weights")
    return folder
