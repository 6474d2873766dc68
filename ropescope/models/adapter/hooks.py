"""Hooks into the attention of `transformers` models: observers see each call of attention, edits change it.

`transformers` calls our attention function instead of its own, and ours calls theirs.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol, runtime_checkable
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .biased import Attended, biased
from .calls import Arguments, AttentionCall, Own, RefusedError
from .rotation import TableCache, rotation_tables

OnCall = Callable[[AttentionCall], None]


@runtime_checkable
class Edit(Protocol):
    """Changes the queries, keys, mask and output of one module's attention."""

    stopped: tuple[int, ...]
    """Planes whose rotation is stopped in the current call of attention."""

    def edit_inputs(self, query: Tensor, key: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Queries and keys (B, H, T, d) and the mask (B or 1, H or 1, Q, T) to attend with instead."""

    def edit_output(self, output: Tensor) -> Tensor:
        """The output to return instead, (B, H, T, values)."""


_observers: list[OnCall] = []  # the last one is called
_edits: dict[nn.Module, Edit] = {}
_connected_models: set[nn.Module] = set()
_hooked: WeakSet[Callable[..., Any]] = WeakSet()


@contextlib.contextmanager
def observer(on_call: OnCall) -> Iterator[None]:
    """Within it, `on_call` alone is called with each call of attention."""
    _observers.append(on_call)
    try:
        yield
    finally:
        _observers.pop()


@contextlib.contextmanager
def observing(model: nn.Module, on_call: OnCall, modules: set[nn.Module]) -> Iterator[None]:
    """Within it, `on_call` is called with each call of attention; calls of `modules` have their arguments and rotations."""
    last: list[Tensor] = []
    cache: TableCache = {}

    def observe(call: AttentionCall) -> None:
        if last and call.query is last[0]:  # differential attention: two sets of values with the same weights
            return
        last[:] = [call.query]
        if call.module in arguments:
            call.arguments = arguments[call.module]
            call.find_tables = partial(_tables, call.module, call.key.shape[-2], rotary, cache)
            call.tables = call.find_tables(call.arguments)
        on_call(call)

    with recording(model, modules) as (arguments, rotary), connected(model), observer(observe):
        yield


def _tables(
    module: nn.Module, tokens: int, rotary: dict[str, Any], cache: TableCache, arguments: Arguments
) -> dict[str, Tensor]:
    return rotation_tables(module, tokens, arguments, rotary, cache)


@contextlib.contextmanager
def recording(model: nn.Module, modules: set[nn.Module]) -> Iterator[tuple[dict[nn.Module, Arguments], dict[str, Any]]]:
    """The arguments of each of `modules` while it runs, and the last output of each rotary module of the model, by its name."""
    arguments: dict[nn.Module, Arguments] = {}
    rotary: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():
            if module in modules:
                hook = module.register_forward_pre_hook(
                    lambda module, args, kwargs: arguments.__setitem__(module, (args, kwargs)), with_kwargs=True
                )
                stack.callback(hook.remove)
                # Hidden states of all layers would take more than a layer does.
                stack.callback(module.register_forward_hook(lambda m, *_: _forget(arguments, m), always_call=True).remove)
            if re.search(r"rotary|rope", type(module).__name__, re.IGNORECASE):
                hook = module.register_forward_hook(lambda _, __, output, name=name: rotary.__setitem__(name, output))
                stack.callback(hook.remove)
        yield arguments, rotary


def _forget(arguments: dict[nn.Module, Arguments], module: nn.Module) -> None:
    arguments.pop(module, None)


@contextlib.contextmanager
def editing(edits: dict[nn.Module, Edit]) -> Iterator[None]:
    """Within it, these edits apply to their modules, if the model is connected."""
    if taken := [module for module in edits if module in _edits]:
        raise ValueError(f"{type(taken[0]).__name__} is changed already: combine the changes instead of nesting them")
    _edits.update(edits)
    try:
        yield
    finally:
        for module in edits:
            _edits.pop(module)


def edit_of(module: nn.Module) -> Edit | None:
    """The edit that applies to a module; None if there is none."""
    return _edits.get(module)


@contextlib.contextmanager
def without_edits() -> Iterator[None]:
    """Within it, models attend unchanged."""
    before = dict(_edits)
    _edits.clear()
    try:
        yield
    finally:
        _edits.update(before)


@contextlib.contextmanager
def connected(model: nn.Module) -> Iterator[None]:
    """Within it, observers and edits apply to the model's attention. It may be entered several times."""
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
    """Most families look up their attention function by name. Ours replaces those they know, under the same names, because
    some families build their masks by the name.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward  # noqa: PLC0415
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # noqa: PLC0415

    names: dict[str, Callable[..., Any] | None] = {"sdpa": sdpa_attention_forward, "eager": None}
    theirs: Any = model
    parts: list[Any] = [module.config for module in model.modules() if hasattr(module, "set_attn_implementation")]
    others = [config for config in parts if config._attn_implementation not in names]
    before = [(config, config._attn_implementation) for config in others]
    try:
        with contextlib.ExitStack() as stack:
            for name, fused in names.items():
                function: Any = ALL_ATTENTION_FUNCTIONS._local_mapping.get(name, fused)
                if function not in _hooked:  # it is ours if another model is connected
                    function = _hooked_function(function)
                stack.enter_context(attention_function(name, function))
            if others:
                theirs.set_attn_implementation("sdpa" if theirs._supports_sdpa else "eager")
            yield
    finally:
        for config, implementation in before:
            config._attn_implementation_internal = implementation


@contextlib.contextmanager
def attention_function(name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Within it, models of `transformers` find this function under a name.

    Most families look names up in one instance, and what is set there hides what is registered for all instances. Some
    libraries set theirs there (kvpress), so ours is put in both places.
    """
    from transformers import AttentionInterface  # noqa: PLC0415
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # noqa: PLC0415

    mappings = (AttentionInterface._global_mapping, ALL_ATTENTION_FUNCTIONS._local_mapping)
    before = [mapping.get(name) for mapping in mappings]
    for mapping in mappings:
        mapping[name] = function
    try:
        yield
    finally:
        for mapping, theirs in zip(mappings, before, strict=True):
            if theirs is None:
                mapping.pop(name, None)
            else:
                mapping[name] = theirs


def _hooked_function(fused: Callable[..., Any] | None) -> Callable[..., Any]:
    """An attention function that computes what the model's own does, with observers and edits.

    `fused` is PyTorch's function, where the model asks for it; otherwise that of the model's family, which returns its weights.
    """

    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        eager: Any = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        if eager is None and fused is None:
            raise RefusedError(f"{type(module).__name__} has no attention function of its own that could be called")
        edit = _edits.get(module)
        if edit is not None:
            query, key, attention_mask = edit.edit_inputs(query, key, attention_mask)

        def own(at: int, rows: slice, dtype: torch.dtype | None) -> tuple[Tensor, Tensor | None]:
            if eager is None:
                return result[0][rows, at], None
            q, k, v = (x[rows].to(dtype or x.dtype) for x in (query[:, :, at : at + 1], key, value))
            mask = attention_mask if attention_mask is None or attention_mask.shape[0] == 1 else attention_mask[rows]
            output, weights = eager(module, q, k, v, _mask_row(mask, at, q, k), *args, **kwargs)
            return output[:, 0], None if weights is None else weights[:, :, 0]

        result: tuple[Tensor, Tensor | None]
        # PyTorch's own function has neither soft-cap nor sinks.
        if fused is not None and (eager is None or (kwargs.get("softcap") is None and kwargs.get("s_aux") is None)):
            result = fused(module, query, key, value, attention_mask, *args, **kwargs)
        else:
            mask = attention_mask
            if mask is None:
                queries, keys = query.shape[-2], key.shape[-2]
                mask = torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril_(keys - queries)[None, None]
            result = eager(module, query, key, value, _additive(mask, query.dtype), *args, **kwargs)
        _notify(edit, module, query, key, value, attention_mask, kwargs, own)
        return result if edit is None else (edit.edit_output(result[0].transpose(1, 2)).transpose(1, 2), result[1])

    _hooked.add(attend)
    return attend


def _mask_row(mask: Tensor | None, at: int, query: Tensor, key: Tensor) -> Tensor:
    """The additive mask of one query."""
    if mask is not None:
        return _additive(mask[..., at : at + 1, :], query.dtype).to(query.dtype)
    row = torch.zeros(1, 1, 1, key.shape[-2], dtype=query.dtype, device=query.device)
    row[..., at + 1 :] = torch.finfo(query.dtype).min
    return row


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask of zeros and very negative numbers, from one that is true for the keys that are seen."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)


def _notify(
    edit: Edit | None,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    options: dict[str, Any],
    own: Own,
    bias: Tensor | None = None,
) -> None:
    """Call the observer, if there is one."""
    if _observers:
        stopped = () if edit is None else edit.stopped
        _observers[-1](AttentionCall(module, query, key, value, mask, options, stopped=stopped, bias=bias, own=own))


@contextlib.contextmanager
def _by_method(model: nn.Module) -> Iterator[None]:
    """Older families have a method for attention (GPT-J, CodeGen), call PyTorch's own function (Falcon), or attend inside
    their layers (BLOOM, MPT).
    """
    running: list[nn.Module] = []
    fused = F.scaled_dot_product_attention

    def hooked_fused(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **kwargs: Any) -> Tensor:
        if not running:
            return fused(query, key, value, attn_mask, **kwargs)
        edit = _edits.get(running[-1])
        if edit is not None:
            query, key, changed = edit.edit_inputs(query, key, attn_mask)
            if changed is not attn_mask:
                attn_mask, kwargs = changed, {**kwargs, "is_causal": False}
        result: Tensor = fused(query, key, value, attn_mask, **kwargs)
        options = {"scaling": kwargs.get("scale"), "is_causal": kwargs.get("is_causal", False)}
        _notify(edit, running[-1], query, key, value, attn_mask, options, lambda at, rows, _: (result[rows, :, at], None))
        return result if edit is None else edit.edit_output(result)

    with contextlib.ExitStack() as stack:
        for module in model.modules():
            if hasattr(module, "_attn") and (hasattr(module, "scale_attn") or hasattr(module, "norm_factor")):
                vars(module)["_attn"] = _hooked_method(module._attn, module)  # type: ignore[arg-type]
                stack.callback(vars(module).pop, "_attn")
            elif (run := biased(module)) is not None:
                vars(module)["forward"] = _hooked_forward(run, module)
                stack.callback(vars(module).pop, "forward")
            elif "Attention" in type(module).__name__:
                stack.callback(module.register_forward_pre_hook(lambda module, _: running.append(module)).remove)
                stack.callback(module.register_forward_hook(lambda *_: running.__delitem__(-1), always_call=True).remove)
        F.scaled_dot_product_attention = hooked_fused  # type: ignore[assignment]
        stack.callback(setattr, F, "scaled_dot_product_attention", fused)
        yield


def _hooked_method(method: Callable[..., Any], module: Any) -> Callable[..., Any]:
    def attend(query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None) -> Any:
        edit = _edits.get(module)
        if edit is not None:
            query, key, changed = edit.edit_inputs(query, key, attention_mask)
            if changed is not None and changed is not attention_mask:
                attention_mask = _additive(changed, query.dtype)
        result = method(query, key, value, attention_mask)
        options = {"scaling": 1 / float(module.scale_attn if hasattr(module, "scale_attn") else module.norm_factor)}

        def own(at: int, rows: slice, _: torch.dtype | None) -> tuple[Tensor, Tensor]:
            return result[0][rows, :, at], result[1][rows, :, at]

        _notify(edit, module, query, key, value, attention_mask, options, own)
        return result if edit is None else (edit.edit_output(result[0]), *result[1:])

    return attend


def _hooked_forward(run: Callable[..., tuple[Any, Attended]], module: nn.Module) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        if module in _edits:
            raise RefusedError(f"{type(module).__name__} attends inside its layer, where nothing can be changed")
        result, found = run(*args, **kwargs)

        def own(at: int, rows: slice, _: torch.dtype | None) -> tuple[Tensor, Tensor]:
            weights = found.weights[rows, :, at]
            return (weights[:, :, None] @ found.value[rows])[:, :, 0], weights

        options = {"scaling": found.scale}
        _notify(None, module, found.query, found.key, found.value, found.mask, options, own, found.bias)
        return result

    return forward
