"""The loss of a language model at every position of a text."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..models.adapter import device_of

ROWS = 128
"""Positions of a text whose logits are turned into probabilities at once."""


@torch.inference_mode()
def text_losses(model: nn.Module, ids: Tensor) -> NDArray[np.float64]:
    """The loss in nats of every token but the first, from one pass over a text."""
    network: Any = model
    batch = ids[None].to(device_of(model))
    logits = network(input_ids=batch, use_cache=False).logits[0, :-1]
    parts = [
        torch.nn.functional.cross_entropy(some.float(), next_ids, reduction="none")
        for some, next_ids in zip(logits.split(ROWS), batch[0, 1:].split(ROWS), strict=True)
    ]
    losses: NDArray[np.float64] = torch.cat(parts).double().cpu().numpy()
    return losses
