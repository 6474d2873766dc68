"""Training GPT-J on a multi-hop task: deterministic for a seed, safe to kill at any moment, and resumed bit for bit.

A run folder holds

    config.json              the recipe; a folder is never continued with another one
    checkpoint.safetensors   weights, optimiser and random state at one step, replaced whole
    history.safetensors      what the watcher saw, up to that step at least
    model/                   the final weights, as a folder that `transformers` opens
    snapshots/               with `snapshots`: such folders for every checkpoint
    summary.json             results, versions, hashes

Batches depend on the step alone, so a checkpoint needs no place in the data.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .. import runs
from ..models.gptj import GPTJ, GPTJConfig, save_gptj
from ..rope import Rope
from ..runs import Row
from ..tasks import LetterTask, MultihopTask, NumberTask, Samples, split
from ..tasks.multihop import require_at_least
from .watcher import Watcher, accuracy_per_hop

TASKS: dict[str, type[MultihopTask]] = {"number": NumberTask, "letter": LetterTask}

LEAST = {"seed": 0, "layers": 1, "heads": 1, "width": 2, "mlp_width": 1, "batch": 1, "steps": 1, "warm_up": 0}
LEAST |= dict.fromkeys(("watch_every", "probe", "checkpoint_every", "threads"), 1)
"""Entries of a recipe that are whole numbers, and the least each can be."""


@dataclass(frozen=True)
class Recipe:
    """All that a run depends on. The defaults are preset `paper`."""

    task: str
    seed: int = 0
    task_sizes: dict[str, int] = field(default_factory=dict)
    samples: tuple[int, int, int] = (432_000, 2_400, 45_600)
    layers: int = 12
    heads: int = 1
    width: int = 128
    mlp_width: int = 512
    dropout: float = 0.1
    batch: int = 64
    steps: int = 6_750
    warm_up: int = 750
    rate: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 1e-4
    watch_every: int = 50
    probe: int = 256
    checkpoint_every: int = 250
    threads: int = 1
    planes: tuple[int, ...] | None = None
    """RoPE planes that turn, by id from 1, the fastest; the others stand still. All turn unless given."""

    def __post_init__(self) -> None:
        # Types too: entries come from the command line, where anything that is JSON can be written.
        if self.task not in TASKS:
            raise ValueError(f"task must be one of {', '.join(TASKS)}, not {self.task!r}")
        for name, least in LEAST.items():
            _require_whole(name, getattr(self, name), least)
        if self.warm_up >= self.steps:
            raise ValueError(f"warm_up must be at least 0 and below steps = {self.steps}, not {self.warm_up}")
        if self.width % (2 * self.heads):
            raise ValueError(
                f"width must be a multiple of 2 x heads = {2 * self.heads}, not {self.width}: RoPE turns pairs of dimensions"
            )
        _require_several("betas", self.betas, 2)
        for name, number, below in (
            ("dropout", self.dropout, 1),
            *(("each of betas", beta, 1) for beta in self.betas),
            ("rate", self.rate, math.inf),
            ("weight_decay", self.weight_decay, math.inf),
        ):
            if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < below:
                limit = "finite" if below == math.inf else f"below {below}"
                raise ValueError(f"{name} must be a number, at least 0 and {limit}, not {number!r}")
        self._check_planes()
        self._check_data()

    def _check_planes(self) -> None:
        if self.planes is None:
            return
        count = self.width // self.heads // 2
        if not isinstance(self.planes, tuple | list):
            raise ValueError(f"planes must be ids of RoPE planes, like [1, 2, 3], not {self.planes!r}")
        for plane in self.planes:
            _require_whole("each of planes", plane, 1)
            if plane > count:
                raise ValueError(f"each of planes must be at most {count}, as heads of this width have as many, not {plane}")

    def settings(self) -> dict[str, Any]:
        """As it is written down: an entry of later date is left out unless given, so that earlier runs can go on."""
        entries = asdict(self)
        if self.planes is None:
            del entries["planes"]
        return entries

    def rope(self) -> Rope | None:
        """The rotation of all heads; None for the usual one."""
        if self.planes is None:
            return None
        usual = Rope(self.width // self.heads).frequencies
        turning = [angle if plane in self.planes else 0.0 for plane, angle in enumerate(usual, start=1)]
        return Rope(frequencies=turning, pairing="interleaved")

    def _check_data(self) -> None:
        if not isinstance(self.task_sizes, dict):
            raise ValueError(f'task_sizes must be names with sizes, like {{"hops": 2}}, not {self.task_sizes!r}')
        known = [entry.name for entry in fields(TASKS[self.task])]
        for name, size in self.task_sizes.items():
            if name not in known:
                raise ValueError(f"task_sizes {name!r} is not a size of the {self.task} task: it has {', '.join(known)}")
            _require_whole(f"task_sizes {name!r}", size, 0)
        hops = self.make_task().hops
        _require_several("samples", self.samples, 3)
        for count in self.samples:
            _require_whole("each of samples", count, 1)
        if min(self.samples) < hops:  # else a hop count has no accuracy
            raise ValueError(f"samples must be at least {hops} in each part, one for each hop count, not {min(self.samples)}")
        if self.probe > self.samples[1]:
            raise ValueError(f"probe is {self.probe}, more than the {self.samples[1]} validation samples it is taken from")

    def make_task(self) -> MultihopTask:
        """The task in its sizes."""
        return TASKS[self.task](**self.task_sizes)

    def optimiser(self, model: GPTJ) -> torch.optim.Optimizer:
        """AdamW with this recipe's settings."""
        return torch.optim.AdamW(model.parameters(), lr=self.rate, betas=self.betas, weight_decay=self.weight_decay, fused=True)

    def rate_at(self, step: int) -> float:
        """Linear warm-up to `rate`, then linear decay to 0 at the last step."""
        if step < self.warm_up:
            return self.rate * step / self.warm_up
        return self.rate * (self.steps - step) / (self.steps - self.warm_up)


def _require_whole(name: str, value: object, least: int) -> None:
    if type(value) is not int:  # True is an int to isinstance
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    require_at_least(name, value, least)


def _require_several(name: str, values: object, count: int) -> None:
    if not isinstance(values, tuple | list) or len(values) != count:
        raise ValueError(f"{name} must be {count} numbers, not {values!r}")


PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    # Two hops, four layers, a higher rate: pure heads of both kinds within a minute or two.
    "quick": {
        "task_sizes": {"hops": 2},
        "samples": (64_000, 600, 4_000),
        "layers": 4,
        "steps": 1_000,
        "warm_up": 150,
        "rate": 5e-4,
        "watch_every": 25,
    },
}


def recipe(task: str, preset: str = "paper", seed: int = 0, changes: Sequence[str] = ()) -> Recipe:
    """A preset with changes like `steps=500`; values are written as in JSON."""
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, not {preset!r}")
    settings: dict[str, Any] = {**PRESETS[preset], "task": task, "seed": seed}
    names = [entry.name for entry in fields(Recipe) if entry.name not in ("task", "seed")]
    for change in changes:
        name, _, value = change.partition("=")
        try:
            parsed = json.loads(value)
        except json.JSONDecodeError:
            raise ValueError(f"--set {change} must be NAME=VALUE with a value as in JSON, like steps=500") from None
        if name not in names:
            raise ValueError(f"--set {name} is not an entry of the recipe: {', '.join(names)}")
        settings[name] = tuple(parsed) if isinstance(parsed, list) else parsed
    return Recipe(**settings)


def check_folder(recipe: Recipe, folder: Path, resume: bool) -> None:
    """Refuse, before anything is done, a folder in which this run could not be begun or gone on with."""
    _refuse_other_runs(folder, json.dumps(recipe.settings(), indent=2) + "\n", resume)


def train(
    recipe: Recipe,
    folder: Path,
    resume: bool = False,
    snapshots: bool = False,
    on_step: Callable[[int, float, Row | None], None] | None = None,
    patience: float = 0.0,
) -> dict[str, Any]:
    """Train to the end and return the summary's results.

    `snapshots` keeps the weights of every checkpoint; `on_step` is told step, loss and, when watched, the row. For `patience`
    seconds another process that holds the folder is waited for.
    """
    config = json.dumps(recipe.settings(), indent=2) + "\n"
    _refuse_other_runs(folder, config, resume)
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    task = recipe.make_task()
    data = split(task, recipe.samples, recipe.seed)
    sizes = (task.vocab_size, recipe.layers, recipe.heads, recipe.width, recipe.mlp_width)
    model = GPTJ(GPTJConfig(*sizes, rope=recipe.rope(), dropout=recipe.dropout)).train()
    optimiser = recipe.optimiser(model)
    # Only now, as the recipe may still ask for more sequences than the task has: then nothing is left behind.
    with runs.locked(folder, patience):
        _refuse_other_runs(folder, config, resume)  # again, as another may have come first
        return _train(recipe, folder, config, data, model, optimiser, snapshots, on_step)


def _train(
    recipe: Recipe,
    folder: Path,
    config: str,
    data: dict[str, Samples],
    model: GPTJ,
    optimiser: torch.optim.Optimizer,
    snapshots: bool,
    on_step: Callable[[int, float, Row | None], None] | None,
) -> dict[str, Any]:
    runs.write_whole(folder / "config.json", config)
    checkpoint_file = folder / "checkpoint.safetensors"
    step, history = 0, runs.History()
    if checkpoint_file.exists():
        try:
            step = _restore(runs.read_arrays(checkpoint_file), model, optimiser)
            history = runs.History.read(folder / "history.safetensors", up_to=step)
        except (OSError, LookupError, ValueError, RuntimeError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{folder} holds a damaged checkpoint ({_first_line(error)}): it is not used; "
                "copy the folder anew, or remove it to train from the beginning"
            ) from None
    watcher = Watcher(probe_of(data["validation"], recipe.probe))

    def look() -> Row:
        row = watcher(model)
        history.add(step, row)
        return row

    def keep() -> None:
        # History first: rows past the checkpoint are dropped on resuming, missing ones could not be made again.
        history.write(folder / "history.safetensors")
        if snapshots:
            save_gptj(model, folder / "snapshots" / f"step-{step:06d}")
        runs.write_whole(checkpoint_file, _packed(step, model, optimiser))

    started, first = time.perf_counter(), step
    if step == 0:
        row = look()
        if on_step is not None:
            on_step(0, float(row["loss"]), row)
    while step < recipe.steps:
        rows = batch_rows(recipe, step)
        ids, answer = (torch.from_numpy(x[rows]) for x in (data["train"].tokens, data["train"].answer))
        loss = train_step(recipe, step, ids, answer, model, optimiser)
        step += 1
        watched, kept = (step % every == 0 or step == recipe.steps for every in (recipe.watch_every, recipe.checkpoint_every))
        if watched or kept:
            _require_numbers(model, step)
        seen = look() if watched else None
        if kept:
            keep()
        if on_step is not None:
            on_step(step, float(loss), seen)
    seconds = time.perf_counter() - started

    test = {f"{hops}-hop": float(value) for hops, value in enumerate(evaluate(model, data["test"]), start=1)}
    files = [f"model/{name}" for name in save_gptj(model, folder / "model")]
    results = {"test_accuracy": test, "steps_timed": step - first, "seconds": round(seconds, 1)}
    runs.write_summary(folder, "train", recipe.settings(), results, ["config.json", "history.safetensors", *files])
    return results


def _refuse_other_runs(folder: Path, config: str, resume: bool) -> None:
    file = folder / "config.json"
    if file.exists():
        if not resume:
            raise ValueError(f"{folder} already holds a run: add --resume to go on with it, or choose another folder")
        if file.read_bytes() != config.encode():
            raise ValueError(f"{folder} holds a run of another recipe: see its config.json, or choose another folder")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def train_step(recipe: Recipe, step: int, ids: Tensor, answer: Tensor, model: GPTJ, optimiser: torch.optim.Optimizer) -> Tensor:
    """One step on one batch; returns its loss."""
    for group in optimiser.param_groups:
        group["lr"] = recipe.rate_at(step)
    loss = F.cross_entropy(model(ids, last_only=True)[:, 0], answer)
    if not torch.isfinite(loss):
        raise ValueError(f"loss is {float(loss.detach())} at step {step}: lower the rate; the last checkpoint is whole")
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()
    return loss.detach()


def _require_numbers(model: GPTJ, step: int) -> None:
    """Before anything is kept: the loss of a step tells only what its weights were before."""
    for name, weights in model.named_parameters():
        if not weights.isfinite().all():
            raise ValueError(
                f"weights are NaN or infinite after step {step}, first in {name}: lower the rate; the last checkpoint is whole"
            )


def probe_of(samples: Samples, count: int) -> Samples:
    """The first samples of each hop class, as many of each as can be."""
    by_class = [np.flatnonzero(samples.hops == hops) for hops in np.unique(samples.hops)]
    share = max(1, count // len(by_class))
    return samples[np.sort(np.concatenate([rows[:share] for rows in by_class]))]


def batch_rows(recipe: Recipe, step: int) -> np.ndarray:
    """Rows of the training data for one step: in order, shuffled anew for each pass over them."""
    size = recipe.samples[0]
    numbers = np.arange(step * recipe.batch, (step + 1) * recipe.batch)
    rows = numbers % size
    for epoch in np.unique(numbers // size):
        if epoch > 0:
            here = numbers // size == epoch
            rows[here] = np.random.default_rng((recipe.seed, int(epoch))).permutation(size)[rows[here]]
    return rows


@torch.inference_mode()
def evaluate(model: GPTJ, samples: Samples, batch: int = 512) -> np.ndarray:
    """Accuracy in each hop class."""
    training = model.training
    model.eval()
    ids = torch.from_numpy(samples.tokens)
    logits = torch.cat([model(part, last_only=True)[:, 0] for part in ids.split(batch)])
    model.train(training)
    return accuracy_per_hop(logits, torch.from_numpy(samples.answer), torch.from_numpy(samples.hops))


def _packed(step: int, model: GPTJ, optimiser: torch.optim.Optimizer) -> bytes:
    """Everything that the next step depends on, in one file's bytes."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for number, state in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{number}.{name}": value for name, value in state.items()}
    tensors["random"] = torch.get_rng_state()
    tensors["step"] = torch.tensor(step)
    return runs.packed_arrays({name: value.numpy() for name, value in tensors.items()})


def _restore(arrays: dict[str, np.ndarray], model: GPTJ, optimiser: torch.optim.Optimizer) -> int:
    """Put model, optimiser and random numbers back to where `_packed` found them; returns the step."""
    tensors = {name: torch.tensor(value) for name, value in arrays.items()}
    model.load_state_dict({name: tensors[f"model.{name}"] for name in model.state_dict()})
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser."):
            _, number, kind = name.split(".")
            state.setdefault(int(number), {})[kind] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
    torch.set_rng_state(tensors["random"])
    return int(tensors["step"])
