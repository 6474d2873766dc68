"""One call of attention, recorded as a `transformers` model makes it, and the error for models that cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from .single import HALVES

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Largest error of logits (relative to their size from 1 up) and of attention weights that counts as rounding."""
ROUNDED = 1e-5
"""The same for layers that compute in single precision whatever the model's own precision."""

LINEAR = 1e-6
"""Largest deviation of a bias from a multiple of the distance, relative to the largest bias: slopes are in single precision."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of a module's call."""


Own = Callable[[int, slice, torch.dtype | None], tuple[Tensor, Tensor | None]]
"""Maps a query's position, rows of the batch and a precision (None: its own) to the layer's own output (B, H, values) and,
where it returns them, its weights (B, H, T). Where attention cannot be computed again it comes in its own precision."""


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
    bias: Tensor | None = None
    """What is added to the logits of each key (B, H, T), beside the mask."""
    single: bool = False
    """Whether a half-precision layer made this call in single precision."""
    find_tables: Callable[[Arguments], dict[str, Tensor]] | None = None
    """Maps the arguments of a call to the rotations that it may have used."""
    own: Own = field(kw_only=True)

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
    def alibi(self) -> Tensor | None:
        """The slope of each head's bias by distance (H), if it has one; refuses a bias that is no multiple of the distance."""
        if self.bias is None:
            return None
        bias, steps = self.bias.double(), self.bias.shape[-1] - 1
        slopes = (bias[0, :, -1] - bias[0, :, 0]) / max(1, steps)
        line = bias[0, :, :1] + slopes[:, None] * torch.arange(steps + 1, device=bias.device)
        if not (bias - line).abs().max() <= LINEAR * bias.abs().max().clamp(min=1e-30):
            raise RefusedError("the bias that it adds to its logits is no multiple of the distance between tokens")
        return slopes

    @property
    def half(self) -> bool:
        """Whether queries and keys are in half precision."""
        return self.query.dtype in HALVES

    def one(self, row: int, tokens: int) -> AttentionCall:
        """The call as it would be for the first tokens of one input of the batch."""
        rows = slice(row, row + 1)
        mask = self.mask
        if mask is not None:
            mask = (mask[rows] if mask.shape[0] > 1 else mask)[..., :tokens, :tokens]
        return replace(
            self,
            query=self.query[rows, :, :tokens],
            key=self.key[rows, :, :tokens],
            value=self.value[rows, :, :tokens],
            mask=mask,
            bias=None if self.bias is None else self.bias[rows, :, :tokens],
            tables={name: table[:tokens] for name, table in self.tables.items()},
            own=lambda at, _, dtype: self.own(at, rows, dtype),
        )

    def extent(self, first: int = 0) -> tuple[int | None, int | None]:
        """Window and chunk of the layer (None without), as its queries from `first` on see them.

        Refuses later keys, and earlier ones that are not one contiguous run up to the query.
        """
        if self.mask is None:
            if not getattr(self.module, "is_causal", self.options.get("is_causal", True)):
                raise RefusedError("it attends to later tokens too: only causal models can be read")
            return None, None
        tokens = self.key.shape[-2]
        seen = self._seen(self.mask[..., :tokens]).reshape(-1, *self.mask.shape[-2:-1], tokens)
        counts = seen[0].sum(-1)
        places = torch.arange(tokens, device=seen.device)
        rows, starts = places[first:, None], (places + 1 - counts)[first:, None]
        if not (seen[:, first:] == ((places <= rows) & (places >= starts))).all():
            raise RefusedError("a query sees some earlier keys and not others (sparse attention), so there is no one M of it")
        every = places + 1 - counts  # the first key of each query, whichever are asked for
        if not (every > 0).any():
            return None, None
        window, chunk = int(counts.max()), int(every[every > 0].min())
        if (every == (places + 1 - window).clamp(min=0)).all():
            return window, None
        if (every == places // chunk * chunk).all():
            return None, chunk
        raise RefusedError("its queries see neither a window nor a chunk of earlier keys")

    def _seen(self, mask: Tensor) -> Tensor:
        """True for keys that are seen."""
        if mask.dtype == torch.bool:
            return mask
        if not ((mask == 0) | (mask < -1e4)).all():
            raise RefusedError("it adds a bias to its logits that is not understood")
        return mask == 0
