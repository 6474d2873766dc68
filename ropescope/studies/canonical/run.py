"""The study of the canonical tasks: trained sweeps, built heads, and the speed of training models together."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

from ...runs import plain
from ...tasks.canonical import CanonicalTask
from ...training.stacked import Training, train
from ..study import Outcome, Work
from . import PRESETS, Settings
from .built import built
from .findings import findings
from .sweeps import SWEEPS, config_of, planes_of, stack, task_of, trained_units, training_of


def run(settings: Settings, work: Work) -> Outcome:
    """Results of trained and built heads, and accuracy over training for the figures."""
    sweeps = stack(trained_units(settings, work))
    results = {"trained": findings(sweeps, settings), "built": built(settings), "speed": speed(settings)}
    curves = {
        "steps": sweeps["index"]["steps"][0].tolist(),
        "accuracy": {sweep: plain(arrays["accuracy"].astype(float)) for sweep, arrays in sweeps.items()},
        "place": {sweep: plain(sweeps[sweep]["place"].astype(float)) for sweep in ("index", "retrieval")},
    }
    config = {"preset": preset_of(settings), **config_of(settings)}
    return Outcome(config, results, {"curves.json": json.dumps(curves) + "\n"})


def preset_of(settings: Settings) -> str | None:
    """The preset that has these sizes; None if there is none."""
    return next((name for name, sizes in PRESETS.items() if Settings(**sizes, seed=settings.seed) == settings), None)


def speed(settings: Settings, steps: int = 60) -> dict[str, Any]:
    """How much faster the models of a sweep are trained together than one after the other, over a few steps of each."""
    how = replace(training_of(settings), steps=steps, checks=1)
    rows: dict[str, Any] = {}
    for sweep in SWEEPS[:3]:
        task, planes = task_of(settings, sweep), planes_of(settings, sweep)
        together = _seconds(task, planes, how, settings.seed)
        alone = sum(_seconds(task, [angles], how, settings.seed) for angles in planes)
        rows[sweep] = {"models": len(planes), "seconds_per_step": together, "one_by_one_over_together": alone / together}
    return rows


def _seconds(task: CanonicalTask, planes: list[list[float]], how: Training, seed: int) -> float:
    """Of a step, without sampling and testing."""
    moments: list[float] = []
    train(task, planes, how, seed, on_step=lambda step, models: moments.append(time.perf_counter()))
    return (moments[-2] - moments[0]) / (len(moments) - 2)
