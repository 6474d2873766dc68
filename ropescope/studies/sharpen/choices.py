"""What to try: which heads are sharpened, random heads to compare them with, and rivals that change the rotation instead."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...measures.purity import head_kinds
from ...models.adapter import Adapter
from .names import ALL, BASE, FEW, NONE, POSITIONAL, RANDOM, SYMBOLIC, with_base

Head = tuple[int, int]
"""Number of the layer, and query head."""
Table = NDArray[np.float64]

STOPPED = (0.25, 0.5)
"""Shares of planes, the slowest, that stop in p-RoPE. Barbero et al. name it by the rest: their best is 0.75-RoPE."""


@dataclass(frozen=True)
class Choice:
    """One thing to try.

    name     of it
    heads    heads that are sharpened
    stopped  share of planes, the slowest, that no longer turn
    base     factor of the length for which the base is enlarged; 1 for the model's own
    drawn    whether the heads are drawn at random, as many as are symbolic
    """

    name: str
    heads: tuple[Head, ...] = ()
    stopped: float = 0.0
    base: float = 1.0
    drawn: bool = False

    @property
    def key(self) -> str:
        """A name for the file of its results, which choices that change the same share."""
        content = json.dumps([sorted(self.heads), self.stopped, self.base])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def without(self) -> str:
        """The choice that it is compared with to see what it gains: no head sharpened, and the same base."""
        return BASE if self.heads and self.base != 1 else NONE


def heads_by_kind(layers: Sequence[int], positional: Table, symbolic: Table) -> dict[str, list[Head]]:
    """Heads that are mainly positional, symbolic or neither, by the scores (layer, head) of a profile."""
    kinds = head_kinds(positional, symbolic)
    return {
        kind: [(layers[row], int(head)) for row, head in np.argwhere(kinds == kind).tolist()]
        for kind in (POSITIONAL, SYMBOLIC, "mixed", "unscored")
    }


def most_positional(kinds: Mapping[str, Sequence[Head]], layers: Sequence[int], lead: Table) -> tuple[Head, ...]:
    """As many positional heads as there are symbolic ones, the clearest cases first; none if they are fewer.

    lead  symbolic score less the positional one (layer, head)
    """
    count, rows = len(kinds[SYMBOLIC]), {layer: row for row, layer in enumerate(layers)}
    if len(kinds[POSITIONAL]) < count:
        return ()
    return tuple(sorted(sorted(kinds[POSITIONAL], key=lambda head: lead[rows[head[0]], head[1]])[:count]))


def choices(
    kinds: Mapping[str, Sequence[Head]], few: Sequence[Head], factor: float, draws: int, seed: int, larger_base: bool = True
) -> list[Choice]:
    """Everything to try, last the random choices; a kind without heads is left out.

    kinds   heads of each kind
    few     as many positional heads as there are symbolic ones
    factor  tokens of a passage over the trained length
    """
    every = sorted(head for own in kinds.values() for head in own)
    named = {SYMBOLIC: kinds[SYMBOLIC], POSITIONAL: kinds[POSITIONAL], FEW: few, ALL: every}
    sharpened = {name: tuple(heads) for name, heads in named.items() if heads}
    found = [Choice(NONE), *(Choice(name, heads) for name, heads in sharpened.items())]
    found += [Choice(f"p-RoPE, slowest {share:.0%} stopped", stopped=share) for share in STOPPED]
    if larger_base:
        found.append(Choice(BASE, base=factor))
        found += [Choice(with_base(name), heads, base=factor) for name, heads in sharpened.items()]
    for draw in range(draws if kinds[SYMBOLIC] else 0):
        heads = random_heads(every, len(kinds[SYMBOLIC]), [seed, draw])
        found.append(Choice(f"{RANDOM} {draw}", heads, drawn=True))
        if larger_base:
            found.append(Choice(with_base(f"{RANDOM} {draw}"), heads, base=factor, drawn=True))
    return found


def random_heads(every: Sequence[Head], count: int, seed: Sequence[int]) -> tuple[Head, ...]:
    """So many of all heads."""
    return tuple(sorted(every[n] for n in np.random.default_rng(seed).permutation(len(every))[:count]))


# A larger base


def can_rebase(adapter: Adapter) -> bool:
    """Whether the model has one base for all layers, without scaling, in a rotary module that can be replaced."""
    model: Any = adapter.model
    settings = getattr(model.config, "rope_parameters", None) or {}
    plain = settings.get("rope_type", "default") == "default" and "rope_theta" in settings
    return plain and getattr(_decoder(model), "rotary_emb", None) is not None


def _decoder(model: Any) -> Any:
    return model.get_decoder() if hasattr(model, "get_decoder") else None


def larger_base(base: float, turning: int, factor: float) -> float:
    """The base that is called NTK-aware: the slowest of the planes turns slower by `factor`, the fastest as fast as before.

    turning  dimensions that turn

    >>> from ropescope.studies.sharpen.choices import larger_base
    >>> base = larger_base(10000.0, 48, 4.0)
    >>> round(10000.0 ** (-46 / 48) / base ** (-46 / 48), 6)
    4.0
    """
    return float(base * factor ** (turning / (turning - 2)))


@contextlib.contextmanager
def rebased(adapter: Adapter, factor: float) -> Iterator[None]:
    """Within it, the model turns with the base for inputs longer by `factor`, at all positions; 1 changes nothing."""
    if factor == 1:
        yield
        return
    model: Any = adapter.model
    config, decoder = model.config, _decoder(model)
    before, rotary = config.rope_parameters, decoder.rotary_emb
    base = larger_base(before["rope_theta"], adapter.ropes[0].rotary_dim, factor)
    try:
        config.rope_parameters = {**before, "rope_theta": base}
        decoder.rotary_emb = type(rotary)(config).to(next(model.parameters()).device)
        yield
    finally:
        config.rope_parameters, decoder.rotary_emb = before, rotary
