"""Training runs of one or several seeds, and the test accuracy of a model."""

from __future__ import annotations

from contextlib import nullcontext

from ...console import training_bar
from ...models.bundled import model_of
from ...runs import sha256
from ...tasks import split
from ...training import trainer
from ...training.recipe import recipe
from ...training.seeds import train_seeds
from ..study import Outcome, Work
from ..task_models import run_seed
from . import EvaluateSettings, TrainSettings


def train(settings: TrainSettings, work: Work) -> Outcome:
    """The folders of the runs, in which training has written everything."""
    seeds = settings.seeds or (settings.seed,)
    folders = [work.folder / f"{settings.task}-{seed}" for seed in seeds] if settings.seeds else [work.folder]
    recipes = {
        folder: recipe(settings.task, settings.preset, seed, settings.changes)
        for folder, seed in zip(folders, seeds, strict=True)
    }
    here = work.engine.name == "here"
    steps = next(iter(recipes.values())).steps
    with training_bar(steps) if here and not work.quiet else nullcontext() as show:
        if here and not settings.seeds:
            trainer.train(recipes[work.folder], work.folder, settings.resume, settings.snapshots, show, work.patience)
        else:
            ended = train_seeds(recipes, settings.resume, settings.snapshots, work.engine, show)
            for _ in ended if here else work.progress(ended, len(recipes), "runs"):
                pass
    return Outcome({}, {}, sources=list(recipes))


def evaluate(settings: EvaluateSettings, work: Work) -> Outcome:
    """Accuracy per hop count on the test sequences of a run."""
    its = recipe(settings.task)
    model, source = model_of(settings.task, its.make_task().vocab_size, settings.model)
    seed = run_seed(settings.seed, settings.task, settings.model)
    test = split(its.make_task(), its.samples, seed)["test"]
    accuracy = {f"{hops}-hop": float(value) for hops, value in enumerate(trainer.evaluate(model, test), start=1)}
    config = {"task": settings.task, "model": source.name, "weights": sha256(source / "model.safetensors"), "seed": seed}
    return Outcome(config, {"sequences": len(test), "accuracy": accuracy})
