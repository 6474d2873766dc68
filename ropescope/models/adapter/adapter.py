"""The adapter to any rotary or ALiBi model of `transformers`: content queries and keys of every layer, or the reason why not.

Queries and keys are read where the model passes them to attention, already rotated. To un-rotate them, each layer is first
checked on a few tokens, with its own weights and code:

1. *Which rotation?* All positions get the same hidden state. Keys then differ by the rotation alone, and of all ways to pair
   dimensions into planes, the right one turns them all back into one and the same key.
2. *Is `M` correct?* Hidden states change places, the layer itself computes its logits again, and they must be those that `M`
   predicts.

A layer that fails is refused: its keys are not the rotated contents of single tokens, and its scores would mean nothing. The
rotation itself is taken from the cosines and sines that the layer used, so scaled, partial and length-dependent variants need
no code of their own. On every input the diagonal of `M` is then compared with the model's own attention weights.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...heads import Heads
from ...inputs import whole, whole_tensor
from ...logits import LogitFactors, layer_factors
from ...rope import Rope
from ..gptj import GPTJ
from ..load import run_experts_in_double
from .calls import AttentionCall, RefusedError
from .check import check_layer, read_call
from .hooks import observing, without_edits
from .rotation import Layout
from .wrapped import device_of, uncompiled, unwrapped

TRIAL_TOKENS = 14


@dataclass(frozen=True)
class LayerRead:
    """What one attention layer computed on one batch of inputs."""

    layer: int
    heads: Heads
    factors: LogitFactors
    """`M` of all heads at the query that was asked for."""
    error: float
    """Largest difference between the attention weights that follow from `M` and the model's own."""
    limit: float = 0.0
    """The difference that rounding explains there. In half precision every key has a bound of its own."""


OnLayer = Callable[[LayerRead], None]
OnEachLayer = Callable[[int, LayerRead], None]
"""Called with the number of an input and one of its layers."""


class Adapter:
    """Reads the attention layers of a causal `transformers` model, after it has checked that it can.

    `layers` are the numbers of its attention layers (recurrent and convolutional ones have no heads to measure), `rounded` of
    those that compute in single precision whatever the model's own, `errors` how far each was from what `M` predicts, `ropes`
    the rotation of each on the trial input, `heads` and `key_heads` the number of query and key heads of each.

    The check takes a few passes over 14 tokens: keep the adapter if you need it more than once. `read` calls back with each
    attention layer: its number (`layer`), its `heads`, `factors`, which are `M` at the query, `error`, the difference between
    the attention that follows from `M` and the model's own, and `limit`, the difference that rounding explains. `read_each`
    does the same for inputs of unequal length in one pass.

    Models may be in half precision, quantised, compiled, wrapped by PEFT, or offloaded by `accelerate`. A half-precision layer
    is checked in float32 as well, on the same hidden states, so that rounding does not hide a wrong rotation.

    Raises RefusedError, in one sentence, if a layer's keys are not the rotated contents of single tokens.

    >>> import torch, ropescope as rs
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
    >>> adapter = rs.Adapter(LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=2)))
    >>> adapter.layers, adapter.heads, adapter.ropes[0].pairing
    ([0, 1], [4, 4], 'half')
    >>> ids = torch.randint(64, (1, 12))
    >>> logits = adapter.read(ids, lambda read: print(read.layer, rs.swap_scores(read.factors.matrix()).symbolic.shape))
    0 torch.Size([1, 4])
    1 torch.Size([1, 4])
    >>> logits.shape  # of the last position
    torch.Size([1, 64])
    """

    def __init__(self, model: nn.Module) -> None:
        model = unwrapped(model)
        self.model = model
        self.family = str(getattr(getattr(model, "config", None), "model_type", type(model).__name__))
        self.modules: list[nn.Module] = []  # in the order in which they attend; one may do so several times
        self.layouts: list[Layout] = []
        self.layers: list[int] = []
        self.rounded: set[int] = set()
        self.errors: list[float] = []
        self.ropes: list[Rope] = []
        self.heads: list[int] = []
        self.key_heads: list[int] = []
        _check_type(model, self.family)
        run_experts_in_double(model)
        with _evaluating(model), without_edits():
            self._check_layers()

    @torch.inference_mode()
    def read(
        self, ids: Int[Tensor, "B T"], on_layer: OnLayer, query_position: int | None = None, queries: int | None = None
    ) -> Float[Tensor, "B V"]:
        """The logits of the last position, from one forward pass that calls `on_layer` with each attention layer in turn.

        Layers come with their last `queries` queries, all unless given. Inputs have no padding. Weights are checked at
        `query_position`, the last unless given; a layer whose weights do not follow from its `M` stops the run.
        """
        require_ids(ids)
        at = ids.shape[1] - 1 if query_position is None else whole("query_position", query_position)
        if not 0 <= at < ids.shape[1]:
            raise ValueError(f"query_position must be from 0 to {ids.shape[1] - 1}, not {at}")
        first = 0 if queries is None else max(0, min(at, ids.shape[1] - queries))
        return self._pass(ids, None, lambda number, call, layout: on_layer(_read(number, call, layout, at, first)))

    @torch.inference_mode()
    def read_each(
        self, inputs: Sequence[Int[Tensor, " T"]], on_layer: OnEachLayer, queries: int | None = None
    ) -> Float[Tensor, "B V"]:
        """The logits of the last position of every input, from one forward pass over all of them.

        inputs    token ids, of any lengths. Shorter ones are padded at their end, where no query of theirs sees it.
        on_layer  called with the number of an input and its read layer, for every layer and input in turn
        queries   layers come with their last queries, all unless given

        Where the rotation depends on the length of the input (dynamic NTK, LongRoPE), every length has its own pass.
        """
        lengths = [len(ids) for ids in inputs]
        if len(set(lengths)) > 1 and _depends_on_length(self.model):
            logits: list[Tensor] = [torch.empty(0)] * len(inputs)
            for length in sorted(set(lengths)):
                group = [number for number, found in enumerate(lengths) if found == length]
                found = self.read_each([inputs[n] for n in group], lambda n, read, g=group: on_layer(g[n], read), queries)  # type: ignore[misc]
                for number, row in zip(group, found, strict=True):
                    logits[number] = row
            return torch.stack(logits)
        ids = nn.utils.rnn.pad_sequence(list(inputs), batch_first=True)

        def on_call(number: int, call: AttentionCall, layout: Layout) -> None:
            for row, length in enumerate(lengths):
                first = 0 if queries is None else max(0, length - queries)
                on_layer(row, _read(number, call.one(row, length), layout, length - 1, first))

        return self._pass(ids, torch.tensor(lengths, device=ids.device), on_call)

    def _pass(
        self, ids: Int[Tensor, "B T"], lengths: Int[Tensor, " B"] | None, on_call: Callable[[int, AttentionCall, Layout], None]
    ) -> Float[Tensor, "B V"]:
        """The logits of the last position, from one forward pass that calls `on_call` with each call of attention."""
        passed = 0

        def observed(call: AttentionCall) -> None:
            nonlocal passed
            if passed >= len(self.modules) or call.module is not self.modules[passed]:
                raise RefusedError(f"{self.family}: on this input other layers attend than on the trial input")
            number, layout = self.layers[passed], self.layouts[passed]
            passed += 1
            try:
                on_call(number, call, layout)
            except RefusedError as refused:
                raise RefusedError(f"{self.family}: layer {number}: on this input {refused}") from None

        with _evaluating(self.model), observing(self.model, observed, set(self.modules)):
            return _forward(self.model, ids, lengths)

    def _check_layers(self) -> None:
        ids = _trial_ids(self.model)
        with observing(self.model, lambda call: self.modules.append(call.module), set()), torch.inference_mode():
            _forward(self.model, ids)
        if not self.modules:
            raise RefusedError(f"{self.family}: its attention cannot be read, as it does not go through an interface we know")
        own = [int(number) for module in self.modules if (number := getattr(module, "layer_idx", None)) is not None]
        count = len(self.modules)
        self.layers = own if len(own) == count and sorted(set(own)) == own else list(range(count))
        reasons: dict[int, str] = {}

        def on_call(call: AttentionCall) -> None:
            number = self.layers[len(self.layouts)]
            try:
                layout, error, rounded = check_layer(call)
            except RefusedError as refused:
                # A norm after the rotation, for one, needs a table of rotations that is not rounded to half precision.
                reasons[number] = f"{refused}" + ("; loaded in float32 it may be readable" if call.half else "")
                layout = Layout(None)
            else:
                self.errors.append(error)
                if rounded:
                    self.rounded.add(number)
            self.layouts.append(layout)
            self.ropes.append(layout.contents(call)[2])
            self.heads.append(call.query.shape[1])
            self.key_heads.append(call.key.shape[1])

        with observing(self.model, on_call, set(self.modules)), torch.inference_mode():
            _forward(self.model, ids)
        if reasons:
            number, reason = min(reasons.items())
            more = f" (and {len(reasons) - 1} more of {count} layers)" if len(reasons) > 1 else ""
            raise RefusedError(f"{self.family}: layer {number}{more}: {reason}")


def _read(number: int, call: AttentionCall, layout: Layout, at: int, first: int) -> LayerRead:
    """What a layer computed; refuses one whose weights do not follow from its `M`."""
    read = LayerRead(number, *read_call(call, layout, at, first))
    if not read.error <= read.limit:
        raise RefusedError(
            f"attention that follows from M differs from the model's own by {read.error:.1e}, more than the "
            f"{read.limit:.1e} of rounding"
        )
    return read


def _depends_on_length(model: nn.Module) -> bool:
    """Whether the rotation depends on the length of the input, by the model's settings."""
    settings = json.dumps(getattr(model, "config", None).to_dict(), default=str)  # type: ignore[union-attr]
    return re.search(r'"(rope_)?type": "(dynamic|longrope|su|yarn_dynamic)"', settings) is not None


def read_each(
    model: Adapter | GPTJ, inputs: Sequence[Int[Tensor, " T"]], on_layer: OnEachLayer, queries: int | None = None
) -> Float[Tensor, "B V"]:
    """The logits of the last position of every input, as `Adapter.read_each`, for an adapter or one of our GPT-J."""
    if isinstance(model, Adapter):
        return model.read_each(inputs, on_layer, queries)
    rows = [read_layers(model, ids[None], partial(on_layer, number)) for number, ids in enumerate(inputs)]
    return torch.cat(rows)


def read_layers(
    model: nn.Module | Adapter, ids: Int[Tensor, "B T"], on_layer: OnLayer, queries: int | None = None
) -> Float[Tensor, "B V"]:
    """The logits of the last position, as `Adapter.read`, for an adapter, a `transformers` model or one of our GPT-J."""
    if isinstance(model, GPTJ):
        require_ids(ids)
        training = model.training
        with torch.inference_mode():
            logits: Tensor = model.eval()(
                ids, lambda n, heads: on_layer(LayerRead(n, heads, layer_factors(heads), 0.0)), last_only=True
            )[:, 0]
        model.train(training)
        return logits
    return (model if isinstance(model, Adapter) else Adapter(model)).read(ids, on_layer, queries=queries)


def require_ids(ids: Tensor) -> None:
    """Raise ValueError if token ids are not (input, token) whole numbers."""
    if whole_tensor("token ids", ids).ndim != 2 or not ids.numel():
        raise ValueError(f"token ids must be (input, token), not {tuple(ids.shape)}")


def _check_type(model: nn.Module, family: str) -> None:
    config = getattr(model, "config", None)
    if config is None or not hasattr(model, "set_attn_implementation"):
        raise RefusedError(f"{type(model).__name__} is neither a model of transformers nor one of ours")
    if getattr(config, "is_encoder_decoder", False):
        raise RefusedError(f"{family} is an encoder-decoder model: only causal (decoder-only) models can be read")
    if family == "falcon" and getattr(config, "alibi", False):
        raise RefusedError(
            "falcon with alibi rounds its bias by distance to bfloat16, whatever the model's precision: it is no multiple of "
            "the distance, so that no slope gives the model's own logits"
        )
    if not model.can_generate():  # type: ignore[operator]
        name = type(model).__name__
        raise RefusedError(f"{family}, as {name}, does not predict next tokens: load it for causal language modelling")


def _trial_ids(model: nn.Module) -> Int[Tensor, "1 T"]:
    vocabulary = int(model.get_input_embeddings().weight.shape[0])  # type: ignore[operator]
    generator = torch.Generator().manual_seed(0)
    low = min(4, vocabulary - 1)  # the first few are often special
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)  # type: ignore[union-attr, operator]
    tokens = min(TRIAL_TOKENS, positions) if isinstance(positions, int) and positions > 0 else TRIAL_TOKENS
    if tokens < 4:
        raise RefusedError(f"it takes inputs of at most {tokens} tokens, too few to try its layers on")
    ids = torch.randint(low, min(vocabulary, 1000), (1, tokens), generator=generator)
    return ids.to(device_of(model))


def _forward(model: nn.Module, ids: Int[Tensor, "B T"], lengths: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B V"]:
    """The logits after the last token of each input; the output matrix is applied to no other."""
    rows = torch.arange(len(ids), device=ids.device)
    last = lengths - 1 if lengths is not None else torch.full_like(rows, ids.shape[1] - 1)

    def keep_last(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if args and isinstance(args[0], Tensor) and args[0].ndim == 3 and args[0].shape[:2] == ids.shape:
            return (args[0][rows.to(args[0].device), last.to(args[0].device)][:, None], *args[1:])
        return None

    head = model.get_output_embeddings()  # type: ignore[operator]
    hook = head.register_forward_pre_hook(keep_last) if isinstance(head, nn.Module) else None
    try:
        with uncompiled(model):
            logits: Tensor = model(input_ids=ids, use_cache=False).logits
    finally:
        if hook is not None:
            hook.remove()
    if logits.shape[1] == 1:
        return logits[:, 0]
    return logits[rows.to(logits.device), last.to(logits.device)]


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
