"""The study of several heads in a layer: each model is trained, its heads are scored, and removed alone and by layer."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...models.adapter import Adapter
from ...models.adapter.interventions import intervene, remove_heads
from ...models.gptj import GPTJ
from ...runs import plain
from ...tasks import split
from ...training.measuring import head_means, task_measures
from ...training.probe import evaluate, probe_of
from ..small_models import trained
from ..study import Outcome, Work
from . import Settings
from .llama import Llama, model_of
from .recipes import Unit, recipe_of, units

LEARNED = 0.9
"""Accuracy in every hop class from which a model counts as one that has learned the task."""
SWEEP = ("seeds", "heads", "families")
"""Settings that say which models there are, and nothing about a single one."""

Arrays = dict[str, NDArray[Any]]
Row = dict[str, Any]


def run(settings: Settings, work: Work) -> Outcome:
    """What every model does."""
    config = asdict(settings)
    for_one = {name: value for name, value in config.items() if name not in SWEEP}
    work.resumed(for_one, __name__, "run of head-groups", "a run with other settings")
    models = units(settings)
    names = [f"units/{unit.setting.replace(' ', '-')}-{unit.seed}" for unit in models]
    found = work.units(names, run_unit, settings, models, "models")
    rows = [row_of(unit, arrays) for unit, arrays in zip(models, found, strict=True)]
    return Outcome(config, {"models": rows})


def run_unit(settings: Settings, unit: Unit) -> Arrays:
    """Trains one model and returns what it does."""
    recipe = recipe_of(settings, unit)
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    data = split(recipe.make_task(), recipe.samples, recipe.seed)
    probe = probe_of(data["validation"], settings.probe)
    looks: list[tuple[int, float]] = []

    def look(step: int, model: GPTJ | Llama) -> None:
        looks.append((step, float(evaluate(model, probe).min())))

    model = trained(recipe, data["train"], look, model_of(recipe, unit.family))
    target = Adapter(model.inner) if isinstance(model, Llama) else model
    scores = head_means(target, [(torch.from_numpy(probe.tokens), None)], task_measures())

    def without(heads: list[tuple[int, int]]) -> float:
        with intervene(target, remove_heads(heads)):
            return float(evaluate(model, data["test"]).mean())

    every = [[(layer, head) for head in range(unit.heads)] for layer in range(recipe.layers)]
    return {
        "accuracy": evaluate(model, data["test"]),
        "looks": np.array(looks),
        "positional": scores["positional"],
        "symbolic": scores["symbolic"],
        "alone": np.array([[without([head]) for head in layer] for layer in every]),
        "together": np.array([without(layer) for layer in every]),
    }


def row_of(unit: Unit, arrays: Arrays) -> Row:
    """The results of one model. Scores, and accuracy `alone` without a head, are by layer, then by head."""
    learned = [int(step) for step, least in arrays["looks"] if least >= LEARNED]
    return {
        "setting": unit.setting,
        **unit._asdict(),
        "learned": bool(arrays["accuracy"].min() >= LEARNED),
        "learned_at": learned[0] if learned else None,
        **{name: plain(arrays[name].astype(float)) for name in ("accuracy", "positional", "symbolic", "alone", "together")},
    }
