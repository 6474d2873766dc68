"""A device of its own that computes on the CPU but refuses to mix its tensors with those of the CPU, as a GPU does.

PyTorch lets a backend be written in Python. Every operation on a tensor of this one comes to `_run`, which computes it on the
CPU. So GPU code runs for real, with numbers, on machines without a GPU: a tensor that was made without a device is an error as
soon as it meets one of the model, and `staying` lists work that never reaches the device. The backend is registered for the
whole process: import this module in a process of its own only.
"""

import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import ropescope

NAME = "testgpu"
COPIES = {"_to_copy", "copy_", "_copy_from", "_copy_from_and_resize"}
"""Operations that may have tensors of both devices."""
VIEWS = {"view", "_unsafe_view", "_reshape_alias"}
"""Views of strides that only the inner tensor has."""
HOUSE = str(Path(ropescope.__file__).parent)


class Far(torch.Tensor):
    """A tensor of the device; `inner` holds its numbers."""


def _far(inner):
    with torch.inference_mode(mode=False):
        found = torch._C._acc.create_empty_tensor(inner.shape, inner.dtype)
    found.__class__ = Far
    found.inner = inner.resolve_conj().resolve_neg()
    return found


def _run(op, *args, **kwargs):
    """An operation on inner tensors; RuntimeError if a tensor of the CPU is among its operands."""
    far, near = [], []

    def opened(x):
        if isinstance(x, torch.Tensor):
            (far if x.device.type == NAME else near).append(x)
            return x.inner if x.device.type == NAME else x
        return torch.device("cpu") if isinstance(x, torch.device) else x

    inner, options = pytree.tree_map(opened, (args, kwargs))
    name = op._schema.name.removeprefix("aten::")
    if far and name not in COPIES and any(x.ndim for x in near):  # single numbers may come from the CPU, as on a GPU
        sizes = [tuple(x.shape) for x in near]
        raise RuntimeError(f"{op} got tensors of {NAME} and of the CPU, the latter of sizes {sizes}")
    if name.startswith("_copy_from"):
        inner[1].copy_(inner[0])
        return args[1]
    by_shape = name in VIEWS and not isinstance(inner[1], torch.dtype)
    result = inner[0].reshape(inner[1]) if by_shape else op(*inner, **options)
    device = kwargs.get("device")
    there = bool(far) if device is None else torch.device(device).type == NAME

    def closed(x):
        if not isinstance(x, torch.Tensor):
            return x
        for before in near:
            if before is x:
                return before
        for before in far:
            if before.inner is x:
                if before.shape != x.shape:
                    before.data = _far(x)
                return before
        return _far(x) if there else x

    return pytree.tree_map(closed, result)


def _register():
    _setup_privateuseone_for_python_backend(NAME)
    rest, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    rest.fallback(_run, "PrivateUse1")
    for full in torch._C._dispatch_get_all_op_names():
        name, _, overload = full.removeprefix("aten::").partition(".")
        found = getattr(torch.ops.aten, name, None) if full.startswith("aten::") else None
        op = getattr(found, overload or "default", None)
        taken = ("CompositeImplicitAutograd", "PrivateUse1")
        if op is not None and not any(torch._C._dispatch_has_kernel_for_dispatch_key(full, key) for key in taken):
            aten.impl(full.removeprefix("aten::"), partial(_run, op), "PrivateUse1")
    return rest, aten


LIBRARIES = _register()
"""Registrations hold as long as these do."""


@contextmanager
def staying():
    """A dictionary of places in the package where numbers are computed on the CPU, with the largest result of each."""
    found: dict[str, int] = {}

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            tensors = [x for x in pytree.tree_leaves((args, kwargs, result)) if isinstance(x, torch.Tensor)]
            if any(x.device.type == NAME for x in tensors) or not any(x.is_floating_point() for x in tensors):
                return result
            frame = sys._getframe()
            while frame is not None and not frame.f_code.co_filename.startswith(HOUSE):
                frame = frame.f_back
            if frame is not None:
                where = f"{Path(frame.f_code.co_filename).relative_to(HOUSE).as_posix()}:{frame.f_code.co_qualname}"
                size = max(x.numel() for x in tensors)
                found[where] = max(found.get(where, 0), size)
            return result

    with Watch():
        yield found


def move(model):
    """The model on the device."""
    with torch.no_grad():
        return model.to(NAME)
