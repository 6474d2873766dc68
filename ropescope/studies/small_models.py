"""Small models that a study trains by the dozen: in memory, without a run folder of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..tasks import Samples
from ..training.recipe import Recipe
from ..training.trainer import batch_rows, train_step

LOOKS = 40
"""How often a model is looked at in training."""


def small_recipe(settings: Any, task: str, seed: int, **changes: Any) -> Recipe:
    """How a small model is trained: AdamW on batches of 64, no sequence twice.

    settings  of the study: `steps`, `width`, and `inputs` for testing
    changes   other entries of the recipe, such as layers and rate
    """
    return Recipe(
        task,
        seed,
        samples=(64 * settings.steps, 500, settings.inputs),
        width=settings.width,
        mlp_width=2 * settings.width,
        dropout=0.0,  # no sequence is seen twice
        steps=settings.steps,
        warm_up=settings.steps // 10,
        betas=(0.9, 0.98),
        clip=1.0,
        **changes,
    )


def look_every(steps: int) -> int:
    """Steps between two looks."""
    return max(1, steps // LOOKS)


def trained(recipe: Recipe, data: Samples, look: Callable[[int, Any], None] | None = None, model: Any = None) -> Any:
    """A model trained on these sequences, in evaluation mode.

    model  what to train, called as our GPT-J is; that of the recipe unless given
    look   called every `recipe.watch_every` steps with the number of steps so far and the model; it must leave both the
           model and torch's random numbers as they were
    """
    model = recipe.make_model() if model is None else model
    optimiser = recipe.optimiser(model)
    for step in range(recipe.steps):
        rows = batch_rows(recipe, step)
        ids, answer = (torch.from_numpy(values[rows]) for values in (data.tokens, data.answer))
        train_step(recipe, step, ids, answer, model, optimiser)
        if look is not None and (step + 1) % recipe.watch_every == 0:
            look(step + 1, model)
    return model.eval()
