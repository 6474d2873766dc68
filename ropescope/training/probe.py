"""A model measured on the sequences of a task: scores of its heads, accuracy and loss."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..models.gptj import GPTJ
from ..runs import Row
from ..tasks import Samples
from .measuring import head_means, task_measures


def probe_of(samples: Samples, count: int) -> Samples:
    """The first samples of each hop class, as many of each as can be."""
    by_class = [np.flatnonzero(samples.hops == hops) for hops in np.unique(samples.hops)]
    share = max(1, count // len(by_class))
    return samples[np.sort(np.concatenate([rows[:share] for rows in by_class]))]


def probe_row(model: GPTJ, probe: Samples, tau: float = 1e-4) -> Row:
    """One row of a history: means over the sequences of all task measures, accuracy in each hop class, and loss.

    It takes one forward pass. The model's training mode and the random numbers of training are left as they were.
    """
    logits: list[Tensor] = []
    means = head_means(model, [(torch.from_numpy(probe.tokens), None)], task_measures(), tau=tau, on_logits=logits.append)
    answer = torch.from_numpy(probe.answer)
    row: Row = {name: value.astype(np.float32) for name, value in means.items()}
    row["accuracy"] = accuracy_per_hop(logits[0], answer, torch.from_numpy(probe.hops))
    row["loss"] = torch.nn.functional.cross_entropy(logits[0], answer).numpy()
    return row


def evaluate(model: nn.Module, samples: Samples, batch: int = 512) -> NDArray[np.float32]:
    """Accuracy in each hop class."""
    answer, hops = torch.from_numpy(samples.answer), torch.from_numpy(samples.hops)
    return accuracy_per_hop(last_logits(model, samples, batch), answer, hops)


def accuracy_per_hop(logits: Tensor, answer: Tensor, hops: Tensor) -> NDArray[np.float32]:
    """Share of right answers in each hop class, from one hop up."""
    right = (logits.argmax(-1) == answer).double()
    counts = torch.bincount(hops)[1:]
    return (torch.bincount(hops, weights=right)[1:] / counts).float().numpy()


@torch.inference_mode()
def last_logits(model: nn.Module, samples: Samples, batch: int = 512) -> Tensor:
    """Logits at the last position of every sequence, without dropout."""
    training = model.training
    model.eval()
    ids = torch.from_numpy(samples.tokens)
    logits = torch.cat([model(part, last_only=True)[:, 0] for part in ids.split(batch)])
    model.train(training)
    return logits
