"""Running a layer of a half-precision model in single precision, or a model of double precision in nothing less.

Weights and inputs stay the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

HALVES = (torch.bfloat16, torch.float16)
"""Precisions of weights with too few digits for a tight comparison."""


class SinglePrecision(TorchFunctionMode):
    """Within it, every function of PyTorch gets float32 for half-precision tensors, and gives float32 where half is asked for.

    Weights stay as they are: each is converted when it is used, so one matrix at a time takes memory.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What the function returns for the converted arguments."""
        if getattr(func, "__name__", "") in ("__get__", "__set__"):  # attributes: only the precision is another
            found = func(*args)
            return torch.float32 if isinstance(found, torch.dtype) and found in HALVES else found
        return func(*in_single(args), **in_single(kwargs or {}))


def in_single(value: Any) -> Any:
    """The same value, float32 in place of half precision; of lists, tuples and dictionaries every member."""
    if isinstance(value, Tensor):
        return value.float() if value.dtype in HALVES else value
    if isinstance(value, torch.dtype):
        return torch.float32 if value in HALVES else value
    if type(value) in (list, tuple):
        return type(value)(in_single(member) for member in value)
    if type(value) is dict:
        return {name: in_single(member) for name, member in value.items()}
    return value


class DoublePrecision(TorchFunctionMode):
    """Within it, numbers in double precision stay so where a model rounds them to float32, as most do in norms and softmax."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What the function returns if float64 takes the place of float32 for a tensor of that precision."""
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") != "__get__" and any(isinstance(x, Tensor) and x.dtype == torch.float64 for x in args):
            if func is Tensor.float:
                return args[0]
            args = tuple(torch.float64 if x is torch.float32 else x for x in args)
            kwargs = {name: torch.float64 if x is torch.float32 else x for name, x in kwargs.items()}
        return func(*args, **kwargs)
