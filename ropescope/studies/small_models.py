"""Small models that a study trains by the dozen: in memory, without a run folder of their own."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..models.gptj import GPTJ
from ..tasks import Samples
from ..training.recipe import Recipe
from ..training.trainer import batch_rows, train_step


def trained(recipe: Recipe, data: Samples, look: Callable[[int, GPTJ], None] | None = None) -> GPTJ:
    """A model trained on these sequences, in evaluation mode.

    look  called every `recipe.watch_every` steps with the number of steps so far and the model; it must leave both the model
          and torch's random numbers as they were
    """
    model = recipe.make_model()
    optimiser = recipe.optimiser(model)
    for step in range(recipe.steps):
        rows = batch_rows(recipe, step)
        ids, answer = (torch.from_numpy(values[rows]) for values in (data.tokens, data.answer))
        train_step(recipe, step, ids, answer, model, optimiser)
        if look is not None and (step + 1) % recipe.watch_every == 0:
            look(step + 1, model)
    return model.eval()
