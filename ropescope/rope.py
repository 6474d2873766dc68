"""Rotary position embedding (RoPE): which pairs of a head's dimensions rotate, and at which frequencies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from .inputs import whole

Pairing = Literal["half", "interleaved"]


@dataclass(frozen=True, init=False)
class Rope:
    """The rotation of one head: plane `f` rotates by `position * frequencies[f]` radians.

    head_dim     number of dimensions of a head, d; by default twice the number of `frequencies`
    base         frequencies are `base ** (-2f / rotary_dim)`, unless `frequencies` is given
    rotary_dim   number of dimensions that rotate, even; all by default; 0 is NoPE
    pairing      which two dimensions form plane `f` of `F`: "half" pairs `f` with `F + f` (Llama, NeoX, Qwen, Gemma),
                 "interleaved" pairs `2f` with `2f + 1` (GPT-J, llama2.c)
    frequencies  radians per position for each plane, instead of a base; a plane of frequency 0 does not rotate

    Dimensions from `rotary_dim` on do not rotate. Together they count as one last plane of frequency 0.

    Raises ValueError if sizes do not match, or base, frequencies or pairing are invalid.

    >>> import torch, ropescope as rs
    >>> rs.Rope(head_dim=4, base=100.0)
    Rope(head_dim=4, frequencies=(1.0, 0.1), pairing='half')
    >>> len(rs.Rope(head_dim=64, rotary_dim=16).plane_frequencies)  # partial rotary: 8 planes, and one for the rest
    9
    >>> quarter = rs.Rope(frequencies=[torch.pi / 2])  # one plane, a quarter turn per position
    >>> quarter.rotate(torch.tensor([[1.0, 0.0]] * 3), [0, 1, 2]).round().int().tolist()
    [[1, 0], [0, 1], [-1, 0]]
    >>> quarter.unrotate(torch.tensor([0.0, 1.0]), 1).round().int().tolist()
    [1, 0]
    """

    head_dim: int
    frequencies: tuple[float, ...]
    pairing: Pairing

    def __init__(
        self,
        head_dim: int | None = None,
        base: float = 10000.0,
        rotary_dim: int | None = None,
        pairing: Pairing = "half",
        frequencies: Iterable[float] | Tensor | None = None,
    ) -> None:
        if frequencies is not None:
            frequencies = tuple(float(f) for f in frequencies)
            if rotary_dim not in (None, 2 * len(frequencies)):
                raise ValueError(
                    f"rotary_dim is {rotary_dim} but frequencies holds {len(frequencies)} planes of two dimensions: "
                    f"omit rotary_dim"
                )
            rotary_dim = 2 * len(frequencies)
            head_dim = rotary_dim if head_dim is None else head_dim
        elif head_dim is None:
            raise ValueError("head_dim or frequencies must be given, to know the planes of the rotation")
        head_dim = whole("head_dim", head_dim)
        if head_dim < 1:
            raise ValueError(f"head_dim must be at least 1, not {head_dim}")
        rotary_dim = head_dim if rotary_dim is None else whole("rotary_dim", rotary_dim)
        if rotary_dim % 2 or not 0 <= rotary_dim <= head_dim:
            raise ValueError(f"rotary_dim must be even and between 0 and head_dim = {head_dim}, not {rotary_dim}")
        if frequencies is None:
            if not (base > 0 and math.isfinite(base)):
                raise ValueError(f"base must be a positive number, not {base}")
            frequencies = tuple(base ** (-i / rotary_dim) for i in range(0, rotary_dim, 2))
        if not all(map(math.isfinite, frequencies)):
            raise ValueError("frequencies must be finite numbers")
        if pairing not in ("half", "interleaved"):
            raise ValueError(f'pairing must be "half" or "interleaved", not {pairing!r}')
        object.__setattr__(self, "head_dim", head_dim)
        object.__setattr__(self, "frequencies", frequencies)
        object.__setattr__(self, "pairing", pairing)

    @property
    def rotary_dim(self) -> int:
        """Number of dimensions that rotate."""
        return 2 * len(self.frequencies)

    @property
    def plane_frequencies(self) -> tuple[float, ...]:
        """One frequency per plane. The dimensions that do not rotate are a last plane of frequency 0."""
        return self.frequencies + ((0.0,) if self.rotary_dim < self.head_dim else ())

    def rotate(self, x: Float[Tensor, "*batch d"], positions: Tensor | Sequence[float] | float) -> Float[Tensor, "*batch d"]:
        """Vectors rotated to `positions` (any real numbers, broadcast to `x.shape[:-1]`)."""
        turned, still = self.to_planes(x)
        where = torch.as_tensor(positions, dtype=torch.float64, device=x.device)
        angles = where[..., None] * torch.tensor(self.frequencies, dtype=torch.float64, device=x.device)
        turn = torch.polar(torch.ones_like(angles), angles).to(turned.dtype)
        return self.from_planes(turned * turn, still).to(x.dtype)

    def unrotate(self, x: Float[Tensor, "*batch d"], positions: Tensor | Sequence[float] | float) -> Float[Tensor, "*batch d"]:
        """Inverse of `rotate`: the content of vectors that were rotated to `positions`."""
        return self.rotate(x, -torch.as_tensor(positions, dtype=torch.float64, device=x.device))

    def to_planes(self, x: Float[Tensor, "*batch d"]) -> tuple[Complex[Tensor, "*batch F"], Float[Tensor, "*batch rest"]]:
        """One complex number per rotating plane, and the dimensions that do not rotate."""
        if x.shape[-1] != self.head_dim:
            raise ValueError(f"x must have head_dim = {self.head_dim} numbers in its last axis, not {x.shape[-1]}")
        if x.dtype not in (torch.float32, torch.float64):
            x = x.float()
        turning, still = x[..., : self.rotary_dim], x[..., self.rotary_dim :]
        planes = len(self.frequencies)
        if self.pairing == "half":
            return torch.complex(turning[..., :planes], turning[..., planes:]), still
        return torch.view_as_complex(turning.unflatten(-1, (planes, 2)).contiguous()), still

    def from_planes(
        self, turning: Complex[Tensor, "*batch F"], still: Float[Tensor, "*batch rest"]
    ) -> Float[Tensor, "*batch d"]:
        """Inverse of `to_planes`."""
        if self.pairing == "half":
            return torch.cat((turning.real, turning.imag, still), -1)
        turned = torch.view_as_real(turning).flatten(-2)
        return torch.cat((turned, still), -1) if still.shape[-1] else turned  # saves a copy where all dimensions rotate
