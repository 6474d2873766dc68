"""A cache of `transformers` that holds less for windowed heads: the first and the last positions instead of all.

Keys are stored after rotation, so that what is forgotten changes nothing for the rest. A layer has parts, each with its own
length: keys and values of heads that see everything, and of windowed heads. While a layer attends, its keys stand once at their
positions (the usual cache copies a layer at every step, too), and the mask of `intervene` hides the empty places. Between
layers and steps only the parts are in memory.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from .adapter import Adapter
from .calls import RefusedError
from .edits import Changes, windows_in_force
from .windows import HeadWindow

Pair = tuple[Tensor, Tensor]
"""Keys and values, each (B, heads, tokens, d)."""


class _Part:
    """Keys and values of some heads, of the first `sinks` and the last `window` - 1 positions; of all if `window` is None."""

    def __init__(self, heads: Sequence[int], sinks: int, window: int | None) -> None:
        self.heads, self.sinks, self.window = list(heads), sinks, window
        self.first: Pair | None = None
        self.last: Pair | None = None

    def stored(self) -> list[Tensor]:
        return [tensor for pair in (self.first, self.last) if pair is not None for tensor in pair]

    def place(self, whole: Pair, offset: int, total: int) -> None:
        """Copy what is stored to its positions in `whole`, whose first position is `offset`; `total` tokens are stored."""
        for pair, start in ((self.first, 0), (self.last, total - self._length())):
            for target, source in zip(whole, pair or (), strict=False):
                skipped = max(0, offset - start)
                if skipped < source.shape[-2]:
                    target[:, self.heads, start + skipped - offset : start + source.shape[-2] - offset] = source[:, :, skipped:]

    def keep(self, new: Pair, total: int) -> None:
        """Add keys and values of new tokens, which follow `total` others, and forget what no later query sees."""
        own = [states[:, self.heads] for states in new]
        room = max(0, min(self.sinks - total, own[0].shape[-2]))
        if room:
            self.first = _joined(self.first, [states[:, :, :room] for states in own])
        joined = _joined(self.last, [states[:, :, room:] for states in own])
        count = joined[0].shape[-2]
        kept = count if self.window is None else min(count, self.window - 1)
        # A copy: a slice would hold the memory of all of it.
        self.last = (
            joined if kept == count else (joined[0][:, :, count - kept :].clone(), joined[1][:, :, count - kept :].clone())
        )

    def change(self, function: Callable[[Tensor], Tensor]) -> None:
        self.first, self.last = (
            None if pair is None else (function(pair[0]), function(pair[1])) for pair in (self.first, self.last)
        )

    def _length(self) -> int:
        return 0 if self.last is None else self.last[0].shape[-2]


def _joined(old: Pair | None, new: Sequence[Tensor]) -> Pair:
    if old is None:
        return new[0].clone(), new[1].clone()
    return torch.cat((old[0], new[0]), -2), torch.cat((old[1], new[1]), -2)


class WindowedLayer(CacheLayerMixin):
    """The cache of one layer. `sliding` is the window of the layer itself, if it has one."""

    is_croppable = False

    def __init__(
        self, windows: Sequence[HeadWindow], key_heads: int, sliding: int | None, in_force: Callable[[], bool]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_sliding, self.sliding_window, self.in_force = sliding is not None, sliding, in_force
        seen = {window.head for window in windows}
        parts = [_Part([head for head in range(key_heads) if head not in seen], 0, sliding)]
        for sinks, window in sorted({(window.sinks, window.window) for window in windows}):
            heads = [each.head for each in windows if (each.sinks, each.window) == (sinks, window)]
            parts.append(_Part(heads, sinks, window if sliding is None else min(window, sliding)))
        self.parts = [part for part in parts if part.heads]
        self.cumulative_length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing is allocated before the first tokens come."""
        self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Pair:
        """Keys and values of all positions that the layer's mask has, empty where windowed heads have forgotten theirs."""
        if not self.in_force():
            raise RefusedError("a windowed cache needs the windows in force: call the model within `intervene`")
        if not key_states.shape[1] == value_states.shape[1] == sum(len(part.heads) for part in self.parts):
            raise RefusedError(
                "the layer caches what all heads share (a latent), so that no head can have less: use a mask alone"
            )
        self.lazy_initialization(key_states, value_states)
        new, total = key_states.shape[-2], self.cumulative_length
        length, offset = self.get_mask_sizes(new)
        whole = tuple(states.new_zeros((*states.shape[:2], length, states.shape[-1])) for states in (key_states, value_states))
        for part in self.parts:
            part.place((whole[0], whole[1]), offset, total)
            part.keep((key_states, value_states), total)
        for states, given in zip(whole, (key_states, value_states), strict=True):
            states[:, :, length - new :] = given
        self.cumulative_length += new
        return whole[0], whole[1]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Number of keys that `update` returns, and the position of the first."""
        end = self.cumulative_length + query_length
        length = end if self.sliding_window is None else min(end, self.sliding_window - 1 + query_length)
        return length, end - length

    def get_seq_length(self) -> int:
        """Tokens that have passed."""
        return self.cumulative_length

    def get_max_length(self) -> int:
        """No limit."""
        return -1

    def reset(self) -> None:
        """Forget everything."""
        for part in self.parts:
            part.first = part.last = None
        self.cumulative_length, self.is_initialized = 0, False

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Take these rows of the batch."""
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Take these rows of the batch."""
        for part in self.parts:
            part.change(lambda x: x[indices.to(x.device)])

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row of the batch."""
        for part in self.parts:
            part.change(lambda x: x.repeat_interleave(repeats, 0))

    def offload(self) -> None:
        """Move everything to the CPU."""
        for part in self.parts:
            part.change(lambda x: x.to("cpu", non_blocking=True))

    def prefetch(self) -> None:
        """Move everything back."""
        for part in self.parts:
            part.change(lambda x: x.to(self.device, non_blocking=True))

    def stored(self) -> list[Tensor]:
        """All tensors that are held between steps."""
        return [tensor for part in self.parts for tensor in part.stored()]


class WindowedCache(Cache):
    """A cache for `generate` or a call of the model that holds less for windowed heads. Logits are those of masking.

    adapter  to the model
    changes  the changes that `intervene` gets, from `window_heads`; the cache works only within them

    Raises ValueError if a layer is neither ordinary nor sliding attention, and RefusedError when used without the windows.

    >>> import torch, ropescope as rs
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
    >>> adapter = rs.Adapter(LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=2)))
    >>> changes = rs.window_heads([(0, 0), (0, 1), (1, 0)], sinks=2, window=8)
    >>> cache, ids = rs.WindowedCache(adapter, changes), torch.randint(1, 64, (1, 100))
    >>> with rs.intervene(adapter, changes):
    ...     written = adapter.model.generate(ids, max_new_tokens=4, min_new_tokens=4, do_sample=False, past_key_values=cache)
    >>> rs.cache_bytes(cache)  # 8 numbers of 4 bytes for keys and values: one head of 103 tokens, three of 9
    8320
    """

    def __init__(self, adapter: Adapter, changes: Changes) -> None:
        model: Any = adapter.model
        layers: list[Any] = list(DynamicCache(config=model.config).layers)
        counts = dict(zip(adapter.layers, adapter.key_heads, strict=True))
        modules = dict(zip(adapter.layers, adapter.modules, strict=True))
        for number, change in changes.items():
            if not change.windows:
                continue
            known = type(layers[number]) if number < len(layers) else None
            if known not in (DynamicLayer, DynamicSlidingWindowLayer):
                raise ValueError(f"layer {number} of {adapter.family} has a cache of its own kind, which cannot be windowed")
            sliding = layers[number].sliding_window if known is DynamicSlidingWindowLayer else None

            in_force = partial(_in_force, modules[number], change.windows)
            layers[number] = WindowedLayer(change.windows, counts[number], sliding, in_force)
        super().__init__(layers=layers)


def _in_force(module: nn.Module, windows: tuple[HeadWindow, ...]) -> bool:
    return windows_in_force(module) == windows


def own_windows(adapter: Adapter) -> dict[int, int]:
    """Windows of the sliding layers of a model, by the number of the layer, as its cache has them."""
    model: Any = adapter.model
    layers: list[Any] = DynamicCache(config=model.config).layers
    sizes = {number: getattr(layer, "sliding_window", None) for number, layer in enumerate(layers)}
    return {number: int(size) for number in adapter.layers if (size := sizes.get(number)) is not None}


def copied_cache(cache: DynamicCache) -> DynamicCache:
    """A cache that can be continued without changing the one given: layers replace their tensors and do not fill them."""
    twin = copy.copy(cache)
    twin.layers = [copy.copy(layer) for layer in cache.layers]
    return twin


def cache_bytes(cache: Cache) -> int:
    """Bytes of memory that a cache holds between steps, of whole storages: a slice counts with all that it keeps alive.

    cache  any cache of `transformers`; raises no errors for layers that hold nothing yet

    >>> import ropescope as rs
    >>> from transformers import DynamicCache
    >>> rs.cache_bytes(DynamicCache())
    0
    """
    storages: dict[int, int] = {}
    layers: list[Any] = cache.layers
    for layer in layers:
        held = layer.stored() if isinstance(layer, WindowedLayer) else (layer.keys, layer.values)
        for tensor in held:
            if isinstance(tensor, Tensor) and tensor.numel():
                storage = tensor.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())
