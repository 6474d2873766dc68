"""The models of a run on several heads: which there are, and how they are trained."""

from __future__ import annotations

from typing import NamedTuple

from ...tasks import TASKS
from ...training.recipe import Recipe
from ..small_models import look_every, small_recipe
from . import Settings


class Unit(NamedTuple):
    """One model to train."""

    task: str
    family: str
    heads: int
    seed: int

    @property
    def setting(self) -> str:
        """The model in words, without its seed."""
        return f"{self.task} {self.family} {self.heads}"


def units(settings: Settings) -> list[Unit]:
    """All models of a run, every one with the first seed before the next seed."""
    return [
        Unit(task, family, heads, settings.seed + n)
        for n in range(settings.seeds)
        for task in TASKS
        for family in dict.fromkeys(settings.families)
        for heads in dict.fromkeys(settings.heads)
    ]


def recipe_of(settings: Settings, unit: Unit) -> Recipe:
    """How a model is trained: alike in all families."""
    return small_recipe(
        settings,
        unit.task,
        unit.seed,
        task_sizes={"hops": settings.hops},
        layers=settings.layers,
        heads=unit.heads,
        rate=1e-3,
        watch_every=look_every(settings.steps),
    )


def check(settings: Settings) -> None:
    """Raise a ValueError if some model cannot have these sizes."""
    for unit in units(settings):
        recipe_of(settings, unit)
