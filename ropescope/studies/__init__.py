"""Studies: one folder per question. Each folder says how to run, draw, tabulate and judge one kind of run.

A study's folder defines `STUDIES`, the run types it knows. To add a study, add its folder and its name to `FOLDERS`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from .study import Study

if TYPE_CHECKING:
    from ..runs import Run

FOLDERS = (
    "profile",
    "compare",
    "training",
    "dynamics",
    "mechanisms",
    "length",
    "theory",
    "canonical",
    "control",
    "windows",
    "cues",
    "sizes",
    "head_groups",
    "sharpen",
    "chat",
    "choice",
    "demo",
    "check_rope",
    "conformance",
    "bench",
    "checks",
    "reproduce",
)
"""Folders of studies, in the order in which their runs appear on a page."""


@cache
def _by_folder() -> dict[str, tuple[Study, ...]]:
    return {folder: tuple(import_module(f".{folder}", __name__).STUDIES) for folder in FOLDERS}


def studies() -> dict[str, Study]:
    """Every study by name. The name is also the shell command and the `command` entry of the run's summary."""
    return {study.name: study for members in _by_folder().values() for study in members}


def folder_of(study: Study) -> str:
    """The folder that defines a study; empty for run types that no folder defines."""
    return next((folder for folder, members in _by_folder().items() if study in members), "")


def study_named(name: str) -> Study:
    """The study with this name, or a ValueError that lists the names there are."""
    if name not in studies():
        raise ValueError(f"study must be one of {', '.join(studies())}, not {name!r}")
    return studies()[name]


def study_of(run: Run) -> Study:
    """The study that a run folder belongs to. A run of an unknown type is shown by its settings alone."""
    return studies().get(run.command) or Study(run.command, "Other runs", lambda run: f"ropescope {run.command}")
