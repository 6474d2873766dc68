"""The door to any rotary model of `transformers`: content queries and keys of every layer, or a reason why not.

Queries and keys are read where the model hands them to attention, already rotated. To turn them back, each layer is first tried
on a few tokens, with its own weights and code:

1. *Which rotation?* All positions get the same hidden vector. Keys then differ by the rotation alone, and of all ways to pair
   dimensions into planes, the right one turns them all back into one and the same key.
2. *Is `M` what really happens?* Hidden vectors change places, the layer itself computes its logits anew, and they must be those
   that `M` foretold.

A layer that fails is refused: its keys are not the rotated contents of single tokens, and no score of it would mean anything.
The rotation itself is taken from the cosines and sines that the layer used, so scaled, partial and length-dependent variants
need no code of their own. On every input the diagonal of `M` is then held against the model's own attention weights.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ..heads import Heads
from ..logits import LogitFactors, exact_dtype, layer_factors, with_sinks
from ..rope import Pairing, Rope
from .gptj import GPTJ

TRIAL_TOKENS = 14
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Largest error of logits (relative to their size from 1 up) and of attention weights that counts as rounding."""
ROUNDED = 1e-5
"""The same for layers that compute in single precision whatever the model's own."""
HALF = 1e-3
"""The same for weights of models in half precision: few keep it, and are told to load in single precision."""


class RefusedError(ValueError):
    """A model, or a layer of it, that is not understood; scoring it could give wrong numbers. It says why in one sentence.

    >>> import ropescope as rs
    >>> from transformers import BertConfig, BertForMaskedLM
    >>> sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
    >>> try:
    ...     rs.Door(BertForMaskedLM(BertConfig(**sizes)))
    ... except rs.RefusedError as error:
    ...     print(error)
    bert, as BertForMaskedLM, does not predict next tokens: load it for causal language modelling
    """


@dataclass(frozen=True)
class LayerRead:
    """What one attention layer did on one batch of inputs."""

    layer: int
    heads: Heads
    factors: LogitFactors
    """`M` of all heads at the query that was asked for."""
    error: float
    """Largest difference between the attention weights that follow from `M` and the model's own."""


OnLayer = Callable[[LayerRead], None]


@dataclass
class _Call:
    """One call of attention as the model made it: queries and keys are rotated, masked and scaled as given here."""

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    options: dict[str, Any]
    arguments: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    tables: dict[str, Tensor] = field(default_factory=dict)
    stopped: tuple[int, ...] = ()
    """Planes that somebody keeps from turning (`control`): their vectors are given as if at position 0."""
    own: Callable[[int], tuple[Tensor, Tensor | None]] = field(kw_only=True)
    """Position of a query to the layer's own result (B, H, values), and its weights (B, H, T) where it shows them."""

    @property
    def scale(self) -> float:
        given = self.options.get("scaling")
        return float(self.query.shape[-1] ** -0.5 if given is None else given)

    @property
    def soft_cap(self) -> float | None:
        given = self.options.get("softcap")
        return None if given is None else float(given)

    @property
    def sinks(self) -> Tensor | None:
        sinks = self.options.get("s_aux")
        return None if sinks is None else sinks.flatten()


@dataclass(frozen=True)
class _Layout:
    """How a layer's heads carry their planes: which dimensions, which table of rotations."""

    table: str | None  # none: positions do not enter
    pairing: Pairing = "half"
    first: int = 0
    backwards: bool = False
    key_weight: Tensor | None = None  # of a norm between rotation and attention

    def contents(self, call: _Call, first: int = 0) -> tuple[Tensor, Tensor, Rope, Tensor | None]:
        """Content queries, from a position on, and keys (rotary dimensions first), the rotation, and its turns."""
        dtype = exact_dtype(call.key.device)
        query, key = call.query[:, :, first:].to(dtype), call.key.to(dtype)
        size = key.shape[-1]
        if self.key_weight is not None:
            weight = self.key_weight.to(dtype)
            query, key = query * weight, key / weight
        if self.table is None:
            return query, key, Rope(size, rotary_dim=0), None
        turns = self.turns(call.tables)
        if call.stopped:
            turns = stopped_turns(turns, call.stopped)
        rope = Rope(size, pairing=self.pairing, frequencies=_frequencies(turns))
        back = 1 / turns

        def turned_back(x: Tensor, back: Tensor) -> Tensor:
            turning, still = rope.to_planes(x.roll(-self.first, -1) if self.first else x)
            return rope.from_planes(turning * back, still)

        return turned_back(query, back[first:]), turned_back(key, back), rope, turns

    def turns(self, tables: Mapping[str, Tensor]) -> Complex[Tensor, "T F"]:
        """By what planes are multiplied at each position."""
        assert self.table is not None
        turns = tables[self.table]
        return turns.conj().resolve_conj() if self.backwards else turns


def stopped_turns(turns: Complex[Tensor, "T F"], planes: Sequence[int]) -> Complex[Tensor, "T F"]:
    """The same with some planes that do not turn. A factor that comes with the turn (YaRN) is no matter of places: it stays."""
    factor = turns[:, list(planes)].abs()
    factor = torch.where((factor - 1).abs() < 1e-6, 1.0, factor)  # cosines and sines are rounded
    still = turns.clone()
    still[:, list(planes)] = factor.to(turns.dtype)
    return still


def _frequencies(turns: Complex[Tensor, "T F"]) -> list[float]:
    """Radians per token, from the first step; for reading and for plots, as `M` is made from the turns themselves."""
    step = turns[1] / turns[0] if len(turns) > 1 else torch.ones_like(turns[0])
    angles: list[float] = step.angle().tolist()
    return angles


class Door:
    """Opens a causal `transformers` model, layer by layer, or refuses it with a `RefusedError`.

    `layers` are the numbers of its attention layers (recurrent and convolutional ones have no heads to measure), `rounded` of
    those that compute in single precision whatever the model's own, `errors` how far each was from what `M` foretold, `ropes`
    the rotation of each as it was on the first trial, `heads` how many query heads each has.

    Opening takes a few passes over 14 tokens; keep the door if you need it more than once. `read` tells of each attention
    layer by its number (`layer`), its `heads`, `factors`, which are `M` at the query, and `error`, what attention from `M`
    differs by from the model's own.

    Raises RefusedError, in one sentence, if a layer's keys are not the rotated contents of single tokens.

    >>> import torch, ropescope as rs
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
    >>> door = rs.Door(LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=2)))
    >>> door.layers, door.heads, door.ropes[0].pairing
    ([0, 1], [4, 4], 'half')
    >>> ids = torch.randint(64, (1, 12))
    >>> logits = door.read(ids, lambda read: print(read.layer, rs.swap_scores(read.factors.matrix()).symbolic.shape))
    0 torch.Size([1, 4])
    1 torch.Size([1, 4])
    >>> logits.shape  # of the last position
    torch.Size([1, 64])
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.family = str(getattr(getattr(model, "config", None), "model_type", type(model).__name__))
        self.modules: list[nn.Module] = []  # in the order in which they attend; one may do so several times
        self._layouts: list[_Layout] = []
        self.layers: list[int] = []
        self.rounded: set[int] = set()
        self.errors: list[float] = []
        self.ropes: list[Rope] = []
        self.heads: list[int] = []
        _check_kind(model, self.family)
        with _quiet_evaluation(model), _hands_off():
            self._try_layers(_vocabulary(model))

    @torch.inference_mode()
    def read(
        self, ids: Int[Tensor, "B T"], on_layer: OnLayer, query_position: int | None = None, queries: int | None = None
    ) -> Float[Tensor, "B V"]:
        """One forward pass, `on_layer` told of each attention layer in turn; returns the logits of the last position.

        Layers hand over the last `queries` queries, all unless given. Inputs are whole (no padding). Weights are checked at
        `query_position`, the last unless given; a layer whose weights do not follow from its `M` stops the run.
        """
        at = ids.shape[1] - 1 if query_position is None else query_position
        first = 0 if queries is None else max(0, min(at, ids.shape[1] - queries))
        passed = 0

        def on_call(call: _Call) -> None:
            nonlocal passed
            if passed >= len(self.modules) or call.module is not self.modules[passed]:
                raise RefusedError(f"{self.family}: on this input other layers attend than on the first trial")
            number, layout = self.layers[passed], self._layouts[passed]
            passed += 1
            try:
                heads, factors, error = _handed_over(call, layout, at, first)
            except RefusedError as refused:
                raise RefusedError(f"{self.family}: layer {number}: on this input {refused}") from None
            limit = _weight_limit(call)
            if not error <= limit:
                raise RefusedError(
                    f"layer {number}: attention that follows from M differs from the model's own by {error:.1e}, more than the "
                    f"{limit:.0e} of rounding{_advice(call.query.dtype)}"
                )
            on_layer(LayerRead(number, heads, factors, error))

        with _quiet_evaluation(self.model), _listening(self.model, on_call, set(self.modules)):
            return _forward(self.model, ids)

    # Trying layers

    def _try_layers(self, vocabulary: int) -> None:
        generator = torch.Generator().manual_seed(0)
        low = min(4, vocabulary - 1)  # the first few are often special
        ids = torch.randint(low, min(vocabulary, 1000), (1, TRIAL_TOKENS), generator=generator).to(_device(self.model))
        with _listening(self.model, lambda call: self.modules.append(call.module), set()), torch.inference_mode():
            _forward(self.model, ids)
        if not self.modules:
            raise RefusedError(f"{self.family}: its attention cannot be read, as it does not go through a door we know")
        own = [int(number) for module in self.modules if (number := getattr(module, "layer_idx", None)) is not None]
        count = len(self.modules)
        self.layers = own if len(own) == count and sorted(set(own)) == own else list(range(count))
        reasons: dict[int, str] = {}

        def on_call(call: _Call) -> None:
            number = self.layers[len(self._layouts)]
            try:
                self._layouts.append(self._try(call, number))
            except RefusedError as error:
                reasons[number] = str(error)
                self._layouts.append(_Layout(None))
            self.ropes.append(self._layouts[-1].contents(call)[2])
            self.heads.append(call.query.shape[1])

        with _listening(self.model, on_call, set(self.modules)), torch.inference_mode():
            _forward(self.model, ids)
        if reasons:
            number, reason = min(reasons.items())
            more = f" (and {len(reasons) - 1} more of {count} layers)" if len(reasons) > 1 else ""
            raise RefusedError(f"{self.family}: layer {number}{more}: {reason}")

    def _try(self, call: _Call, number: int) -> _Layout:
        tokens = call.key.shape[-2]
        if tokens != call.query.shape[-2]:
            raise RefusedError(f"it has {tokens} keys for {call.query.shape[-2]} tokens: keys are not those of single tokens")
        if call.query.shape[1] % call.key.shape[1]:
            raise RefusedError("its query heads do not share key heads evenly")
        for at in (0, tokens - 1):  # a query that sees later tokens is no causal model's
            _seen(call, at)
        limit = TOLERANCE.get(call.query.dtype, 3e-2)
        constant = self._again(call, lambda x: x[:, -1:].expand_as(x))
        if torch.equal(constant.key, call.key):
            raise RefusedError("its keys do not come from its own input but from an earlier layer")
        layout, error = self._layout(constant, limit)
        shuffled = torch.randperm(tokens - 1, generator=torch.Generator().manual_seed(1)).to(call.key.device)
        order = torch.cat((shuffled, shuffled.new_tensor([tokens - 1])))
        moved = self._again(call, lambda x: x[:, order])
        worst = max(error, _foretold_error(layout, call, moved, order))
        if not worst <= limit:
            if call.query.dtype == torch.float64 and worst <= ROUNDED:
                self.rounded.add(number)
            else:
                raise RefusedError(
                    f"moving tokens changes its logits otherwise than M foretells (by {worst:.1e}): its keys are not the "
                    f"rotated contents of single tokens{_advice(call.query.dtype)}"
                )
        self.errors.append(worst)
        weights_error = _handed_over(call, layout, tokens - 1)[2]
        if not weights_error <= _weight_limit(call):
            raise RefusedError(
                f"its attention weights differ by {weights_error:.1e} from those that follow from M{_advice(call.query.dtype)}"
            )
        return layout

    def _again(self, call: _Call, change: Callable[[Tensor], Tensor]) -> _Call:
        """The layer's call on changed hidden vectors."""
        args, kwargs = call.arguments
        if isinstance(kwargs.get("hidden_states"), Tensor):
            kwargs = kwargs | {"hidden_states": change(kwargs["hidden_states"])}
        elif args and isinstance(args[0], Tensor):
            args = (change(args[0]), *args[1:])
        else:
            raise RefusedError("its hidden vectors are not handed over in a way we know")
        calls: list[_Call] = []
        with _diverted(calls.append):
            call.module.forward(*args, **kwargs)
        if not calls or any(call.query is not calls[0].query for call in calls):
            raise RefusedError("it attends several times when tried alone")
        calls[0].tables = call.tables
        return calls[0]

    def _layout(self, constant: _Call, limit: float) -> tuple[_Layout, float]:
        """The layout that turns equal tokens at all positions back into equal keys, and how equal they are."""
        size = constant.key.shape[-1]
        layouts = [_Layout(None)]
        for weight in (None, *_key_weights(constant.module, size)):
            for name, table in constant.tables.items():
                planes = table.shape[-1]
                starts = {0, size - 2 * planes} if 0 < 2 * planes <= size else set()
                pairings: tuple[Pairing, ...] = ("half", "interleaved")
                for first, pairing, backwards in product(sorted(starts), pairings, (False, True)):
                    layouts.append(_Layout(name, pairing, first, backwards, weight))
        best, least = layouts[0], math.inf
        for layout in layouts:
            key = layout.contents(constant)[1]
            error = float((key - key[:, :, :1]).abs().max() / key.abs().max().clamp(min=1e-30))
            if error < least:
                best, least = layout, error
            if least <= limit / 10:
                break
        if not least <= max(limit, ROUNDED):
            why = "no table of rotations was found" if not constant.tables else "no pairing of dimensions fits"
            raise RefusedError(f"its keys depend on position otherwise than by a rotation we know ({why})")
        return best, least


def _handed_over(call: _Call, layout: _Layout, at: int, first: int = 0) -> tuple[Heads, LogitFactors, float]:
    """What a layer hands over, `M` at a query, and how far the layer's attention there is from what follows."""
    queries, keys, rope, turns = layout.contents(call, first)
    seen = _seen(call, at)
    sinks = None if call.sinks is None else call.sinks.to(queries.dtype)
    window = None if seen == at + 1 else seen
    heads = Heads(queries, keys, rope, call.scale, soft_cap=call.soft_cap, window=window, turns=turns, sinks=sinks)
    result, weights = call.own(at)
    factors = layer_factors(heads, at)
    ours = with_sinks(factors.diagonal(), sinks)
    if weights is not None and sinks is None:
        return heads, factors, float((ours - weights[..., : at + 1].to(ours.dtype)).abs().max())
    # With sinks, or where no weights are shown, what attention brings: weights times values.
    values = call.value[:, :, : at + 1].to(ours.dtype)
    brought = (ours[:, :, None] @ values.repeat_interleave(ours.shape[1] // values.shape[1], 1))[:, :, 0]
    return heads, factors, float((brought - result.to(ours.dtype)).abs().max() / values.abs().max().clamp(min=1e-30))


def own_weights(heads: Heads, at: int) -> Float[Tensor, "B H T"]:
    """The attention weights at a query that follow from the diagonal of `M`, sinks taken into account."""
    return with_sinks(layer_factors(heads, at).diagonal(), heads.sinks)


def read_layers(
    model: nn.Module | Door, ids: Int[Tensor, "B T"], on_layer: OnLayer, queries: int | None = None
) -> Float[Tensor, "B V"]:
    """The same for a model of ours, an open door, or a `transformers` model; returns the logits of the last position."""
    if isinstance(model, GPTJ):
        training = model.training
        with torch.inference_mode():
            logits: Tensor = model.eval()(
                ids, lambda n, heads: on_layer(LayerRead(n, heads, layer_factors(heads), 0.0)), last_only=True
            )[:, 0]
        model.train(training)
        return logits
    return (model if isinstance(model, Door) else Door(model)).read(ids, on_layer, queries=queries)


def _weight_limit(call: _Call) -> float:
    # The softmax of most families is in single precision whatever the model's own.
    return max(ROUNDED, TOLERANCE[call.query.dtype]) if call.query.dtype in TOLERANCE else HALF


def _foretold_error(layout: _Layout, call: _Call, moved: _Call, order: Tensor) -> float:
    """How far the logits of a really permuted input are from those that `M` of the input as it was foretells."""
    queries, keys, rope, turns = layout.contents(call)
    heads = Heads(queries, keys, rope, call.scale, soft_cap=call.soft_cap, turns=turns)
    foretold = layer_factors(heads).matrix()[:, :, order, torch.arange(len(order), device=order.device)]
    query, key = (x.to(foretold.dtype) for x in (moved.query[:, :, -1:], moved.key))
    real = (query @ key.repeat_interleave(query.shape[1] // key.shape[1], 1).mT)[:, :, 0] * call.scale
    if call.soft_cap is not None:
        real = call.soft_cap * torch.tanh(real / call.soft_cap)
    return float((real - foretold).abs().max() / max(1.0, float(foretold.abs().max())))


def _seen(call: _Call, at: int) -> int:
    """How many keys, its own the last of them, the query at a position sees; refuses what is not one run of keys."""
    tokens = call.key.shape[-2]
    if call.mask is None:
        if not getattr(call.module, "is_causal", call.options.get("is_causal", True)):
            raise RefusedError("it attends to later tokens too: only causal models can be opened")
        return at + 1
    row = call.mask[..., at, :tokens]
    if call.mask.dtype == torch.bool:
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


def _check_kind(model: nn.Module, family: str) -> None:
    config = getattr(model, "config", None)
    if config is None or not hasattr(model, "set_attn_implementation"):
        raise RefusedError(f"{type(model).__name__} is neither a model of transformers nor one of ours")
    if getattr(config, "is_encoder_decoder", False):
        raise RefusedError(f"{family} is an encoder-decoder model: only causal (decoder-only) models can be opened")
    if not model.can_generate():  # type: ignore[operator]
        name = type(model).__name__
        raise RefusedError(f"{family}, as {name}, does not predict next tokens: load it for causal language modelling")


def _advice(dtype: torch.dtype) -> str:
    return "" if dtype in TOLERANCE else f"; it runs in {str(dtype).removeprefix('torch.')}: load it with dtype=torch.float32"


def _key_weights(module: nn.Module, size: int) -> list[Tensor]:
    """Weights of norms on keys, which some families apply after the rotation."""
    return [
        weight
        for name, weight in module.named_parameters()
        if re.search(r"k(ey)?_?(layer_?)?norm", name) and name.endswith("weight") and weight.shape == (size,)
    ]


# Listening: `transformers` calls us instead of its own attention, and we call that.

_ears: list[Callable[[_Call], None]] = []


@runtime_checkable
class Hand(Protocol):
    """Changes what one module's attention is given and what it brings."""

    stopped: tuple[int, ...]
    """Planes that it keeps from turning, in the call of attention that is under way."""

    def give(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys to attend with instead, (B, H, T, d)."""

    def bring(self, output: Tensor) -> Tensor:
        """What attention brings instead, (B, H, T, values)."""


_hands: dict[nn.Module, Hand] = {}
_connected_models: set[nn.Module] = set()


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _vocabulary(model: nn.Module) -> int:
    embedding = model.get_input_embeddings()  # type: ignore[operator]
    return int(embedding.weight.shape[0])


def _forward(model: nn.Module, ids: Tensor) -> Tensor:
    options: dict[str, Any] = {"use_cache": False}
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        options["logits_to_keep"] = 1
    logits: Tensor = model(input_ids=ids, **options).logits[:, -1]
    return logits


@contextlib.contextmanager
def _quiet_evaluation(model: nn.Module) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextlib.contextmanager
def _hands_off() -> Iterator[None]:
    """During it, models are as they are by themselves."""
    before = dict(_hands)
    _hands.clear()
    try:
        yield
    finally:
        _hands.update(before)


@contextlib.contextmanager
def _diverted(ear: Callable[[_Call], None]) -> Iterator[None]:
    _ears.append(ear)
    try:
        yield
    finally:
        _ears.pop()


def _heard(fused: Callable[..., Any] | None) -> Callable[..., Any]:
    """An attention function that tells whoever listens what it is called with, and does what the model's own does.

    `fused` is PyTorch's, where that was asked for; else the function of the model's family, which shows its weights.
    """

    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        eager: Any = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        if eager is None and fused is None:
            raise RefusedError(f"{type(module).__name__} has no attention function of its own that could be called")
        hand = _hands.get(module)
        if hand is not None:
            query, key = hand.give(query, key)

        def own(at: int) -> tuple[Tensor, Tensor | None]:
            if eager is None:
                return result[0][:, at], None
            output, weights = eager(module, query[:, :, at : at + 1], key, value, mask_row(at), *args, **kwargs)
            return output[:, 0], None if weights is None else weights[:, :, 0]

        def mask_row(at: int) -> Tensor:
            if attention_mask is None:
                mask = torch.zeros(1, 1, 1, key.shape[-2], dtype=query.dtype, device=query.device)
                mask[..., at + 1 :] = torch.finfo(query.dtype).min
                return mask
            return _added(attention_mask[..., at : at + 1, :], query.dtype)

        result: tuple[Tensor, Tensor | None]
        # PyTorch's own knows neither soft-cap nor sinks.
        if fused is not None and (eager is None or (kwargs.get("softcap") is None and kwargs.get("s_aux") is None)):
            result = fused(module, query, key, value, attention_mask, *args, **kwargs)
        else:
            mask = attention_mask
            if mask is None:
                mask = torch.ones(key.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril_()[None, None]
            result = eager(module, query, key, value, _added(mask, query.dtype), *args, **kwargs)
        if _ears:
            stopped = () if hand is None else hand.stopped
            _ears[-1](_Call(module, query, key, value, attention_mask, kwargs, stopped=stopped, own=own))
        return result if hand is None else (hand.bring(result[0].transpose(1, 2)).transpose(1, 2), result[1])

    return attend


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask of zeros and very negative numbers, from one that says which keys are seen."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)


@contextlib.contextmanager
def _listening(model: nn.Module, on_call: Callable[[_Call], None], modules: set[nn.Module]) -> Iterator[None]:
    """During it, `on_call` is told of each call of attention. For calls of `modules` it knows arguments and rotations too."""
    last: list[Tensor] = []
    known: Known = {}

    def ear(call: _Call) -> None:
        if last and call.query is last[0]:  # differential attention brings two sets of values by the same weights
            return
        last[:] = [call.query]
        if call.module in arguments:
            call.arguments = arguments[call.module]
            call.tables = _tables(call.module, call.key.shape[-2], call.arguments, rotary, known)
        on_call(call)

    with _overhearing(model, modules) as (arguments, rotary), connected(model), _diverted(ear):
        yield


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@contextlib.contextmanager
def _overhearing(model: nn.Module, modules: set[nn.Module]) -> Iterator[tuple[dict[nn.Module, Arguments], dict[str, Any]]]:
    """What each of `modules` was last called with, and what each rotary module of the model last gave, by its name."""
    arguments: dict[nn.Module, Arguments] = {}
    rotary: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():
            if module in modules:
                hook = module.register_forward_pre_hook(
                    lambda module, args, kwargs: arguments.__setitem__(module, (args, kwargs)), with_kwargs=True
                )
                stack.callback(hook.remove)
            if re.search(r"rotary|rope", type(module).__name__, re.IGNORECASE):
                hook = module.register_forward_hook(lambda _, __, output, name=name: rotary.__setitem__(name, output))
                stack.callback(hook.remove)
        yield arguments, rotary


@contextlib.contextmanager
def connected(model: nn.Module) -> Iterator[None]:
    """During it, the model's attention goes through us: ears hear it and hands change it. May be entered several times."""
    if model in _connected_models:
        yield
        return
    _connected_models.add(model)
    try:
        with _by_interface(model) if model._can_set_attn_implementation() else _by_method(model):  # type: ignore[operator]
            yield
    finally:
        _connected_models.remove(model)


@contextlib.contextmanager
def _by_interface(model: nn.Module) -> Iterator[None]:
    """Most families look up their attention function by name. Ours takes the place of those they know, under the same names, as
    some build their masks by the name.
    """
    from transformers import AttentionInterface  # noqa: PLC0415
    from transformers.integrations.sdpa_attention import sdpa_attention_forward  # noqa: PLC0415

    names: dict[str, Callable[..., Any] | None] = {"sdpa": sdpa_attention_forward, "eager": None}
    theirs: Any = model
    parts: list[Any] = [module.config for module in model.modules() if hasattr(module, "set_attn_implementation")]
    others = [config for config in parts if config._attn_implementation not in names]
    before = [(config, config._attn_implementation) for config in others]
    mapping = AttentionInterface._global_mapping
    functions = {name: mapping.get(name) for name in names}  # those of another model that is listened to, maybe
    for name, fused in names.items():
        AttentionInterface.register(name, _heard(fused))
    try:
        if others:
            theirs.set_attn_implementation("sdpa" if theirs._supports_sdpa else "eager")
        yield
    finally:
        for name, function in functions.items():
            if function is None:
                mapping.pop(name)
            else:
                AttentionInterface.register(name, function)
        for config, implementation in before:
            config._attn_implementation_internal = implementation


@contextlib.contextmanager
def _by_method(model: nn.Module) -> Iterator[None]:
    """Older families have a method for attention (GPT-J, CodeGen), or call PyTorch's own function (Falcon)."""
    running: list[nn.Module] = []
    fused = F.scaled_dot_product_attention

    def heard(method: Callable[..., Any], module: Any) -> Callable[..., Any]:
        def attend(query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None) -> Any:
            hand = _hands.get(module)
            if hand is not None:
                query, key = hand.give(query, key)
            result = method(query, key, value, attention_mask)
            options = {"scaling": 1 / float(module.scale_attn if hasattr(module, "scale_attn") else module.norm_factor)}
            if _ears:
                _ears[-1](
                    _Call(
                        *(module, query, key, value, attention_mask, options),
                        stopped=() if hand is None else hand.stopped,
                        own=lambda at: (result[0][:, :, at], result[1][:, :, at]),
                    )
                )
            return result if hand is None else (hand.bring(result[0]), *result[1:])

        return attend

    def fused_heard(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **kwargs: Any) -> Tensor:
        if not running:
            return fused(query, key, value, attn_mask, **kwargs)
        hand = _hands.get(running[-1])
        if hand is not None:
            query, key = hand.give(query, key)
        result: Tensor = fused(query, key, value, attn_mask, **kwargs)
        options = {"scaling": kwargs.get("scale"), "is_causal": kwargs.get("is_causal", False)}
        if _ears:
            stopped = () if hand is None else hand.stopped
            own: Callable[[int], tuple[Tensor, Tensor | None]] = lambda at: (result[:, :, at], None)  # noqa: E731
            _ears[-1](_Call(running[-1], query, key, value, attn_mask, options, stopped=stopped, own=own))
        return result if hand is None else hand.bring(result)

    with contextlib.ExitStack() as stack:
        for module in model.modules():
            if hasattr(module, "_attn") and (hasattr(module, "scale_attn") or hasattr(module, "norm_factor")):
                vars(module)["_attn"] = heard(module._attn, module)  # type: ignore[arg-type]
                stack.callback(vars(module).pop, "_attn")
            elif "Attention" in type(module).__name__:
                stack.callback(module.register_forward_pre_hook(lambda module, _: running.append(module)).remove)
                stack.callback(module.register_forward_hook(lambda *_: running.__delitem__(-1), always_call=True).remove)
        F.scaled_dot_product_attention = fused_heard  # type: ignore[assignment]
        stack.callback(setattr, F, "scaled_dot_product_attention", fused)
        yield


Known = dict[tuple[int, int], tuple[Tensor, Tensor, dict[str, Tensor]]]
"""Cosines and sines seen before, kept so that no others can have their identities, to the rotations they may stand for."""


def _tables(module: nn.Module, tokens: int, arguments: Arguments, rotary: Mapping[str, Any], known: Known) -> dict[str, Tensor]:
    """Rotations that the layer may have used, complex (T, F): from its arguments, from rotary modules, from its own buffers."""
    args, kwargs = arguments
    sources = {f"argument {n}": value for n, value in enumerate(args)} | {f"argument {n}": v for n, v in kwargs.items()}
    sources |= {f"module {name}": value for name, value in rotary.items()}
    sinusoids = getattr(module, "embed_positions", None)
    if isinstance(sinusoids, Tensor):
        sin, cos = sinusoids[:tokens].chunk(2, -1)
        sources["buffer"] = (cos, sin)
    tables: dict[str, Tensor] = {}
    for name, value in sources.items():
        if isinstance(value, Tensor) and value.is_complex():
            if (table := _per_token(value, tokens)) is not None:
                tables[name] = table
        elif isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(x, Tensor) for x in value):
            cos, sin = value
            if not (cos.is_floating_point() and cos.shape == sin.shape):
                continue
            if (id(cos), id(sin)) not in known:
                known[id(cos), id(sin)] = (cos, sin, _layouts(cos, sin, tokens))
            tables |= {f"{name}, {layout}": table for layout, table in known[id(cos), id(sin)][2].items()}
    return tables


def _layouts(cos: Tensor, sin: Tensor, tokens: int) -> dict[str, Tensor]:
    """The rotations of a table, by how it may repeat them; none if it is not one of positions."""
    table = _per_token(torch.complex(cos.double(), sin.double()), tokens)
    if table is None:
        return {}
    layouts, half = {}, table.shape[-1] // 2
    if table.shape[-1] % 2 == 0 and torch.equal(table[:, :half], table[:, half:]):
        layouts["halves"] = table[:, :half]
    if table.shape[-1] % 2 == 0 and torch.equal(table[:, ::2], table[:, 1::2]):
        layouts["pairs"] = table[:, ::2]
    return layouts | {"whole": table}


def _per_token(x: Tensor, tokens: int) -> Tensor | None:
    """As (T, F), whatever axes of length one there are; nothing if inputs of a batch are rotated differently."""
    x = x.to(torch.complex128)
    if x.ndim < 2 or x.shape[-1] == 0:
        return None
    if x.numel() == tokens * x.shape[-1]:
        return x.reshape(tokens, -1)
    if x.ndim >= 3 and tokens in x.shape[1:-1]:
        rest = x.reshape(x.shape[0], -1, x.shape[-1]) if x[0].numel() == tokens * x.shape[-1] else None
        if rest is not None and (rest == rest[:1]).all():
            return rest[0]
    return None
