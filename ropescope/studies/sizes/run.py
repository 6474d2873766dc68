"""The study of sizes: each model is trained; when it learned, which heads are pure, and at what length it breaks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...measures.purity import POSITIONAL, SYMBOLIC, purity
from ...models.gptj import GPTJ
from ...runs import plain
from ...tasks import split
from ...training.probe import evaluate, probe_of, probe_row
from ..small_models import trained
from ..study import Outcome, Work
from . import Settings
from .knobs import Unit, asked, units
from .recipes import recipe_of

LEARNED = 0.9
"""Accuracy in every hop class from which a model counts as one that has learned the task."""
SWEEP = ("seeds", "windows", "hops", "letters")
"""Settings that say which models there are, and nothing about a single one."""
AT_ONCE = 16
"""Long sequences that are read at once."""

Arrays = dict[str, NDArray[Any]]
Row = dict[str, Any]


def run(settings: Settings, work: Work) -> Outcome:
    """What every model does."""
    config = asdict(settings)
    for_one = {name: value for name, value in config.items() if name not in SWEEP}
    work.resumed(for_one, __name__, "run of sizes", "a run with other settings")
    models = units(settings)
    names = [f"units/{unit.setting.name.replace(' ', '-')}-{unit.seed}" for unit in models]
    found = work.units(names, run_unit, settings, models, "models")
    rows = [row_of(unit, arrays) for unit, arrays in zip(models, found, strict=True)]
    return Outcome(config, {"settings": [setting.name for setting in asked(settings)], "models": rows})


def run_unit(settings: Settings, unit: Unit) -> Arrays:
    """Trains one model and returns what it does."""
    recipe = recipe_of(settings, unit)
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    task = recipe.make_task()
    data = split(task, recipe.samples, recipe.seed)
    probe = probe_of(data["validation"], 256)
    looks: list[tuple[int, float]] = []

    def look(step: int, model: GPTJ) -> None:
        looks.append((step, float(evaluate(model, probe).min())))

    model = trained(recipe, data["train"], look)
    lengths = [task.length, *(multiple * task.length for multiple in settings.multiples)]
    long = [task.sample(settings.long_inputs, recipe.seed, length - task.length) for length in lengths[1:]]
    scores = probe_row(model, probe)
    return {
        "lengths": np.array(lengths),
        "accuracy": np.stack([evaluate(model, data["test"]), *(evaluate(model, samples, AT_ONCE) for samples in long)]),
        "looks": np.array(looks),
        "positional": scores["positional"],
        "symbolic": scores["symbolic"],
    }


def row_of(unit: Unit, arrays: Arrays) -> Row:
    """The results of one model. Accuracy is by length, then by hop count; scores by layer, then by head."""
    kinds = purity(arrays["positional"], arrays["symbolic"])
    learned = [int(step) for step, least in arrays["looks"] if least >= LEARNED]
    means = arrays["accuracy"].mean(1)
    return {
        "setting": unit.setting.name,
        "task": unit.setting.task,
        "knob": unit.setting.knob,
        "value": unit.setting.value,
        "seed": unit.seed,
        "learned": bool(arrays["accuracy"][0].min() >= LEARNED),
        "learned_at": learned[0] if learned else None,
        "pure_positional": int((kinds == POSITIONAL).sum()),
        "pure_symbolic": int((kinds == SYMBOLIC).sum()),
        "breaks_at": breaking(arrays["lengths"].tolist(), means.tolist()),
        **{name: plain(arrays[name].astype(float)) for name in ("lengths", "accuracy", "positional", "symbolic")},
    }


def breaking(lengths: Sequence[float], accuracy: Sequence[float]) -> float | None:
    """The length at which accuracy is half of that at the first length, on a line between the logarithms of two lengths.

    None if it is above half at every length.
    """
    half = accuracy[0] / 2
    for at in range(1, len(lengths)):
        if accuracy[at] < half:
            share = (accuracy[at - 1] - half) / (accuracy[at - 1] - accuracy[at])
            start, stop = math.log(lengths[at - 1]), math.log(lengths[at])
            return round(math.exp(start + share * (stop - start)), 3)
    return None
