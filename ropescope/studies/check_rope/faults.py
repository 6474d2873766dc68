"""Faults of rotation that ports, conversions and runtimes have had, to be made on purpose in any model of `transformers`.

Each takes queries and keys as the model has rotated them, turns them back, and turns them again as faulty code does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...models.adapter.hooks import connected, editing
from ...models.claimed import claim_of
from ...models.trained_pairing import MATRICES
from ...rotations import Claim, Planes, Rotation
from ...rotations.positions import rounded
from ...rotations.scaling import plain

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


@dataclass(frozen=True)
class Site:
    """One layer that gets a fault: its claim, the claims of other layers, and the positions of the current tokens."""

    claim: Claim
    others: Sequence[Claim]
    positions: Array
    head_dim: int
    part: str


@dataclass(frozen=True)
class Fault:
    """A fault of rotation.

    name    what is wrong
    words   one of these is in the sentence that names the cause
    turns   turns of every plane at every position, instead of those claimed (token, plane); None if planes are others
    planes  planes that turn, instead of those claimed
    seen    where it was seen: a project's issue or change; empty for those that we made up
    needs   rope_type that the model must claim; "two" if layers must have two sets of frequencies, "none" if some do not rotate
    parts   which of queries and keys it is in
    """

    name: str
    words: tuple[str, ...]
    turns: Callable[[Site], Complex]
    planes: Callable[[Site], Planes] | None = None
    seen: str = ""
    needs: str = ""
    parts: tuple[str, ...] = ("query", "key")
    mirrored: bool = False
    beyond: int = 0
    """Positions up to here are right."""


def _turned(numbers: Array, rates: Array) -> Complex:
    turns: Complex = np.exp(1j * np.outer(numbers, rates))
    return turns


def _numbered(change: Callable[[Array], Array]) -> Callable[[Site], Complex]:
    return lambda site: _turned(change(site.positions), site.claim.frequencies)


def _rated(change: Callable[[Site], Array]) -> Callable[[Site], Complex]:
    return lambda site: _turned(site.positions, change(site))


def _base(site: Site) -> float:
    return float(site.claim.constants.get("base") or 1e4)


def _sign(site: Site) -> float:
    return float(np.sign(site.claim.frequencies[0])) or 1.0


def _plain(site: Site, base: float | None = None) -> Array:
    return _sign(site) * plain(base or _base(site), len(site.claim.frequencies))


def _other_base(site: Site) -> Array:
    taken = {each.constants.get("base") for each in site.others}
    return _plain(site, next(base for base in (1e4, 5e5, 2e5, 3e4) if base not in taken))


def _other_kind(site: Site) -> Array:
    own = site.claim.frequencies
    rates = (each.frequencies for each in site.others if len(each.frequencies) == len(own))
    return next(each for each in rates if not np.allclose(each, own))


def _ntk(site: Site) -> Array:
    number = len(site.claim.frequencies)
    return _plain(site, _base(site) * 2 ** (number / max(1, number - 1)))


def _whole_head(site: Site) -> Planes:
    return Planes("half", 0, site.head_dim // 2)


def _for_more_dimensions(site: Site) -> Array:
    number = len(site.claim.frequencies)
    return _sign(site) * _base(site) ** (-np.arange(number) / (2 * number))


def _in_bfloat16(site: Site) -> Complex:
    angles = np.outer(site.positions, site.claim.frequencies)
    return rounded(np.cos(angles), "bfloat16") + 1j * rounded(np.sin(angles), "bfloat16")


def _in_float16(site: Site) -> Complex:
    rates = rounded(site.claim.frequencies, "float16")
    with np.errstate(invalid="ignore"):  # float16 ends at 65,504
        turns: Complex = np.exp(1j * rounded(np.outer(site.positions, rates), "float16"))
    return turns


def _other_pairing(site: Site) -> Planes:
    planes = site.claim.planes
    assert planes is not None
    return Planes("interleaved" if planes.pairing == "half" else "half", planes.first, planes.count)


def _fewer_planes(site: Site) -> Planes:
    planes = site.claim.planes
    assert planes is not None
    return Planes(planes.pairing, planes.first, planes.count // 2)


def _ramp(site: Site) -> Array:
    """YaRN with both ends of its transition mixed up: what should be divided is not, and the other way round."""
    unscaled = _plain(site)
    return unscaled * unscaled / site.claim.frequencies / float(site.claim.constants.get("factor") or 1.0)


FAULTS = (
    Fault(
        "halves paired as neighbours, or the reverse",
        ("paired",),
        _rated(lambda s: s.claim.frequencies),
        _other_pairing,
        "mlx-vlm#2323",
    ),
    Fault(
        "half of the rotary dimensions",
        ("dimensions",),
        lambda s: _turned(s.positions, _plain(s)[::2]),
        _fewer_planes,
        "vllm#41185",
    ),
    Fault("scaling forgotten", ("missing", "base is"), _rated(_plain), seen="mlx-vlm#1709", needs="scaled"),
    Fault("local and global bases swapped", ("layers", "base is"), _rated(_other_kind), seen="transformers#43756", needs="two"),
    Fault(
        "a layer that should not rotate does",
        ("rotates",),
        _rated(lambda s: plain(1e4, s.head_dim // 2)),
        _whole_head,
        needs="none",
    ),
    Fault("no rotation", ("does not rotate",), _numbered(np.zeros_like), seen="sqliteai/warp#27"),
    Fault("cosines and sines in bfloat16", ("bfloat16",), _in_bfloat16, seen="transformers#29285"),
    Fault(
        "frequencies in bfloat16",
        ("bfloat16",),
        _rated(lambda s: rounded(s.claim.frequencies, "bfloat16")),
        seen="transformers#25681",
    ),
    Fault("angles in float16", ("float16", "not finite"), _in_float16),
    Fault(
        "position numbers in bfloat16",
        ("bfloat16",),
        _numbered(lambda p: rounded(p, "bfloat16")),
        seen="transformers#29496",
        beyond=256,
    ),
    Fault(
        "position numbers in TF32",
        ("TF32", "float16"),
        _numbered(lambda p: rounded(p, "TF32")),
        seen="transformers#48428",
        beyond=2048,
    ),
    Fault("the other direction", ("backwards",), _numbered(np.negative)),
    Fault("another base", ("base is",), _rated(_other_base)),
    Fault("queries one position ahead of keys", ("position 0", "off by"), _numbered(lambda p: p + 1), parts=("query",)),
    Fault("positions start again every 32 tokens", ("start again",), _numbered(lambda p: p % 32), beyond=31),
    Fault("positions stop at 48", ("stop growing",), _numbered(lambda p: np.minimum(p, 48)), beyond=48),
    Fault("positions doubled", ("times", "multiplied"), _numbered(lambda p: 2 * p)),
    Fault("linear scaling by 4 that is not claimed", ("times", "multiplied"), _rated(lambda s: s.claim.frequencies / 4)),
    Fault("NTK-aware scaling by 2 that is not claimed", ("base is",), _rated(_ntk), seen="mlc-llm#3202"),
    Fault("frequencies for twice the dimensions", ("computed for",), _rated(_for_more_dimensions)),
    Fault(
        "frequencies of the next plane",
        ("next plane", "times", "multiplied"),
        _rated(lambda s: np.append(s.claim.frequencies[1:], 0.0)),
    ),
    Fault("frequencies in reverse order", ("reverse",), _rated(lambda s: s.claim.frequencies[::-1])),
    Fault("wrong sign of a sine", ("no rotation",), _rated(lambda s: s.claim.frequencies), mirrored=True),
    Fault("keys not rotated", ("does not rotate",), _numbered(np.zeros_like), parts=("key",)),
    Fault("factor on lengths forgotten", ("factor on lengths",), _rated(lambda s: s.claim.frequencies), needs="factor"),
    Fault("YaRN's transition the wrong way round", ("scaling", "frequencies"), _rated(_ramp), needs="yarn"),
)


def applies(fault: Fault, claim: Claim, others: Sequence[Claim], context: int) -> bool:
    """Whether a layer can have a fault that changes anything within the context."""
    rates = claim.frequencies
    if context <= fault.beyond + 1:
        return False
    if fault.needs == "none":
        return not len(rates)
    if len(rates) < 2 or not rates.any() or claim.planes is None:
        return False
    unscaled = plain(claim.constants.get("base") or 1e4, len(rates))
    possible = {
        "": True,
        "two": any(len(each.frequencies) == len(rates) and not np.allclose(each.frequencies, rates) for each in others),
        "factor": claim.factor is not None and abs(claim.factor - 1) > 1e-3,
        "scaled": claim.scaling not in ("", "default") and not np.allclose(np.abs(rates), unscaled, rtol=1e-3),
    }
    return possible.get(fault.needs, fault.needs == claim.scaling)


class _Edit:
    """Turns queries and keys of one module as a fault does."""

    stopped: tuple[int, ...] = ()

    def __init__(self, fault: Fault, where: _Where, layer: int) -> None:
        self.fault, self.where, self.layer = fault, where, layer
        self.last: tuple[Tensor, tuple[Tensor, Tensor]] | None = None

    def edit_inputs(self, query: Tensor, key: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Queries and keys of the fault; the same ones for the same queries, which differential attention uses twice."""
        if self.last is None or self.last[0] is not query:
            parts = self.fault.parts
            both = (
                self._edited(query, "query") if "query" in parts else query,
                self._edited(key, "key") if "key" in parts else key,
            )
            self.last = query, both
        return *self.last[1], mask

    def edit_output(self, output: Tensor) -> Tensor:
        """The output as it is."""
        return output

    def _edited(self, x: Tensor, part: str) -> Tensor:
        places = self.where.positions(x.shape[2])
        site = self.where.site(self.layer, x.shape[-1], places, part)
        vectors = x.to(torch.float64)
        if site.claim.planes is not None:  # back to what was before the rotation
            # with the angles that the model itself has, which are rounded to float32, so that nothing else is changed
            angles = np.outer(places, site.claim.frequencies).astype(np.float32).astype(np.float64)
            right = np.exp(-1j * angles) / (site.claim.factor or 1.0)
            vectors = _turn(vectors, site.claim.planes, right)
        planes = site.claim.planes if self.fault.planes is None else self.fault.planes(site)
        assert planes is not None
        factor = 1.0 if self.fault.needs == "factor" else site.claim.factor or 1.0
        turns = self.fault.turns(site) * factor
        return _turn(vectors, planes, turns, self.fault.mirrored).to(x.dtype)


def _turn(x: Tensor, planes: Planes, turns: Complex, mirrored: bool = False) -> Tensor:
    """Vectors (B, H, T, d) whose planes are turned; mirrored: with the wrong sign of one sine, so that it is no rotation."""
    first, last = planes.first, planes.first + 2 * planes.count
    inside = x[..., first:last]
    if planes.pairing == "half":
        a, b = inside[..., : planes.count], inside[..., planes.count :]
    else:
        a, b = inside[..., ::2], inside[..., 1::2]
    cos, sin = torch.from_numpy(turns.real.copy()), torch.from_numpy(turns.imag.copy())
    new = (a * cos - b * sin, b * cos + (-1 if mirrored else 1) * a * sin)
    whole = torch.cat(new, -1) if planes.pairing == "half" else torch.stack(new, -1).flatten(-2)
    return torch.cat((x[..., :first], whole, x[..., last:]), -1)


class _Where:
    """Claims of all layers of a model, and the positions of the tokens that pass through it."""

    def __init__(self, config: Any, layers: Sequence[int]) -> None:
        self.config, self.layers = config, layers
        self.ids: Tensor | None = None
        self.claims: dict[tuple[int, int, int], Claim | None] = {}

    def positions(self, tokens: int) -> Array:
        """Position numbers of the current tokens."""
        return np.arange(tokens, dtype=float) if self.ids is None else self.ids[0].double().numpy(force=True)

    def claim(self, layer: int, size: int, length: int) -> Claim | None:
        """The claim of a layer, computed once."""
        if (layer, size, length) not in self.claims:
            self.claims[layer, size, length] = claim_of(self.config, layer, size, length)
        return self.claims[layer, size, length]

    def site(self, layer: int, size: int, places: Array, part: str) -> Site:
        """A layer with the current positions."""
        length = int(places.max()) + 1
        claim = self.claim(layer, size, length)
        assert claim is not None
        others = [each for other in self.layers if (each := self.claim(other, size, length)) is not None]
        return Site(claim, others, places, size, part)


@contextlib.contextmanager
def faulty(model: Any, fault: Fault, modules: Mapping[int, nn.Module], layers: Sequence[int]) -> Iterator[None]:
    """Within it, some layers of a model have a fault.

    modules  attention modules by layer
    layers   layers that have the fault
    """
    where = _Where(model.config, list(modules))
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model

    def note(_: nn.Module, __: Any, kwargs: dict[str, Any]) -> None:
        where.ids = kwargs.get("position_ids")

    hooks = [each.register_forward_pre_hook(note, with_kwargs=True) for each in {model, decoder}]
    try:
        with connected(model), editing({modules[layer]: _Edit(fault, where, layer) for layer in layers}):
            yield
    finally:
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def permuted_weights(modules: Sequence[nn.Module], rotations: Sequence[Rotation]) -> Iterator[None]:
    """Within it, weights of queries and keys are ordered for the other pairing, as a conversion leaves them that forgets this.

    modules    attention modules
    rotations  the rotation of each
    """
    before: list[tuple[Tensor, Tensor]] = []
    try:
        for module, rotation in zip(modules, rotations, strict=True):
            order = _other_order(rotation)
            for weight in _ordered_weights(module, len(order)):
                before.append((weight, weight.detach().clone()))
                rows = weight.detach().reshape(-1, len(order), *weight.shape[1:])
                weight.data = rows[:, order].reshape(weight.shape)
        yield
    finally:
        for weight, old in before:
            weight.data = old


def _other_order(rotation: Rotation) -> Tensor:
    """The dimension that comes to each place, so that what was a plane is one for the other pairing."""
    planes, order = rotation.planes, torch.arange(rotation.head_dim)
    inside = order[planes.first : planes.first + 2 * planes.count]
    other = inside.reshape(2, -1).T if planes.pairing == "half" else inside.reshape(-1, 2).T
    return torch.cat((order[: planes.first], other.reshape(-1), order[planes.first + 2 * planes.count :]))


def _ordered_weights(module: nn.Module, size: int) -> Iterator[Tensor]:
    """Weights and biases of queries and keys, and weights of norms of their heads."""
    for name in (*MATRICES, "q_norm", "k_norm"):
        for parameter in getattr(module, name, nn.Identity()).parameters():
            if len(parameter) % size == 0:
                yield parameter
