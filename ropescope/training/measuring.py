"""Means of measures over fixed inputs: what is stored of a model while it trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from ..measures.registry import HEAD_AXES, Measure, compute, measures
from ..measures.view import LayerView
from ..measures.visible import Blocks
from ..models.adapter import Adapter, LayerRead, read_layers
from ..models.gptj import GPTJ


def watched() -> dict[str, Measure]:
    """The measures that `HeadWatcher` stores, by name: those of single heads that need the last query alone."""
    return measures("scores", "attention", axes=HEAD_AXES)


def task_measures() -> dict[str, Measure]:
    """The measures that training on a task stores, by name: those of `watched` that depend on no choice of blocks."""
    return measures("scores", axes=HEAD_AXES) | {"entropy": measures("attention")["entropy"]}


def layers_of(model: GPTJ | Adapter) -> dict[int, int]:
    """Number of heads of each layer, by the layer's number."""
    if isinstance(model, Adapter):
        return dict(zip(model.layers, model.heads, strict=True))
    return dict.fromkeys(range(model.config.layers), model.config.heads)


@torch.inference_mode()
def head_means(
    model: GPTJ | Adapter,
    batches: Iterable[tuple[Int[Tensor, "B T"], Blocks | None]],
    chosen: Mapping[str, Measure],
    layers: Sequence[int] | None = None,
    tau: float = 1e-4,
    on_logits: Callable[[Tensor], object] | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Means of measures of the heads, (layer, head), over the inputs on which a head has them; NaN if on none.

    model      one of our GPT-J, or the adapter of a `transformers` model
    batches    token ids and the blocks that move in all of them; None if every token before the query moves alone
    chosen     measures with the axes "layer" and "head"
    layers     numbers of the layers to measure; all if None
    on_logits  called with the logits of each batch at the last position
    """
    sizes = layers_of(model)
    places = {layer: place for place, layer in enumerate(sizes if layers is None else layers)}
    sums = {name: torch.zeros(len(places), max(sizes.values()), dtype=torch.float64) for name in chosen}
    counts = {name: torch.zeros_like(values) for name, values in sums.items()}
    for ids, blocks in batches:

        def on_layer(read: LayerRead, blocks: Blocks | None = blocks) -> None:
            if read.layer not in places:
                return
            view = LayerView(read.heads, read.factors, blocks, tau=tau)
            for name, values in compute(view, chosen.values()).items():
                found = values.double().cpu()
                place, known = (places[read.layer], slice(found.shape[1])), found.isfinite()
                sums[name][place] += found.where(known, 0).sum(0)
                counts[name][place] += known.sum(0)

        logits = read_layers(model, ids, on_layer, queries=1)
        if on_logits is not None:
            on_logits(logits)
    # Division by a count of 0 gives NaN, as it should be.
    return {name: (values / counts[name]).numpy() for name, values in sums.items()}
