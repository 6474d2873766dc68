"""One call of attention, recorded as a `transformers` model makes it, and the error for models that cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Largest error of logits (relative to their size from 1 up) and of attention weights that counts as rounding."""
ROUNDED = 1e-5
"""The same for layers that compute in single precision whatever the model's own precision."""
HALF = 1e-3
"""The same for attention weights of models in half precision. Few stay within it; their users are told to load in float32."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of a module's call."""


class RefusedError(ValueError):
    """Raised for a model, or a layer of it, that the adapter cannot verify: its scores could be wrong. One sentence says why.

    >>> import ropescope as rs
    >>> from transformers import BertConfig, BertForMaskedLM
    >>> sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
    >>> try:
    ...     rs.Adapter(BertForMaskedLM(BertConfig(**sizes)))
    ... except rs.RefusedError as error:
    ...     print(error)
    bert, as BertForMaskedLM, does not predict next tokens: load it for causal language modelling
    """


@dataclass
class AttentionCall:
    """One call of attention as the model made it. Queries and keys are rotated; mask and scale are in the options."""

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    options: dict[str, Any]
    arguments: Arguments = ((), {})
    tables: dict[str, Tensor] = field(default_factory=dict)
    stopped: tuple[int, ...] = ()
    """Planes whose rotation an intervention has stopped: their vectors are as at position 0."""
    own: Callable[[int], tuple[Tensor, Tensor | None]] = field(kw_only=True)
    """Maps a query's position to the layer's own output (B, H, values) and, where it returns them, its weights (B, H, T)."""

    @property
    def scale(self) -> float:
        """The factor of logits."""
        given = self.options.get("scaling")
        return float(self.query.shape[-1] ** -0.5 if given is None else given)

    @property
    def soft_cap(self) -> float | None:
        """The bound of logits, if there is one."""
        given = self.options.get("softcap")
        return None if given is None else float(given)

    @property
    def sinks(self) -> Tensor | None:
        """The logit of each head's attention sink, if it has one."""
        sinks = self.options.get("s_aux")
        return None if sinks is None else sinks.flatten()

    @property
    def weight_limit(self) -> float:
        """Largest error of attention weights that counts as rounding."""
        # Most families compute their softmax in single precision whatever the model's own.
        return max(ROUNDED, TOLERANCE[self.query.dtype]) if self.query.dtype in TOLERANCE else HALF

    @property
    def advice(self) -> str:
        """What to do about errors that come from half precision; empty in other precisions."""
        dtype = self.query.dtype
        name = str(dtype).removeprefix("torch.")
        return "" if dtype in TOLERANCE else f"; it runs in {name}: load it with dtype=torch.float32"

    def visible(self, at: int) -> int:
        """How many keys the query at position `at` sees, itself included. Refuses keys that are not one contiguous run."""
        tokens = self.key.shape[-2]
        if self.mask is None:
            if not getattr(self.module, "is_causal", self.options.get("is_causal", True)):
                raise RefusedError("it attends to later tokens too: only causal models can be read")
            return at + 1
        row = self.mask[..., at, :tokens]
        if self.mask.dtype == torch.bool:
            seen = row
        else:
            seen = row == 0
            if not (seen | (row < -1e4)).all():
                raise RefusedError("it adds a bias to its logits that is not understood")
        flat = seen.reshape(-1, tokens)
        count = int(flat[0].sum())
        expected = torch.arange(tokens, device=row.device)
        if not (flat == ((expected <= at) & (expected > at - count))).all():
            raise RefusedError("a query sees some earlier keys and not others (sparse attention), so there is no one M of it")
        return count
