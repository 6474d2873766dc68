"""Recipes: all that a training run depends on, and the presets."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch
from torch import nn

from ..models.gptj import GPTJ, GPTJConfig, require_activation
from ..rope import Rope
from ..tasks import MultihopTask, trainable_class
from ..tasks.multihop import require_at_least

LEAST = {"seed": 0, "layers": 1, "heads": 1, "width": 2, "mlp_width": 1, "batch": 1, "steps": 1, "warm_up": 0}
LEAST |= dict.fromkeys(("watch_every", "probe", "checkpoint_every", "threads"), 1)
"""Entries of a recipe that are whole numbers, and the least each can be."""
LATER = ("planes", "activation", "clip", "decay_all", "keep_best", "base", "stretch", "log_length")
"""Entries that recipes of earlier runs do not have."""


@dataclass(frozen=True)
class Recipe:
    """All that a run depends on. The defaults are preset `paper`.

    task_sizes    sizes and rules of the task; those not given are the task's own defaults
    samples       sequences for training, validation and test
    weight_decay  of all parameters; with `decay_all` false, not of biases and norms
    watch_every   steps between two measurements of the heads, on `probe` validation sequences
    planes        RoPE planes that rotate, by id from 1, the fastest; the others stand still; None: all rotate
    activation    of the MLP, by its name in `transformers`: "gelu_new" (tanh approximation) or "gelu" (exact)
    clip          largest norm of all gradients together; None: gradients are not clipped
    keep_best     store the checkpoint of best validation accuracy as the model, instead of the last one. Accuracy is measured
                  on all validation sequences at every checkpoint step; among equals the earliest step is the best.
    base          of RoPE: its frequencies are base^(-2f/d)
    stretch       in training, RoPE rotates the tokens of each batch to a random increasing choice of so many times as many
                  positions; 1: to 0, 1, 2 ... A common offset would change nothing, as RoPE depends on distances alone.
    log_length    as in `GPTJConfig`, in training too: with 2, logits of a query that sees n keys are multiplied by log2 n

    Raises ValueError if an entry is not allowed.
    """

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
    activation: str = "gelu_new"
    clip: float | None = None
    decay_all: bool = True
    keep_best: bool = False
    base: float = 10_000.0
    stretch: int = 1
    log_length: int | None = None

    def __post_init__(self) -> None:
        # Types too: entries come from the command line, where anything that is JSON can be written.
        trainable_class(self.task)
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
            ("clip", 0 if self.clip is None else self.clip, math.inf),
        ):
            if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < below:
                limit = "finite" if below == math.inf else f"below {below}"
                raise ValueError(f"{name} must be a number, at least 0 and {limit}, not {number!r}")
        for name in ("decay_all", "keep_best"):
            _require_bool(name, getattr(self, name))
        if self.clip == 0:
            raise ValueError("clip must be above 0, or null for no clipping, not 0")
        require_activation(self.activation)
        self._check_positions()
        self._check_planes()
        self._check_data()

    def _check_positions(self) -> None:
        _require_whole("stretch", self.stretch, 1)
        if self.log_length is not None:
            _require_whole("log_length", self.log_length, 2)
        if isinstance(self.base, bool) or not isinstance(self.base, int | float) or not 1 < self.base < math.inf:
            raise ValueError(f"base must be a finite number above 1, not {self.base!r}")

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
        """The entries as they are stored; those of `LATER` are left out at their defaults, as earlier runs do not have them."""
        entries = asdict(self)
        for entry in fields(self):
            if entry.name in LATER and entries[entry.name] == entry.default:
                del entries[entry.name]
        return entries

    def rope(self) -> Rope | None:
        """The rotation of all heads; None for the default one."""
        if self.planes is None and self.base == 10_000:
            return None
        usual = Rope(self.width // self.heads, self.base).frequencies
        turning = [angle if self.planes is None or plane in self.planes else 0.0 for plane, angle in enumerate(usual, start=1)]
        return Rope(frequencies=turning, pairing="interleaved")

    def _check_data(self) -> None:
        if not isinstance(self.task_sizes, dict):
            raise ValueError(f'task_sizes must be names with sizes, like {{"hops": 2}}, not {self.task_sizes!r}')
        known = {entry.name: entry.type for entry in fields(trainable_class(self.task))}
        for name, size in self.task_sizes.items():
            if name not in known:
                raise ValueError(f"task_sizes {name!r} is not a size of the {self.task} task: it has {', '.join(known)}")
            (_require_bool if known[name] == "bool" else _require_size)(f"task_sizes {name!r}", size)
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
        return trainable_class(self.task)(**self.task_sizes)

    def make_model(self) -> GPTJ:
        """A model of these sizes with random weights, in training mode."""
        sizes = (self.make_task().vocab_size, self.layers, self.heads, self.width, self.mlp_width)
        more: dict[str, Any] = {"dropout": self.dropout, "log_length": self.log_length, "activation": self.activation}
        return GPTJ(GPTJConfig(*sizes, rope=self.rope(), **more)).train()

    def positions(self, length: int) -> torch.Tensor | None:
        """Positions of the tokens of one batch, drawn by torch's generator; None for 0, 1, 2 ..."""
        return None if self.stretch == 1 else torch.randperm(self.stretch * length)[:length].sort().values

    def optimiser(self, model: nn.Module) -> torch.optim.Optimizer:
        """AdamW with this recipe's settings."""
        parameters: list[Any] = list(model.parameters())
        if not self.decay_all:  # biases and the weights of norms are vectors, all else are matrices
            vectors = [parameter for parameter in parameters if parameter.ndim < 2]
            matrices = [parameter for parameter in parameters if parameter.ndim >= 2]
            parameters = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
        return torch.optim.AdamW(parameters, lr=self.rate, betas=self.betas, weight_decay=self.weight_decay, fused=True)

    def rate_at(self, step: int) -> float:
        """Linear warm-up to `rate`, then linear decay to 0 at the last step."""
        if step < self.warm_up:
            return self.rate * step / self.warm_up
        return self.rate * (self.steps - step) / (self.steps - self.warm_up)


def _require_whole(name: str, value: object, least: int) -> None:
    if type(value) is not int:  # True is an int to isinstance
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    require_at_least(name, value, least)


def _require_size(name: str, value: object) -> None:
    _require_whole(name, value, 0)


def _require_bool(name: str, value: object) -> None:
    if type(value) is not bool:
        raise ValueError(f"{name} must be true or false, not {value!r}")


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
    # What the training script released with the paper does; it draws fillers of the letter task by another rule.
    "released": {
        "betas": (0.95, 0.999),
        "activation": "gelu",
        "clip": 1.0,
        "decay_all": False,
        "keep_best": True,
    },
}
RULES = {("released", "letter"): {"share_query": True}}
"""Entries of `task_sizes` that a preset sets for one task."""


def recipe(task: str, preset: str = "paper", seed: int = 0, changes: Sequence[str] = ()) -> Recipe:
    """A preset with changes like `steps=500`; values are written as in JSON."""
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, not {preset!r}")
    settings: dict[str, Any] = {"task_sizes": {}, **PRESETS[preset], "task": task, "seed": seed}
    names = [entry.name for entry in fields(Recipe) if entry.name not in ("task", "seed")]
    for change in changes:
        name, _, value = change.partition("=")
        try:
            parsed = json.loads(value)
        except json.JSONDecodeError:
            raise ValueError(f"the change {change!r} must be NAME=VALUE with a value as in JSON, like steps=500") from None
        if name not in names:
            raise ValueError(f"{name!r} is not an entry of the recipe: {', '.join(names)}")
        settings[name] = tuple(parsed) if isinstance(parsed, list) else parsed
    if isinstance(settings["task_sizes"], dict):
        settings["task_sizes"] = RULES.get((preset, task), {}) | settings["task_sizes"]
    return Recipe(**settings)
