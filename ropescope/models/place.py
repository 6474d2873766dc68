"""Where a model runs and in which precision: what the settings device, dtype and memory mean."""

from __future__ import annotations

import re

import torch

PRECISIONS = ("auto", "float32", "float64", "bfloat16", "float16")
UNITS = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def check_precision(dtype: str) -> str:
    """The precision itself; ValueError if it is not among those that models can have."""
    if dtype not in PRECISIONS:
        raise ValueError(f"dtype must be one of {', '.join(PRECISIONS)}, not {dtype!r}")
    return dtype


def choose_device(device: str) -> torch.device:
    """The device of that name; for `auto` a CUDA device if there is one, else the CPU.

    Apple's GPUs are used if asked for only: they have no double precision, which scores need.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ValueError(f"device must be auto, cpu, cuda, mps or another device of PyTorch, not {device!r}") from None
    try:
        if chosen.type == "meta":
            raise ValueError("device meta holds no numbers: use cpu")
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ValueError(f"device {device} is not available here: use cpu") from None
    return chosen


def parse_memory(memory: str | int | None) -> int | None:
    """Bytes, from a number or a text such as 8GB, 500MB or 2GiB; ValueError if it is neither or not above 0."""
    if memory is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?\s*", str(memory).upper())
    size = 0 if found is None else int(float(found[1]) * UNITS[found[2] or ""])
    if size <= 0 or isinstance(memory, bool):
        raise ValueError(f"memory must be a size such as 8GB or 500MB, not {memory!r}")
    return size
