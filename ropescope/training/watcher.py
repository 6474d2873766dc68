"""Scores of all heads while a model trains, from one pass over a fixed set of inputs. No attention weight is ever kept."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..heads import Heads
from ..logits import layer_factors
from ..measures.registry import HEAD_AXES, Measure, compute, measures
from ..measures.view import LayerView
from ..models.gptj import GPTJ
from ..runs import Row
from ..tasks import Samples


def watched() -> dict[str, Measure]:
    """The measures of a row, by name."""
    return measures("scores", axes=HEAD_AXES) | {"entropy": measures("attention")["entropy"]}


class Watcher:
    """Measures a model on fixed inputs: `watcher(model)` gives one row of its history.

    All measures are means over inputs, at the last query. The model's training mode and the random numbers of training are
    left as they were.
    """

    def __init__(self, probe: Samples, tau: float = 1e-4) -> None:
        self.ids, self.answer, self.hops = (torch.from_numpy(x) for x in (probe.tokens, probe.answer, probe.hops))
        self.tau = tau

    @torch.inference_mode()
    def __call__(self, model: GPTJ) -> Row:
        """Measure every layer in one forward pass."""
        training, found = model.training, []
        chosen = watched()

        def on_heads(_: int, heads: Heads) -> None:
            measured = compute(LayerView(heads, layer_factors(heads), tau=self.tau), chosen.values())
            found.append(torch.stack([value.mean(0) for value in measured.values()]))

        logits = model.eval()(self.ids, on_heads, last_only=True)[:, 0]
        model.train(training)
        layers = torch.stack(found, 1).float().numpy()
        row: Row = dict(zip(chosen, layers, strict=True))
        row["accuracy"] = accuracy_per_hop(logits, self.answer, self.hops)
        row["loss"] = torch.nn.functional.cross_entropy(logits, self.answer).numpy()
        return row


def accuracy_per_hop(logits: Tensor, answer: Tensor, hops: Tensor) -> NDArray[np.float32]:
    """Share of right answers in each hop class, from one hop up."""
    right = (logits.argmax(-1) == answer).double()
    counts = torch.bincount(hops)[1:]
    return (torch.bincount(hops, weights=right)[1:] / counts).float().numpy()
