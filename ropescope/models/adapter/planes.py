"""Choosing RoPE planes by a text, in any model: by number, band, or share of the fastest or slowest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...rope import Rope
from ..gptj import GPTJ
from .adapter import Adapter

Planes = str | Mapping[int, Sequence[int]]
"""Planes by `select_planes`, or by layer, from 0 on."""


def ropes_of(model: Adapter | GPTJ) -> dict[int, Rope]:
    """The rotation of each attention layer, by its number."""
    if isinstance(model, GPTJ):
        return dict(enumerate(model.config.ropes))
    return dict(zip(model.layers, model.ropes, strict=True))


def heads_of(model: Adapter | GPTJ) -> dict[int, int]:
    """The number of query heads of each attention layer, by the layer's number."""
    if isinstance(model, GPTJ):
        return dict.fromkeys(range(model.config.layers), model.config.heads)
    return dict(zip(model.layers, model.heads, strict=True))


def key_heads_of(model: Adapter | GPTJ) -> dict[int, int]:
    """The number of key heads of each attention layer, by the layer's number."""
    if isinstance(model, GPTJ):
        return heads_of(model)
    return dict(zip(model.layers, model.key_heads, strict=True))


def select_planes(rope: Rope, text: str) -> tuple[int, ...]:
    """Planes of a rotation, from 0 on, by a list of

        3, 1-8          the planes themselves, from 1 on as in every table and chart; those that it lacks are ignored
        2/8             the second of eight equal bands, from fast to slow
        fast, middle, slow      bands of three: 1/3, 2/3, 3/3
        fastest25%, slowest25%  a share
        still           the dimensions that never turn

    Bands and shares are of planes that turn; dimensions that never turn are in none of them.
    """
    order = sorted(range(len(rope.frequencies)), key=lambda plane: -abs(rope.frequencies[plane]))
    planes, chosen = len(rope.plane_frequencies), set[int]()
    for part in text.replace(" ", "").split(","):
        if number := re.fullmatch(r"(\d+)(?:-(\d+))?", part):
            first, last = int(number[1]), int(number[2] or number[1])
            if not 1 <= first <= last:
                raise ValueError(f"planes {part!r} is no range: planes count from 1, as in 1-8")
            chosen.update(range(first - 1, min(last, planes)))
        elif share := re.fullmatch(r"(fastest|slowest)(\d+(?:\.\d+)?)%", part):
            count = round(check_share(float(share[2]) / 100) * len(order))
            chosen.update(order[:count] if share[1] == "fastest" else order[len(order) - count :])
        elif part == "still":
            chosen.update(range(len(order), planes))
        else:
            named = {"fast": "1/3", "middle": "2/3", "slow": "3/3"}.get(part, part)
            band = re.fullmatch(r"(\d+)/(\d+)", named)
            if not band or not 1 <= int(band[1]) <= int(band[2]):
                raise ValueError(
                    f"planes {part!r} is not understood: give ids as in 1-8,20, or fast, middle, slow, still, 2/8, "
                    f"fastest25% or slowest25%"
                )
            bounds = [round(k * len(order) / int(band[2])) for k in (int(band[1]) - 1, int(band[1]))]
            chosen.update(order[slice(*bounds)])
    return tuple(sorted(chosen))


def check_share(share: float) -> float:
    """The share itself; ValueError if it is not from 0 to 1."""
    if not 0 <= share <= 1:
        raise ValueError(f"a share of planes must be from 0 to 1 (0 % to 100 %), not {share:g}")
    return share


def chosen_planes(model: Adapter | GPTJ, planes: Planes) -> Mapping[int, Sequence[int]]:
    """The chosen planes of each layer; ValueError if no layer has any of those that a text names."""
    if not isinstance(planes, str):
        return planes
    chosen = {layer: select_planes(rope, planes) for layer, rope in ropes_of(model).items()}
    if not any(chosen.values()):
        most = max(len(rope.plane_frequencies) for rope in ropes_of(model).values())
        raise ValueError(f"planes {planes!r} are in no layer of the model, which has at most {most}")
    return chosen
