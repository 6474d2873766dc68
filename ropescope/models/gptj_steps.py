"""GPT-J step by step: attention weights that can be read and replaced, and a long prefix computed once for many sequences.

`run` computes what `GPTJ.forward` does, with explicit attention weights. Use the model itself where you need none of this: it
is faster, and its memory does not grow with the square of the length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from .gptj import GPTJ, Block

OnWeights = Callable[[int, Tensor], Tensor | None]
"""Called with a layer's number and its attention weights (B, H, t, T); returns those to use instead, or None to keep them."""
OnState = Callable[[int, Tensor], None]
"""Called with the number of layers passed, from 0 on, and the residual stream at that point (B, t, width)."""


@dataclass(frozen=True)
class Front:
    """Cached keys and values of a prefix, one entry per layer: all that later positions can see of it."""

    keys: tuple[Float[Tensor, "H T d"], ...]
    values: tuple[Float[Tensor, "H T d"], ...]

    @property
    def length(self) -> int:
        """The number of tokens."""
        return self.keys[0].shape[1]


@torch.inference_mode()
def read_front(
    model: GPTJ, ids: Int[Tensor, " T"], window: int | None = None, positions: Int[Tensor, " T"] | None = None
) -> Front:
    """The keys and values of a prefix, from one pass whose memory is linear in its length.

    With a `window` the tokens pass in pieces of that many, each as if it were the whole input, so every token has the state
    that it would have in a short input. `positions` are those of the keys for later queries, consecutive unless given.
    """
    pieces = F.pad(ids, (0, -len(ids) % window)).view(-1, window) if window else ids[None]
    places = torch.arange(len(ids)) if positions is None else positions
    own = torch.arange(pieces.shape[1])
    keys, values = [], []
    x = model.embedding(pieces)
    for block in _blocks(model):
        # The padding of the last piece follows all tokens, so none of them sees it.
        key, value = (part.transpose(0, 1).flatten(1, 2)[:, : len(ids)] for part in block.project(block.norm(x), own)[1:])
        keys.append(block.rope.rotate(key, places))
        values.append(value)
        x = block(x)
    return Front(tuple(keys), tuple(values))


@torch.inference_mode()
def run(
    model: GPTJ,
    ids: Int[Tensor, "B t"],
    front: Front | None = None,
    on_weights: OnWeights | None = None,
    on_state: OnState | None = None,
) -> Float[Tensor, "B vocabulary"]:
    """Logits at the last position of every sequence, each after the same prefix `front`."""
    seen = 0 if front is None else front.length
    positions = seen + torch.arange(ids.shape[1])
    later = torch.arange(seen + ids.shape[1]) > positions[:, None]
    x = model.embedding(ids)
    for number, block in enumerate(_blocks(model)):
        if on_state is not None:
            on_state(number, x)
        normed = block.norm(x)
        query, key, value = block.project(normed, positions)
        query = block.rope.rotate(query, positions) * block.rope.head_dim**-0.5
        logits = query @ block.rope.rotate(key, positions).mT
        if front is not None:
            logits = torch.cat((query @ front.keys[number].mT, logits), -1)
        weights = logits.masked_fill_(later, -torch.inf).softmax(-1)
        if on_weights is not None:
            changed = on_weights(number, weights)
            weights = weights if changed is None else changed
        attended = weights[..., seen:] @ value
        if front is not None:
            attended += weights[..., :seen] @ front.values[number]
        x = x + block.out(attended.transpose(1, 2).flatten(-2)) + block.mlp(normed)
    if on_state is not None:
        on_state(len(model.blocks), x)
    return read_out(model, x[:, -1])


@torch.inference_mode()
def read_out(model: GPTJ, state: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]:
    """The logits of a final residual `state`."""
    logits: Tensor = model.readout(model.norm(state))
    return logits


def _blocks(model: GPTJ) -> list[Block]:
    return [block for block in model.blocks if isinstance(block, Block)]
