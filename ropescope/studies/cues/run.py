"""The study of cues: each model is trained, then asked which cue it follows and how far it holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr

from ...models.gptj import GPTJ
from ...runs import plain
from ...tasks import RedundantTask, Samples, split
from ...tasks.redundant import conflicting, scrambled
from ...training.probe import evaluate, last_logits, probe_of, probe_row
from ..small_models import trained
from ..study import Outcome, Work
from . import Settings
from .knobs import Unit, asked, recipe_of, units

LEARNED = 0.9
"""Accuracy in every hop class from which a model counts as one that has learned the task."""
SWEEP = ("seeds", "shares", "bases", "stretches", "log_lengths", "heads")
"""Settings that say which models there are, and nothing about a single one."""
AT_ONCE = 64
"""Long sequences that are read at once."""

Arrays = dict[str, NDArray[Any]]
Row = dict[str, Any]


def run(settings: Settings, work: Work) -> Outcome:
    """What every model does, and how outcomes at the training length go with accuracy beyond it."""
    config = asdict(settings)
    for_one = {name: value for name, value in config.items() if name not in SWEEP}
    work.resumed(for_one, __name__, "run of cues", "a run with other settings")
    models = units(settings)
    names = [f"units/{unit.setting.name.replace(' ', '-')}-{unit.seed}" for unit in models]
    found = work.units(names, run_unit, settings, models, "models")
    rows = [row_of(unit, arrays) for unit, arrays in zip(models, found, strict=True)]
    length = RedundantTask().length
    lengths = [length, *(multiple * length for multiple in settings.multiples)]
    order = [setting.name for setting in asked(settings)]
    results = {"settings": order, "lengths": lengths, "models": rows, "predicts": predictions(rows)}
    return Outcome(config, results)


def run_unit(settings: Settings, unit: Unit) -> Arrays:
    """Trains one model and returns what it does."""
    recipe = recipe_of(settings, unit)
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    task = cast(RedundantTask, recipe.make_task())
    data = split(task, recipe.samples, recipe.seed)
    model = trained(recipe, data["train"])
    return measured(model, task, data, settings, recipe.seed)


def measured(model: GPTJ, task: RedundantTask, data: dict[str, Samples], settings: Settings, seed: int) -> Arrays:
    """Accuracy with both cues, with one, and of long sequences; whose answer conflicting cues get; scores of heads."""
    test = data["test"]
    conflict = conflicting(task, test, seed)
    answers = last_logits(model, Samples(conflict.tokens, test.answer, test.hops, test.path)).argmax(-1).numpy()
    followed = np.array([(answers == by).mean() for by in (conflict.by_letters, conflict.by_integers)])
    alone = [evaluate(model, scrambled(task, test, cue, seed)) for cue in ("integers", "letters")]
    extra = [(multiple - 1) * task.length for multiple in settings.multiples]
    long = [evaluate(model, task.sample(settings.long_inputs, seed, more), AT_ONCE) for more in extra]
    probe = probe_row(model, probe_of(data["validation"], 256))
    return {
        "accuracy": np.stack([evaluate(model, test), *long]),
        "followed": followed,
        "letters_alone": alone[0],
        "integers_alone": alone[1],
        "positional": probe["positional"],
        "symbolic": probe["symbolic"],
    }


def row_of(unit: Unit, arrays: Arrays) -> Row:
    """The results of one model. Accuracy is by length, then by hop count; scores by layer, then by head."""
    letters, integers = (float(share) for share in arrays["followed"])
    either = letters + integers
    positional, symbolic = (float(arrays[name].mean()) for name in ("positional", "symbolic"))
    return {
        "setting": unit.setting.name,
        "knob": unit.setting.knob,
        "value": unit.setting.value,
        "seed": unit.seed,
        "learned": bool(arrays["accuracy"][0].min() >= LEARNED),
        "preference": round(letters / either, 6) if either else None,
        "follows_either": round(either, 6),
        "lead": round(symbolic - positional, 6),
        **{name: plain(arrays[name].astype(float)) for name in arrays if name != "followed"},
    }


def predictions(rows: Sequence[Row]) -> dict[str, Any]:
    """Rank correlations over the models that learned the task with their accuracy at the longest length; None if there is none.

    There is no interval: models of one setting resemble each other, and settings were chosen, not drawn.
    """
    known = [row for row in rows if row["learned"] and row["preference"] is not None]
    far = [float(np.mean(row["accuracy"][-1])) for row in known]
    found: dict[str, Any] = {"models": len(known), "of": len(rows)}
    for name in ("lead", "preference"):
        values = [row[name] for row in known]
        varies = len(known) > 2 and len(set(values)) > 1 and len(set(far)) > 1
        r = float(spearmanr(values, far).statistic) if varies else math.nan
        found[name] = round(r, 6) if math.isfinite(r) else None
    return found
