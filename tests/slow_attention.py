"""Attention head by head and query by query, and changed heads of tiny models beside it."""

import math
import sys
from itertools import pairwise

import torch

TOKENS, SINKS, WINDOW, LENGTH = 20, 2, 3, 5
FAMILIES = ["llama", "gpt_neox", "mistral", "gemma2", "gemma3_text", "gpt_oss"]
"""Grouped queries, every head its own keys, sliding layers, soft-cap, two bases, sinks of its own."""
STEPS = [(12, 13, 14, 15, 16, 17, 18, 19, 20), (7, 12, 20)]
"""Where inputs are cut that are read with a cache: one token at a time, or several."""

Heads = frozenset[tuple[int, int]] | set[tuple[int, int]]


def ids(batch: int = 2, tokens: int = TOKENS) -> torch.Tensor:
    return torch.randint(4, 60, (batch, tokens), generator=torch.Generator().manual_seed(3))


def limit(family: str) -> float:
    """Rounding: families that take the softmax in single precision, and others."""
    return 1e-5 if family.startswith(("gemma", "gpt_oss", "gptj")) else 1e-9


def plain_attention(windowed: Heads, sharper: Heads = frozenset()):
    """Attention over a list of keys, with what families add to it; windowed key heads (layer, head), sharper query heads."""

    def attend(module, query, key, value, attention_mask, scaling, dropout=0.0, softcap=None, s_aux=None, **_):
        batch, heads, tokens, _ = query.shape
        output = value.new_zeros(batch, tokens, heads, value.shape[-1])
        shared = heads // key.shape[1]
        for b, h, t in torch.cartesian_prod(*map(torch.arange, (batch, heads, tokens))).tolist():
            keys = [p for p in range(t + 1) if attention_mask is None or attention_mask[-1, 0, t, p] == 0]
            if (module.layer_idx, h // shared) in windowed:
                keys = [p for p in keys if p < SINKS or p > t - WINDOW]
            factor = max(1.0, math.log(len(keys)) / math.log(LENGTH)) if (module.layer_idx, h) in sharper else 1.0
            logits = [factor * float(query[b, h, t] @ key[b, h // shared, p]) * scaling for p in keys]
            if softcap is not None:
                logits = [softcap * math.tanh(logit / softcap) for logit in logits]
            weights = [math.exp(logit) for logit in logits]
            total = sum(weights) + (0 if s_aux is None else math.exp(s_aux[h]))
            for p, weight in zip(keys, weights, strict=True):
                output[b, t, h] += weight / total * value[b, h // shared, p]
        return output, None

    return attend


def by_oracle(adapter, monkeypatch, windowed: Heads, sharper: Heads = frozenset()) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of the model by plain attention, and its own."""
    model = adapter.model
    module = sys.modules[type(adapter.modules[0]).__module__]
    with torch.no_grad():
        unchanged = model(input_ids=ids(), use_cache=False).logits
        model.set_attn_implementation("eager")
        monkeypatch.setattr(module, "eager_attention_forward", plain_attention(windowed, sharper))
        return model(input_ids=ids(), use_cache=False).logits, unchanged


def step_by_step(adapter, cache, steps: tuple[int, ...]) -> torch.Tensor:
    """Logits of inputs that are read in pieces, with a cache."""
    pieces = [ids()[:, start:stop] for start, stop in pairwise((0, *steps))]
    return torch.cat([adapter.model(input_ids=piece, past_key_values=cache).logits for piece in pieces], 1)
