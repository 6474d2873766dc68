"""How the models of a run on sizes are trained."""

from __future__ import annotations

from ...training.recipe import Recipe
from . import Settings
from .knobs import KNOBS, Unit, units

LOOKS = 40
"""How often a model is looked at in training."""


def recipe_of(settings: Settings, unit: Unit) -> Recipe:
    """How a model is trained."""
    setting = unit.setting
    window, hops, letters = (setting.at(knob) for knob in KNOBS)
    names = {"letters": letters, "integers": 2 * window} if setting.task == "number" else {"alphabet": letters}
    return Recipe(
        setting.task,
        unit.seed,
        task_sizes={"targets": window, "stops": window, "hops": hops, **names},
        samples=(64 * settings.steps, 500, settings.inputs),
        layers=settings.layers,
        width=settings.width,
        mlp_width=2 * settings.width,
        dropout=0.0,  # no sequence is seen twice
        steps=settings.steps,
        warm_up=settings.steps // 10,
        rate=3e-3,
        betas=(0.9, 0.98),
        clip=1.0,
        watch_every=max(1, settings.steps // LOOKS),
    )


def check(settings: Settings) -> None:
    """Raise a ValueError if some model cannot have these sizes."""
    for unit in units(settings):
        recipe_of(settings, unit)
