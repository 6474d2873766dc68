"""Accuracy by hop count over length, for several trained models: which mix of hop counts is the paper's curve?

The paper does not print the hop counts of figure 5B. Here every model is measured by hop count, at its best and at its last
checkpoint, behind fronts of both rules for fillers, and means over hop counts are compared with the paper's points.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...models.bundled import bundled_folder, bundled_seed
from ...models.gptj import GPTJ, load_gptj, require_vocabulary
from ...models.gptj_steps import read_front
from ...models.gptj_steps import run as run_model
from ...runs import sha256
from ...tasks import LetterTask, MultihopTask, task_names
from ...training.recipe import recipe
from ..study import Outcome, Work
from . import HopSettings
from .claims import PAPER
from .tables_hops import MIXES

RULES = {"own letter kept out": False, "as released": True}
"""Rules for fillers of the letter task, and whether fillers may contain the query's first letter."""


@dataclass(frozen=True)
class Subject:
    """A trained model: its run, recipe (a preset, or "changed"), task, and checkpoint ("best" or "last")."""

    name: str
    recipe: str
    task: str
    checkpoint: str
    folder: Path


@dataclass(frozen=True)
class Unit:
    """One measurement: subject, rule for fillers, length, and number of the draw."""

    subject: Subject
    rule: str
    length: int
    draw: int

    @property
    def file(self) -> str:
        """Its file in the run folder."""
        rule = "released" if RULES[self.rule] else "own"
        return f"units/{self.subject.name}-{self.subject.checkpoint}-{rule}-{self.length}-{self.draw}"


def subjects(sources: Sequence[Path]) -> list[Subject]:
    """The bundled models, then the models of run folders; a run that keeps its best checkpoint has two.

    Raises ValueError if a folder holds no finished training run or one of a task of another size, or two have the same name.
    """
    found = [
        Subject(f"bundled-{task}-{bundled_seed(task)}", "paper", task, "last", bundled_folder(task)) for task in task_names()
    ]
    for source in sources:
        file = source / "config.json"
        config = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        if config.get("task") not in task_names() or not (source / "model" / "model.safetensors").is_file():
            raise ValueError(f"{source} holds no finished training run: it needs config.json and model/model.safetensors")
        if set(config["task_sizes"]) - {"share_query"}:
            raise ValueError(
                f"{source} is of a task of another size: give models of the {config['task']} task as in preset paper"
            )
        both = {"best": source / "model", "last": source / "last"} if config.get("keep_best") else {"last": source / "model"}
        by = _preset(config)
        found += [Subject(source.resolve().name, by, config["task"], which, folder) for which, folder in both.items()]
    names = [(subject.name, subject.checkpoint) for subject in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"two run folders are called {twice[0]}: give them different names")
    return found


def _preset(config: Mapping[str, Any]) -> str:
    """The preset whose recipe a training run has, with any seed; "changed" if it has none's."""
    for name in ("paper", "released"):
        entries = json.loads(json.dumps(recipe(config["task"], name).settings()))
        if entries | {"seed": config.get("seed")} == {key: value for key, value in config.items() if key != "made_with"}:
            return name
    return "changed"


def run(settings: HopSettings, work: Work) -> Outcome:
    """Accuracy by hop count of every model, rule for fillers and length."""
    models = subjects(settings.sources)
    for task in {subject.task for subject in models}:
        _check(settings, recipe(task).make_task())
    asked = {name: value for name, value in asdict(settings).items() if name != "sources"}
    config = asked | {"weights": {f"{one.name} {one.checkpoint}": sha256(one.folder / "model.safetensors") for one in models}}
    work.resumed(config, __name__, "accuracy by hop count", "a run of other models, lengths or sequences")
    draws = range(settings.seed, settings.seed + settings.draws)
    cases = [(subject, rule) for subject in models for rule in rules_of(subject.task)]
    units = [Unit(*case, length, draw) for case in cases for length in settings.lengths for draw in draws]
    shared = settings.samples, settings.share
    found = work.units([unit.file for unit in units], accuracy, shared, units, "fronts")
    values = np.array([each["right"] for each in found]).reshape(len(cases), len(settings.lengths), settings.draws, -1)
    rows = [
        {
            **{name: value for name, value in asdict(subject).items() if name != "folder"},
            "fillers": rule,
            "per_hop": of_case.mean(1).T.round(5).tolist(),  # hop, length
            "mixes": {
                name: {"mean": mean.tolist(), "sd": None if settings.draws < 2 else sd.tolist()}
                for name, (mean, sd) in _mixed(of_case).items()
            },
        }
        for (subject, rule), of_case in zip(cases, values, strict=True)
    ]
    return Outcome(config, {"lengths": list(settings.lengths), "curves": rows, "distances": distances(settings.lengths, rows)})


def rules_of(task: str) -> tuple[str, ...]:
    """The rules for fillers that a task has."""
    return tuple(RULES) if task == LetterTask.name else tuple(RULES)[:1]


def _check(settings: HopSettings, task: MultihopTask) -> None:
    if settings.lengths[0] < task.length:
        raise ValueError(f"lengths must be at least {task.length}, the tokens without a front, not {settings.lengths[0]}")
    if settings.samples < task.hops:
        raise ValueError(f"samples must be at least {task.hops}, one for each hop count, not {settings.samples}")


def accuracy(shared: tuple[int, int], unit: Unit) -> Mapping[str, NDArray[Any]]:
    """Accuracy of each hop count behind a front."""
    samples, share = shared
    sizes = {"share_query": RULES[unit.rule]} if unit.subject.task == LetterTask.name else {}
    task = recipe(unit.subject.task).make_task().__class__(**sizes)
    model = load_gptj(unit.subject.folder)
    require_vocabulary(model, unit.subject.task, task.vocab_size)
    return {"right": right_by_hop(model, task, unit.length - task.length, samples, share, unit.draw)}


def right_by_hop(model: GPTJ, task: MultihopTask, extra: int, samples: int, share: int, seed: int) -> NDArray[np.float64]:
    """Share of right answers of each hop count, behind a front of `extra` targets that `share` sequences have in common."""
    right, hops = [], []
    for group in task.behind_one_front(task.sample(samples, seed, extra), share):
        ids = torch.from_numpy(group.tokens)
        front = read_front(model, ids[0, :extra]) if extra else None
        right.append(run_model(model, ids[:, extra:], front).argmax(-1).numpy() == group.answer)
        hops.append(group.hops)
    correct, of_hops = np.concatenate(right), np.concatenate(hops)
    return np.array([correct[of_hops == hop].mean() for hop in range(1, task.hops + 1)])


def _mixed(values: NDArray[np.float64]) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Mean and standard deviation over draws of every mix of hop counts, by length (length, draw, hop)."""
    found = {}
    for name, hops in MIXES.items():
        mixed = values[..., [hop - 1 for hop in hops]].mean(-1)
        found[name] = mixed.mean(1).round(5), mixed.std(1, ddof=1 if mixed.shape[1] > 1 else 0).round(5)
    return found


def distances(lengths: Sequence[int], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of every curve and mix the largest distance to the paper's points, between lengths on a logarithmic axis.

    A curve that does not reach all of the paper's lengths has none.
    """
    found = []
    for row in rows:
        points = PAPER[row["task"]]
        if not lengths[0] <= min(points) <= max(points) <= lengths[-1]:
            continue
        away = {
            name: max(abs(float(np.interp(np.log(at), np.log(lengths), mix["mean"])) - value) for at, value in points.items())
            for name, mix in row["mixes"].items()
        }
        told = {name: row[name] for name in ("name", "recipe", "task", "checkpoint", "fillers")}
        found.append(told | {"distance": {name: round(value, 4) for name, value in away.items()}})
    return found
