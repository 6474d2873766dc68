"""How the models of a run on sizes are trained."""

from __future__ import annotations

from ...training.recipe import Recipe
from ..small_models import look_every, small_recipe
from . import Settings
from .knobs import KNOBS, Unit, units


def recipe_of(settings: Settings, unit: Unit) -> Recipe:
    """How a model is trained."""
    setting = unit.setting
    window, hops, letters = (setting.at(knob) for knob in KNOBS)
    names = {"letters": letters, "integers": 2 * window} if setting.task == "number" else {"alphabet": letters}
    return small_recipe(
        settings,
        setting.task,
        unit.seed,
        task_sizes={"targets": window, "stops": window, "hops": hops, **names},
        layers=settings.layers,
        rate=3e-3,
        watch_every=look_every(settings.steps),
    )


def check(settings: Settings) -> None:
    """Raise a ValueError if some model cannot have these sizes."""
    for unit in units(settings):
        recipe_of(settings, unit)
