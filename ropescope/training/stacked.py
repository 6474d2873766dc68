"""Many models of one head trained at once: one layer, attention only, the same task and data, each with its own RoPE planes.

The model is that of `models.built.OneHead`, with four learned tables: what a token asks for (query), how it is found (key),
what it returns (value), and what the query adds to the answer itself (residual). Tables of all models are in one tensor with
the model as leading axis, losses are summed, and AdamW works element by element: so each model takes the same steps that it
would take alone, and a step of all of them is one pass through few large operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from ..models.built import OneHead
from ..rope import Rope
from ..tasks import Samples
from ..tasks.canonical import CanonicalTask


@dataclass(frozen=True)
class Training:
    """Settings of the training; the rate decays linearly to 0."""

    steps: int = 2000
    batch: int = 128
    rate: float = 0.02
    weight_decay: float = 0.0
    spread: float = 1.0
    """standard deviation of queries and keys at the start; values and residuals start at 0"""
    checks: int = 20
    """number of measurements after the start, evenly spaced on a logarithmic axis, as most changes happen early"""
    tested: int = 2000
    """test sequences"""

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "checks", "tested"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not (self.rate > 0 and self.weight_decay >= 0 and self.spread > 0):
            raise ValueError("rate and spread must be positive and weight_decay not negative")

    def looks(self) -> list[int]:
        """Steps after which to measure: 0, from about 10 on, the last. Fewer than `checks` if steps are few."""
        later = np.geomspace(min(10, self.steps), self.steps, self.checks).round().astype(int).tolist()
        return sorted({0, *later, self.steps})


class Trained(NamedTuple):
    """What was measured at the start and at every check, for each model.

    accuracy  on the test sequences
    place     final accuracy by the answer's place; NaN where there is no answer
    weight    final weight of the right key by the answer's place
    queries   of every token, before rotation; plane f is dimensions f and F + f
    keys      likewise
    """

    steps: Int64[np.ndarray, " checks"]
    accuracy: Float32[np.ndarray, "checks M"]
    place: Float32[np.ndarray, "M items"]
    weight: Float32[np.ndarray, "M items"]
    queries: Float32[np.ndarray, "checks M V d"]
    keys: Float32[np.ndarray, "checks M V d"]


class Stacked(nn.Module):
    """The models in one module; `planes` holds the angles of each, the same number for all."""

    def __init__(
        self,
        vocab_size: int,
        answers: int,
        length: int,
        planes: Sequence[Sequence[float]],
        spread: float,
        seed: int | np.random.SeedSequence,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if not planes or len({len(angles) for angles in planes}) != 1 or not planes[0]:
            raise ValueError("planes must hold angles for at least one model, and equally many for each")
        if not all(math.isfinite(angle) for angles in planes for angle in angles):
            raise ValueError("angles must be finite numbers")
        self.planes = tuple(tuple(map(float, angles)) for angles in planes)
        count, size = len(planes), 2 * len(planes[0])
        # All models start with the same weights, however many there are: they differ in their angles alone.
        start = np.random.default_rng(seed).normal(0, spread, size=(2, vocab_size, size))
        query, key = torch.from_numpy(start).to(dtype)[:, None].repeat(1, count, 1, 1)
        self.query, self.key = nn.Parameter(query.contiguous()), nn.Parameter(key.contiguous())
        self.value = nn.Parameter(torch.zeros(count, vocab_size, answers, dtype=dtype))
        self.residual = nn.Parameter(torch.zeros(count, vocab_size, answers, dtype=dtype))
        back = torch.arange(length - 1, -1, -1, dtype=torch.float64)  # how far before the query each position lies
        turn = back[:, None, None] * torch.tensor(self.planes, dtype=torch.float64)
        self.register_buffer("cos", turn.cos().to(dtype))
        self.register_buffer("sin", turn.sin().to(dtype))

    def forward(self, tokens: Int64[Tensor, "B T"]) -> tuple[Float[Tensor, "B M answers"], Float[Tensor, "B M T"]]:
        """Output at the last position, and its attention weights."""
        query, keys = _rows(self.query, tokens[:, -1]), _rows(self.key, tokens)  # (B, M, d), (B, T, M, d)
        values, residual = _rows(self.value, tokens), _rows(self.residual, tokens[:, -1])
        (qx, qy), (kx, ky) = query[:, None].chunk(2, -1), keys.chunk(2, -1)
        # Per plane the logit is Re(conj(q) k) cos + Im(conj(q) k) sin of the distance times the angle, as in `logits`.
        logits = (kx * qx + ky * qy) * self.get_buffer("cos") + (ky * qx - kx * qy) * self.get_buffer("sin")
        weights = logits.sum(-1).softmax(1)
        return (weights[..., None] * values).sum(1) + residual, weights.mT

    def one(self, model: int) -> OneHead:
        """One of the models, in double precision."""
        query, key, value, residual = (x.detach()[model].double() for x in (self.query, self.key, self.value, self.residual))
        one_hot = torch.eye(len(query), dtype=torch.float64)
        return OneHead(one_hot, query, key, value, residual, Rope(frequencies=self.planes[model]), beta=1.0)


def _rows(tables: Float[Tensor, "M V c"], tokens: Int64[Tensor, "*rows"]) -> Float[Tensor, "*rows M c"]:
    """The tables' rows of these tokens, looked up for all models at once: one long row per token."""
    count, size, columns = tables.shape
    rows: Tensor = F.embedding(tokens, tables.transpose(0, 1).reshape(size, count * columns))
    return rows.reshape(*tokens.shape, count, columns)


def train(
    task: CanonicalTask,
    planes: Sequence[Sequence[float]],
    how: Training,
    seed: int,
    dtype: torch.dtype = torch.float32,
    on_step: Callable[[int, Stacked], None] | None = None,
) -> tuple[Stacked, Trained]:
    """The trained models, one for each set of planes, and what was measured.

    Data, test data and starting weights depend on the seed and the task alone.
    """
    start, drawn, tested = np.random.SeedSequence(seed).spawn(3)
    models = Stacked(task.vocab_size, task.answers, task.length, planes, how.spread, start, dtype)
    data, test = task.sample(how.steps * how.batch, drawn), task.sample(how.tested, tested)
    tokens, answers = torch.from_numpy(data.tokens), torch.from_numpy(data.answer)
    optimiser = torch.optim.AdamW(models.parameters(), lr=how.rate, weight_decay=how.weight_decay, foreach=True)
    seen, looks = [_look(models, test)], how.looks()
    for step in range(how.steps):
        rows = slice(step * how.batch, (step + 1) * how.batch)
        for group in optimiser.param_groups:
            group["lr"] = how.rate * (1 - step / how.steps)
        output, _ = models(tokens[rows])
        loss = F.cross_entropy(output.flatten(0, 1), answers[rows].repeat_interleave(len(planes)), reduction="sum") / how.batch
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step + 1 in looks:
            seen.append(_look(models, test))
        if on_step is not None:
            on_step(step, models)
    right, weight = _judge(models, test)
    accuracy, queries, keys = (np.stack(parts) for parts in zip(*seen, strict=True))
    return models, Trained(
        np.array(looks, dtype=np.int64),
        accuracy,
        _by_place(right, test, task.items),
        _by_place(weight, test, task.items),
        queries,
        keys,
    )


@torch.inference_mode()
def _judge(models: Stacked, test: Samples) -> tuple[Float32[np.ndarray, "B M"], Float32[np.ndarray, "B M"]]:
    """Whether each model is right on each sequence, and its weight on the right key."""
    output, weights = models(torch.from_numpy(test.tokens))
    right = output.argmax(-1).numpy() == test.answer[:, None]
    place = torch.from_numpy(test.path[:, 1])[:, None, None].expand(-1, len(models.planes), 1)
    return right.astype(np.float32), weights.gather(-1, place)[..., 0].float().numpy()


def _look(
    models: Stacked, test: Samples
) -> tuple[Float32[np.ndarray, " M"], Float32[np.ndarray, "M V d"], Float32[np.ndarray, "M V d"]]:
    right, _ = _judge(models, test)
    queries, keys = (x.detach().float().numpy().copy() for x in (models.query, models.key))
    return right.mean(0), queries, keys


def _by_place(values: Float32[np.ndarray, "B M"], test: Samples, items: int) -> Float32[np.ndarray, "M items"]:
    """Means over the sequences whose answer is at each place."""
    place = test.path[:, 1]
    rows = [values[place == p].mean(0) if (place == p).any() else np.full(values.shape[1], np.nan) for p in range(items)]
    return np.stack(rows, 1).astype(np.float32)
