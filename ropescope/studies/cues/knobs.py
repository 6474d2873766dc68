"""What is changed about the training of the default model, one thing at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...training.recipe import Recipe
from ..small_models import small_recipe
from . import Settings

DEFAULT = "default"
KNOBS = {
    "p-RoPE": ("share of planes that turn", 1.0),
    "base": ("base of RoPE", 10_000.0),
    "stretch": ("stretch of positions", 1.0),
    "log n": ("logits x log n", 0.0),
    "heads": ("heads per layer", 1.0),
}
"""What can be changed, by name: in words, and its value in the default model.

p-RoPE is that of Barbero et al. (2024): the slowest planes stand still, so 0 is no RoPE at all. "log n" is the base of the
logarithm, and 0 is without it. A common offset of all positions is not among them: RoPE does not notice one.
"""


class Setting(NamedTuple):
    """One way to train: the knob that is turned and its value; the default model has the knob "default"."""

    knob: str
    value: float

    @property
    def name(self) -> str:
        """The setting in words, also its name in files."""
        return DEFAULT if self.knob == DEFAULT else f"{self.knob} {self.value:g}"


class Unit(NamedTuple):
    """One model to train."""

    setting: Setting
    seed: int


def asked(settings: Settings) -> list[Setting]:
    """All settings of a run, the default first. Values that are the default model's own are left out."""
    lists = (settings.shares, settings.bases, settings.stretches, settings.log_lengths, settings.heads)
    turned = [
        Setting(knob, float(value))
        for (knob, (_, usual)), values in zip(KNOBS.items(), lists, strict=True)
        for value in dict.fromkeys(values)
        if value != usual
    ]
    return [Setting(DEFAULT, 0.0), *turned]


def units(settings: Settings) -> list[Unit]:
    """All models of a run, every setting with the first seed before the next seed."""
    return [Unit(setting, settings.seed + n) for n in range(settings.seeds) for setting in asked(settings)]


def recipe_of(settings: Settings, unit: Unit) -> Recipe:
    """How a model is trained: four layers, two hops, sizes of the redundant task's defaults."""
    knob, value = unit.setting
    changes: dict[str, Any] = {}
    if knob == "p-RoPE":
        changes["planes"] = tuple(range(1, round(value * settings.width / 2) + 1))
    elif knob == "base":
        changes["base"] = value
    elif knob != DEFAULT:
        changes[{"stretch": "stretch", "log n": "log_length", "heads": "heads"}[knob]] = int(value)
    return small_recipe(settings, "redundant", unit.seed, layers=4, rate=3e-3, **changes)


def check(settings: Settings) -> None:
    """Raise a ValueError if some model cannot have these sizes."""
    for unit in units(settings):
        recipe_of(settings, unit)
