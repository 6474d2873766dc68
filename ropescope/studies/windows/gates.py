"""Gates of key heads, trained as DuoAttention does, to compare rankings with: distillation on synthetic pass keys.

Every key head has a gate from 0 to 1 that mixes its output over the whole context with that of its window. Weights stay as they
are. The loss is the squared difference of the last hidden states from those of the model as it is, at the tokens of answers and
relative to their size, plus a small penalty on gates: those that are not needed fall.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ...models.adapter import Adapter, device_of
from ...models.adapter.hooks import attention_function
from ...models.adapter.windows import visible
from ...tasks.retrieval import Context

PENALTY = 0.05
"""Weight of the mean gate beside the relative squared difference of hidden states."""
RATE = 0.05
"""Step size of Adam."""


def trained_gates(subject: Any, steps: int) -> Mapping[str, NDArray[Any]]:
    """Gates (layer, key head) after training, and the loss of every step."""
    adapter, settings = subject.adapter, subject.settings
    examples = [_example(context) for context in subject.needles]
    gates = nn.Parameter(torch.ones(len(adapter.layers), subject.key_heads))
    optimiser, losses = torch.optim.Adam([gates], lr=RATE), []
    model: Any = adapter.model
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        with torch.no_grad():
            wanted = [_last_states(model, ids, rows) for ids, rows in examples]
        with mixed(adapter, gates, settings.sinks, settings.window):
            for step in range(steps):
                (ids, rows), target = examples[step % len(examples)], wanted[step % len(examples)]
                difference = _last_states(model, ids, rows) - target
                distance = difference.square().sum(-1).mean() / target.square().sum(-1).mean()
                optimiser.zero_grad()
                (distance + PENALTY * gates.abs().mean()).backward()
                optimiser.step()
                gates.data.clamp_(0, 1)
                losses.append(float(distance.detach()))
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)
    return {"gates": gates.detach().double().cpu().numpy(), "losses": np.array(losses)}


def _example(context: Context) -> tuple[Tensor, Tensor]:
    """The context with all questions and answers after it, and the positions at which tokens of answers are predicted."""
    ids, rows = list(context.ids), list[int]()
    for question in context.questions:
        ids += question.ids
        rows += range(len(ids) - question.answer - 1, len(ids) - 1)
    return torch.tensor([ids]), torch.tensor(rows)


def _last_states(model: Any, ids: Tensor, rows: Tensor) -> Tensor:
    """Hidden states of the last layer, after its norm, at some positions."""
    states: Tensor = model.base_model(input_ids=ids.to(device_of(model)), use_cache=False).last_hidden_state
    return states[0, rows.to(states.device)]


@contextmanager
def mixed(adapter: Adapter, gates: Tensor, sinks: int, window: int) -> Iterator[None]:
    """Within it, every key head's output is its gate times that of the whole context, plus the rest of its window's."""
    model: Any = adapter.model
    if model.config._attn_implementation != "sdpa":
        raise ValueError("gates need a model whose attention is PyTorch's own function (sdpa)")
    rows = {module: row for row, module in enumerate(adapter.modules)}

    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *_: Any, **options: Any
    ) -> tuple[Tensor, None]:
        if options.get("softcap") is not None or options.get("s_aux") is not None:
            raise ValueError("gates know neither soft-capped logits nor learned sinks")
        places = torch.arange(key.shape[-2], device=key.device)
        causal = (places <= places[:, None])[None, None] if mask is None else mask
        near = visible(places, places, sinks, window)
        less = causal & near if causal.dtype == torch.bool else causal.masked_fill(~near, torch.finfo(causal.dtype).min)
        whole, part = (
            F.scaled_dot_product_attention(query, key, value, seen, scale=options.get("scaling"), enable_gqa=True)
            for seen in (causal, less)
        )
        gate = gates[rows[module]].repeat_interleave(query.shape[1] // key.shape[1])[:, None, None].to(whole.dtype)
        return (gate * whole + (1 - gate) * part).transpose(1, 2).contiguous(), None

    with attention_function("sdpa", attend):
        yield
