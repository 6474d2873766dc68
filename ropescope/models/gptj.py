"""A small GPT-J: attention and MLP side by side after one layer norm, rotary positions, untied read-out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ..heads import Heads
from ..rope import Rope

OnHeads = Callable[[int, Heads], None]
"""Called by a forward pass with each layer's number and what it hands over."""


@dataclass(frozen=True)
class GPTJConfig:
    """Sizes of a model; the defaults are those of the number and letter tasks."""

    vocab_size: int
    layers: int = 12
    heads: int = 1
    width: int = 128
    mlp_width: int = 512
    rope: Rope | None = None
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        if self.rope is None:
            object.__setattr__(self, "rope", Rope(self.width // self.heads, pairing="interleaved"))


class Block(nn.Module):
    """One layer."""

    def __init__(self, config: GPTJConfig) -> None:
        super().__init__()
        assert config.rope is not None
        self.rope, self.heads, self.dropout = config.rope, config.heads, config.dropout
        self.norm = nn.LayerNorm(config.width)
        self.query, self.key, self.value, self.out = (nn.Linear(config.width, config.width, bias=False) for _ in range(4))
        self.expand, self.contract = nn.Linear(config.width, config.mlp_width), nn.Linear(config.mlp_width, config.width)

    def forward(
        self, x: Float[Tensor, "B T width"], number: int = 0, on_heads: OnHeads | None = None
    ) -> Float[Tensor, "B T width"]:
        normed = self.norm(x)
        queries, keys, values = (
            project(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2) for project in (self.query, self.key, self.value)
        )
        if on_heads is not None:
            on_heads(number, Heads(queries, keys, self.rope, scale=1 / math.sqrt(self.rope.head_dim)))
        positions = torch.arange(x.shape[1], device=x.device)
        dropout = self.dropout if self.training else 0.0
        attended = F.scaled_dot_product_attention(
            self.rope.rotate(queries, positions), self.rope.rotate(keys, positions), values, dropout_p=dropout, is_causal=True
        )
        attention = self.out(attended.transpose(1, 2).flatten(-2))
        mlp = self.contract(F.gelu(self.expand(normed), approximate="tanh"))
        return x + F.dropout(attention, dropout) + F.dropout(mlp, dropout)


class GPTJ(nn.Module):
    """>>> model = GPTJ(GPTJConfig(vocab_size=136))
    >>> logits = model(ids)                                                        # (B, T, vocabulary)
    >>> model(ids, on_heads=lambda layer, heads: print(layer, swap_scores(layer_logits(heads))))
    """

    def __init__(self, config: GPTJConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.readout = nn.Linear(config.width, config.vocab_size)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, ids: Int[Tensor, "B T"], on_heads: OnHeads | None = None) -> Float[Tensor, "B T vocabulary"]:
        x = F.dropout(self.embedding(ids), self.config.dropout, self.training)
        for number, block in enumerate(self.blocks):
            x = block(x, number, on_heads)
        logits: Tensor = self.readout(self.norm(x))
        return logits
