"""The models of a run on several heads: which there are, and how they are trained."""

from __future__ import annotations

from typing import NamedTuple

from ...tasks import TASKS
from ...training.recipe import Recipe
from . import Settings

LOOKS = 40
"""How often a model is looked at in training."""


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
    return Recipe(
        unit.task,
        unit.seed,
        task_sizes={"hops": settings.hops},
        samples=(64 * settings.steps, 500, settings.inputs),
        layers=settings.layers,
        heads=unit.heads,
        width=settings.width,
        mlp_width=2 * settings.width,
        dropout=0.0,  # no sequence is seen twice
        steps=settings.steps,
        warm_up=settings.steps // 10,
        rate=1e-3,
        betas=(0.9, 0.98),
        clip=1.0,
        watch_every=max(1, settings.steps // LOOKS),
    )


def check(settings: Settings) -> None:
    """Raise a ValueError if some model cannot have these sizes."""
    for unit in units(settings):
        recipe_of(settings, unit)
