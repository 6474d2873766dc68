"""Rotated queries and keys of equal tokens, as a model of `transformers` computes them at positions of our choice."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...rotations import find_planes
from .adapter import _check_type, _evaluating, _forward, _trial_ids
from .calls import AttentionCall, RefusedError
from .hooks import observing
from .wrapped import device_of, named_tensors, unwrapped

Array = NDArray[np.float64]

SINGLE = 2.0**-24
"""Rounding of tables that are computed in single precision, also in models of double precision."""
PROJECTED = {"query": r"(^|_)(q|query)(_|$)", "key": r"(^|_)(k|key)(_|$)"}
"""Names of modules whose output may be queries or keys before the rotation."""


@dataclass(frozen=True)
class Turned:
    """Queries or keys of one layer: vectors of equal tokens (head, token, dimension) after the rotation.

    before     the vector of each head that may be the one before it: what the last module of that name returned
    positions  position number of each token
    noise      rounding of one number, relative to it
    lost       the first position at which numbers are not finite; those from there on are left out
    """

    layer: int
    part: str
    after: Array
    before: Array | None
    positions: Array
    noise: float
    lost: float | None = None


OnTurned = Callable[[Turned], None]


class Turning:
    """Reads rotated queries and keys of a model of `transformers`.

    In every layer all tokens get the hidden state of the second one, so that queries and keys differ by the rotation alone,
    whatever earlier layers do. `layers` are the numbers of layers that attend.

    Raises RefusedError if the model's attention cannot be read.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = unwrapped(model)
        self.family = str(getattr(getattr(self.model, "config", None), "model_type", type(self.model).__name__))
        _check_type(self.model, self.family)
        self.modules: list[nn.Module] = []
        self.takes_positions = "position_ids" in inspect.signature(self.model.forward).parameters
        ids = _trial_ids(self.model)[:, :4]
        with self._observed(lambda call: self.modules.append(call.module)):
            _forward(self.model, ids)
        if not self.modules:
            raise RefusedError(f"{self.family}: its attention cannot be read, as it does not go through an interface we know")
        own = [int(number) for module in self.modules if (number := getattr(module, "layer_idx", None)) is not None]
        count = len(self.modules)
        self.layers = own if len(own) == count and sorted(set(own)) == own else list(range(count))

    @contextlib.contextmanager
    def _observed(self, on_call: Callable[[AttentionCall], None]) -> Iterator[None]:
        with _evaluating(self.model), observing(self.model, on_call, set()), torch.inference_mode():
            yield

    def read(self, tokens: int, on_turned: OnTurned, positions: Sequence[int] | None = None) -> None:
        """Call back with queries, then keys of every layer, from one pass over `tokens` tokens, at `positions` if given."""
        device = device_of(self.model)
        ids = _trial_ids(self.model).repeat(1, tokens // 4 + 1)[:, :tokens]
        where = np.arange(tokens, dtype=float) if positions is None else np.asarray(positions, dtype=float)
        given = {} if positions is None else {"position_ids": torch.tensor([list(positions)], device=device)}
        projected: dict[nn.Module, dict[str, list[Tensor]]] = {module: {} for module in self.modules}
        count = 0

        def on_call(call: AttentionCall) -> None:
            nonlocal count
            if count >= len(self.layers):
                raise RefusedError(f"{self.family}: on this input other layers attend than on the trial input")
            number = self.layers[count]
            count += 1
            noise = max(float(torch.finfo(call.key.dtype).eps) / 2, SINGLE)
            for part, vectors in (("query", call.query), ("key", call.key)):
                if vectors.shape[2] != tokens:
                    raise RefusedError(f"{self.family}: layer {number}: its {part} vectors are not those of single tokens")
                after = vectors[0].double().numpy(force=True)
                before = _before(projected[call.module].get(part, []), after)
                fine = np.isfinite(after).all((0, 2))
                if fine.sum() < 4:
                    raise RefusedError(f"{self.family}: layer {number}: its {part} vectors are not finite numbers")
                lost = None if fine.all() else float(where[~fine].min())
                after = _without_norm(call.module, part, after[:, fine], noise)
                on_turned(Turned(number, part, after, before, where[fine], noise, lost))
            projected[call.module].clear()

        with contextlib.ExitStack() as stack:
            for module in set(self.modules):
                stack.callback(module.register_forward_pre_hook(_equalised, with_kwargs=True).remove)
                for name, child in module.named_children():
                    for part, pattern in PROJECTED.items():
                        if re.search(pattern, name):
                            kept = projected[module]
                            hook = child.register_forward_hook(lambda _, __, out, part=part, kept=kept: _keep(kept, part, out))
                            stack.callback(hook.remove)
            stack.enter_context(self._observed(on_call))
            _run(self.model, ids.to(device), given)


def _run(model: Any, ids: Tensor, given: dict[str, Tensor]) -> None:
    inner = model.get_decoder() if hasattr(model, "get_decoder") else None
    if isinstance(inner, nn.Module) and inner is not model and _takes(inner, given):
        inner(input_ids=ids, use_cache=False, **given)
    else:
        model(input_ids=ids, use_cache=False, **given)


def _takes(module: nn.Module, given: dict[str, Tensor]) -> bool:
    return {"input_ids", *given} <= set(inspect.signature(module.forward).parameters)


def _equalised(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a layer in which all tokens have the hidden state of the second one."""
    if isinstance(hidden := kwargs.get("hidden_states"), Tensor):
        return args, kwargs | {"hidden_states": _same(hidden)}
    if args and isinstance(args[0], Tensor):
        return (_same(args[0]), *args[1:]), kwargs
    raise RefusedError("its hidden states are not passed in a way we know")


def _same(hidden: Tensor) -> Tensor:
    one = hidden[:, 1:2]
    if not one.isfinite().all():  # an earlier layer has failed: any other state shows the rotation of this one as well
        one = torch.randn(one.shape, generator=torch.Generator().manual_seed(0)).to(one)
    return one.expand_as(hidden).contiguous()


def _keep(kept: dict[str, list[Tensor]], part: str, output: Any) -> None:
    if isinstance(output, Tensor):
        kept.setdefault(part, []).append(output)


def _before(outputs: list[Tensor], after: Array) -> Array | None:
    """The vector of each head that the last module with as many outputs returned."""
    heads, _, size = after.shape
    for output in reversed(outputs):
        if output.numel() == after.size:
            x = output[0].double().numpy(force=True)
            found: Array = x[:, 0] if x.shape == after.shape else x[0].reshape(heads, size)
            return found
    return None


def _without_norm(module: nn.Module, part: str, after: Array, noise: float) -> Array:
    """Vectors without the weights of a norm that some families apply after the rotation."""
    letter = "q(uery)?" if part == "query" else "k(ey)?"
    weights = [
        weight.double().numpy(force=True)
        for name, weight in named_tensors(module)
        if re.search(rf"(^|\.){letter}_?(layer_?)?norm", name) and name.endswith("weight") and weight.shape == after.shape[-1:]
    ]
    tried = [after / weight for weight in weights if (weight != 0).all()]
    return min([after, *tried], key=lambda x: find_planes(x, None, noise).residual)
