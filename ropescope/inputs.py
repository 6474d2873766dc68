"""Checks of arguments that count or point: positions, token ids, blocks, sizes. Fractions and truth values are refused."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # tasks need no torch
    from torch import Tensor


def whole(name: str, value: Any) -> int:
    """The value as an `int`. Raises ValueError if it is a fraction, a float, a truth value or no number."""
    try:
        if _is_truth(value):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, not {shown(value)}") from None


def whole_array(name: str, values: Any) -> NDArray[np.int64]:
    """The values as an array of integers. Raises ValueError if they are floats, truth values or no numbers."""
    if hasattr(values, "detach"):  # a tensor
        values = values.detach().cpu()
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be whole numbers, in rows of equal length") from None
    # numpy makes one type of a list of several, so truth values among integers are looked for one by one.
    fits = array.dtype.kind in "iu" or array.size == 0  # an empty list has no type
    if not fits or (isinstance(values, list | tuple) and any(map(_is_truth, values))):
        raise ValueError(f"{name} must be whole numbers, not of type {array.dtype}")
    return array.astype(np.int64)


def whole_tensor(name: str, values: Tensor) -> Tensor:
    """The tensor itself. Raises ValueError if it holds floats, complex numbers or truth values."""
    if _is_truth(values) or values.is_floating_point() or values.is_complex():
        raise ValueError(f"{name} must be whole numbers, not of type {str(values.dtype).removeprefix('torch.')}")
    return values


def number(name: str, value: Any) -> float:
    """The value as a `float`, also if it is a number of numpy or a tensor of one. Raises ValueError if it is no number."""
    try:
        if _is_truth(value) or isinstance(value, str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must be a number, not {shown(value)}") from None


def shown(value: Any) -> str:
    """The value as an error message shows it, in one short line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _is_truth(value: Any) -> bool:
    """Whether a value, or an array of values, is true or false instead of a number."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")).removeprefix("torch.") == "bool"
