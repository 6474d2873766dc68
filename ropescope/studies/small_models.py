"""Small models that a study trains by the dozen: in memory, without a run folder of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..tasks import Samples
from ..training.recipe import Recipe
from ..training.trainer import batch_rows, train_step


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
