"""What the heads of models trained on the tasks do along paths, what the answer depends on, and through which RoPE planes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...models.gptj import GPTJ
from ...runs import plain
from ...tasks import MultihopTask, NumberTask, Samples, split
from ...training.recipe import Recipe, recipe
from ...training.trainer import probe_of
from ...training.watcher import Watcher
from .. import playground as player
from ..study import Outcome, Work
from ..task_models import chosen_tasks, model_name, run_seed, task_model
from . import DETAILS, Settings
from .flow import accuracy_with, example, flow_summary, information_flow, interventions, per_layer
from .planes import geometry, geometry_summary, place_gaps, plane_points


def run(settings: Settings, work: Work) -> Outcome:
    """What the heads of each task's model do; points and an example of them are stored apart, in head_details.json."""
    recipes = {name: recipe(name) for name in chosen_tasks(settings.task, settings.model)}
    models = {name: task_model(name, its.make_task(), settings.model) for name, its in recipes.items()}
    for name, (model, _, _) in models.items():
        if model.config.heads != 1:
            raise ValueError(
                f"mechanisms needs a model with one head in each layer: this one of the {name} task has {model.config.heads}"
            )
    config: dict[str, Any] = {"inputs": settings.inputs, "changed": settings.changed}
    results: dict[str, Any] = {}
    details: dict[str, Any] = {}
    subjects: list[dict[str, Any]] = []
    for name, its in recipes.items():
        model, weights, _ = models[name]
        seed = run_seed(settings.seed, name, settings.model)
        config[name] = {"model": model_name(settings.model), "weights": weights, "seed": seed}
        config[name] |= {"activation": model.config.activation}
        samples = _test_samples(its, seed, settings.inputs)
        parts = mechanisms(model, its.make_task(), samples, settings.changed)
        found = dict(work.progress(parts, result_count(model.config.layers), name))
        found["changes"] = {key.removeprefix("change "): found.pop(key) for key in list(found) if key.startswith("change ")}
        details[name] = {key: found.pop(key) for key in list(found) if key.startswith(("points", "example"))}
        results[name] = found
        prompt, about = player.task_prompt(its.make_task(), samples)
        subjects.append(player.subject(model, prompt, f"{name} task", config[name] | {"prompts": about}))
    files = {DETAILS: json.dumps(details) + "\n", "playground.json": json.dumps(player.playground(*subjects)) + "\n"}
    return Outcome(config, results, files)


def _test_samples(its: Recipe, seed: int, count: int) -> Samples:
    return probe_of(split(its.make_task(), its.samples, seed)["test"], count)


CHOSEN = 1024
"""Inputs for scores and planes, which are means; where heads attend is counted on all inputs."""


def mechanisms(model: GPTJ, task: MultihopTask, samples: Samples, changed: int) -> Iterator[tuple[str, Any]]:
    """Everything about one model as (name, result), in the order of the work; `changed` inputs are tried with each change."""
    few = probe_of(samples, CHOSEN)
    row = Watcher(few)(model)
    positional, symbolic = (row[name].mean(-1) for name in ("positional", "symbolic"))
    yield "scores", {"positional": plain(positional), "symbolic": plain(symbolic)}
    yield "flow", flow_summary(information_flow(model, samples))
    planes = geometry(model, few)
    yield "planes", geometry_summary(planes) | {"spread": per_layer(planes.spread), "largest": per_layer(planes.largest)}
    kinds = {
        "positional": np.flatnonzero((positional > 0.5) & (symbolic < 0.5)).tolist(),
        "symbolic": np.flatnonzero((symbolic > 0.5) & (positional < 0.5)).tolist(),
    }
    yield "layers", kinds
    if kinds["positional"] and isinstance(task, NumberTask):
        yield "place_gaps", place_gaps(model, task, few, kinds["positional"])
    tried = probe_of(samples, changed)
    looks_at = task.ideal_hop(tried.tokens).looks_at
    for name, change in interventions(model.config.layers, **kinds).items():
        yield f"change {name}", accuracy_with(model, tried, looks_at, change)
    longest = samples[np.flatnonzero(samples.hops == samples.hops.max())[:1]]
    yield "example", example(model, task, longest)
    for kind, layers in kinds.items():
        if layers:
            pure = np.abs(positional - symbolic)
            layer = next(n for n in layers if pure[n] >= pure[layers].max() - 0.1)  # the first: its tokens are still themselves
            plane = int(planes.spread[layer, 0].argmax())
            points = plane_points(model, task, few[:48], layer, plane)
            yield f"points of {kind}", {"layer": layer, "plane": plane + 1, "points": points}


def result_count(layers: int) -> int:
    """About how many results `mechanisms` yields, for a progress bar."""
    return 3 * layers + 15
