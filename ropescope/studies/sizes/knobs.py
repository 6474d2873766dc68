"""Which sizes of the tasks are changed, one at a time."""

from __future__ import annotations

from typing import NamedTuple

from ...tasks import TASKS
from . import Settings

DEFAULT = "default"
KNOBS = {
    "windows": ("targets, and stops", 8),
    "hops": ("hops of the longest path", 2),
    "letters": ("different letters", 16),
}
"""What can be changed, by name: in words, and its value in the default model.

Integers of the number task are as many as the windows are long. More of them would be tokens that never occur.
"""
MOST_LETTERS = {"letter": 26}
"""Tasks whose letters are the alphabet; values above are left out."""


class Setting(NamedTuple):
    """A task and one size that differs from the default model; that one has the knob "default"."""

    task: str
    knob: str
    value: int

    @property
    def name(self) -> str:
        """The setting in words, also its name in files."""
        return f"{self.task} {DEFAULT if self.knob == DEFAULT else f'{self.knob} {self.value}'}"

    def at(self, knob: str) -> int:
        """The value of a knob in this setting."""
        return self.value if self.knob == knob else KNOBS[knob][1]


class Unit(NamedTuple):
    """One model to train."""

    setting: Setting
    seed: int


def asked(settings: Settings) -> list[Setting]:
    """All settings of a run, the default of each task first. Values that are the default model's own are left out."""
    found = []
    for task in TASKS:
        found.append(Setting(task, DEFAULT, 0))
        for knob, (_, usual) in KNOBS.items():
            most = MOST_LETTERS.get(task) if knob == "letters" else None
            values = [value for value in dict.fromkeys(getattr(settings, knob)) if most is None or value <= most]
            found += [Setting(task, knob, value) for value in values if value != usual]
    return found


def units(settings: Settings) -> list[Unit]:
    """All models of a run, every setting with the first seed before the next seed."""
    return [Unit(setting, settings.seed + n) for n in range(settings.seeds) for setting in asked(settings)]
