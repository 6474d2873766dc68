"""Models as other code wraps and trains them: unwrapped, copied to single precision, called without side effects."""

from __future__ import annotations

import contextlib
import copy
import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside of DDP, `torch.compile` or PEFT; the model itself if it is not wrapped."""
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        return unwrapped(model.module)
    if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
        return unwrapped(inner)
    if hasattr(model, "get_base_model") and hasattr(model, "peft_config"):
        return unwrapped(model.get_base_model())  # type: ignore[operator]
    return model


def refuse_shards(model: nn.Module) -> None:
    """Raise ValueError if the weights of a model are sharded over several machines."""
    by = "FSDP" if any("FullyShardedDataParallel" in base.__name__ for base in type(model).__mro__) else ""
    for parameter in model.parameters():
        if hasattr(parameter, "ds_id"):
            by = "DeepSpeed"
        elif "DTensor" in (type(parameter).__name__, type(parameter.data).__name__):
            by = "FSDP"
    if by:
        raise ValueError(f"the model is sharded by {by}: no process holds whole layers to measure")


def is_main_process() -> bool:
    """Whether this process is the first of those that train together."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank() == 0
    return os.environ.get("RANK", "0") == "0"


def copy_if_half(model: nn.Module) -> nn.Module | None:
    """A copy in single precision of a model in half precision, which is too coarse to score attention; None for others.

    Raises ValueError if the weights are quantized.
    """
    dtypes = {parameter.dtype for parameter in model.parameters()}
    if not dtypes & {torch.float16, torch.bfloat16}:
        return None
    if odd := sorted(str(dtype).removeprefix("torch.") for dtype in dtypes if not dtype.is_floating_point):
        raise ValueError(f"the model has weights of {odd[0]}, quantized: it cannot be watched")
    with own_forward(model):
        gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
        try:
            for parameter in model.parameters():
                parameter.grad = None  # need not be copied
            copied = copy.deepcopy(model)
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient
    return copied.float().requires_grad_(False).eval()


def copy_weights(model: nn.Module, into: nn.Module) -> None:
    """Copy all weights and buffers of a model into another of the same shapes."""
    theirs = into.state_dict()
    for name, value in model.state_dict().items():
        theirs[name].copy_(value)


@contextlib.contextmanager
def own_forward(model: nn.Module) -> Iterator[None]:
    """Inside of it, calling the model runs its own `forward`: neither under autocast of mixed precision, nor compiled."""
    own = vars(model)
    before: dict[str, Any] = {
        name: own.pop(name) for name in ("forward", "_original_forward", "_compiled_call_impl") if name in own
    }
    if "forward" in before and "_original_forward" not in before:  # somebody else's change
        own["forward"] = before["forward"]
    try:
        yield
    finally:
        own.update(before)


@contextlib.contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """After it, the training mode of each module and the state of all random number generators are as before."""
    modes = [(module, module.training) for module in model.modules()]
    plain, legacy = random.getstate(), np.random.get_state()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(plain)
        np.random.set_state(legacy)
        for module, mode in modes:
            module.training = mode
