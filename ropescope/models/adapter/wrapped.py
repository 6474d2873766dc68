"""Models inside wrappers: compiled, of PEFT, TransformerLens or nnsight, with weights that are elsewhere until a layer runs."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from .calls import RefusedError

BRIDGED = "_original_component"
"""The module that a TransformerLens bridge stands for, among its children."""


def unwrapped(model: Any) -> nn.Module:
    """The model of `transformers` inside `torch.compile`, PEFT, nnsight or a TransformerLens bridge.

    Layers that PEFT has added belong to it. A bridge computes attention itself, so it is read without its bridges.
    """
    if not isinstance(model, nn.Module) and isinstance(inside := getattr(model, "_module", None), nn.Module):
        model = inside  # nnsight's Envoy is no module
    if isinstance(original := getattr(model, "original_model", None), nn.Module):
        model = original
    if isinstance(model, nn.Module) and any(BRIDGED in module._modules for module in model.modules()):
        return _without_bridges(model)
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and hasattr(model, "peft_config") and hasattr(model, "get_base_model"):
            tuned: Any = getattr(model, "active_peft_config", None)
            if tuned is not None and tuned.is_prompt_learning:
                raise RefusedError(
                    f"{type(model).__name__} puts learnt vectors in front of every prompt, which are no tokens: give its "
                    f"get_base_model() instead"
                )
            inner = model.get_base_model()
        if not isinstance(inner, nn.Module) or inner is model:
            found: nn.Module = model
            return found
        model = inner


def _without_bridges(model: nn.Module) -> nn.Module:
    """The same model with the same parameters, in which no module is a bridge; RefusedError if it computes something else."""
    twin = _twin(model)
    ids = torch.arange(1, 9, device=device_of(model))[None]
    with torch.inference_mode():
        theirs, ours = (each(input_ids=ids, use_cache=False).logits.log_softmax(-1) for each in (model, twin))
    if not torch.allclose(theirs, ours, atol=1e-3, rtol=0):
        raise RefusedError(
            "the bridge computes other logits than the model of transformers inside it: give the model that was bridged"
        )
    return twin


def _twin(module: nn.Module) -> nn.Module:
    while BRIDGED in module._modules:
        module = module._modules[BRIDGED]  # type: ignore[assignment]
    twin = copy.copy(module)
    twin._modules = {name: None if child is None else _twin(child) for name, child in module._modules.items()}
    return twin


@contextlib.contextmanager
def uncompiled(model: nn.Module) -> Iterator[None]:
    """Within it, compiled parts of the model run as they were written: hooks do not reach compiled code."""
    if not any(_is_compiled(module) for module in model.modules()):
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def _is_compiled(module: nn.Module) -> bool:
    forward: Any = vars(module).get("forward")
    return (
        module._compiled_call_impl is not None
        or "_orig_mod" in module._modules
        or hasattr(forward, "_torchdynamo_orig_callable")
    )


def device_of(model: nn.Module) -> torch.device:
    """The device that a model computes on: that of its first tensor that is not offloaded."""
    for tensor in chain(model.parameters(), model.buffers()):
        if not tensor.is_meta:
            return tensor.device
    return torch.device("cpu")


@contextlib.contextmanager
def present(module: nn.Module) -> Iterator[None]:
    """Within it, parameters of this very module that `accelerate` has offloaded are in memory."""
    if any(parameter.is_meta for parameter in module.parameters(recurse=False)) and hasattr(module, "_hf_hook"):
        from accelerate.utils import align_module_device  # type: ignore[import-untyped]  # noqa: PLC0415  # who offloads has it

        with align_module_device(module):
            yield
    else:
        yield


def named_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Names and values of all parameters, then of all buffers, also of offloaded ones."""
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        owner, _, own = name.rpartition(".")
        if not tensor.is_meta:
            yield name, tensor
            continue
        module = model.get_submodule(owner)
        with present(module):
            yield name, getattr(module, own)
