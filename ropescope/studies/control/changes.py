"""Changes to try, each with random ones of the same size to compare it with: as many planes, or as many heads.

Only what the random ones do not do can be attributed to the frequencies, or to the kind of the heads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...measures.purity import head_kinds
from ...models.adapter import Adapter
from ...models.adapter.edits import Changes, LayerChange
from ...models.adapter.interventions import drop_planes, keep_planes, p_rope, remove_heads, stop_planes
from ...models.adapter.planes import heads_of, ropes_of
from ...models.gptj import GPTJ
from . import KINDS

SHARES = (0.25, 0.5, 0.75, 1.0)
KEPT = (0.5, 0.25, 0.125, 0.0625)

Head = tuple[int, int]
Table = NDArray[np.float64]


@dataclass(frozen=True)
class Unit:
    """One change; `against` names the random ones that it is compared with, which have that name and a number."""

    name: str
    changes: Changes
    against: str | None = None
    drawn: bool = False


def random_like(model: Adapter | GPTJ, changes: Changes, seed: int) -> dict[int, LayerChange]:
    """The same gains and stops, assigned at random to the planes that turn; alike in all layers with equally many planes."""
    ropes, result = ropes_of(model), {}
    for layer, change in changes.items():
        turning = len(ropes[layer].frequencies)
        dealt = np.random.default_rng([seed, turning]).permutation(turning)
        gains = change.gains
        if gains is not None:
            gains = (*(gains[n] for n in dealt), *gains[turning:])
        places = {int(old): new for new, old in enumerate(dealt)}
        result[layer] = replace(change, gains=gains, stopped=tuple(sorted(places[n] for n in change.stopped)))
    return result


def classes(model: Adapter | GPTJ, scores: Mapping[str, Table], share: float = 1.0) -> dict[str, list[Head]]:
    """Heads of each kind, the clearest cases first and no more of a kind than a share of all heads."""
    positional, symbolic = scores["positional"], scores["symbolic"]
    kind, lead = head_kinds(positional, symbolic), symbolic - positional
    clear = {"positional": -lead, "symbolic": lead, "mixed": -np.abs(lead)}
    numbers, most = list(ropes_of(model)), max(1, round(share * kind.size))
    found: dict[str, list[Head]] = {}
    for name in KINDS:
        where = sorted(zip(*np.nonzero(kind == name), strict=True), key=lambda at, name=name: -clear[name][at])  # type: ignore[misc]
        found[name] = [(numbers[layer], int(head)) for layer, head in where[:most]]
    return found


def random_heads(model: Adapter | GPTJ, heads: Sequence[Head], seed: int) -> list[Head]:
    """As many heads, in every layer as many as there: what layers do differs. Where layers have one head, any layers."""
    rng, numbers = np.random.default_rng(seed), heads_of(model)
    every = [(layer, head) for layer, number in numbers.items() for head in range(number)]
    if max(numbers.values()) == 1:
        return [every[n] for n in rng.permutation(len(every))[: len(heads)]]
    counts: dict[int, int] = defaultdict(int)
    for layer, _ in heads:
        counts[layer] += 1
    return [(layer, head) for layer, count in counts.items() for head in rng.permutation(numbers[layer])[:count].tolist()]


def plane_units(model: Adapter | GPTJ, named: Mapping[str, Changes], draws: int, seed: int) -> list[Unit]:
    """Changes of equally many planes, and random ones of the first's size, which all are compared with."""
    first = next(iter(named))
    against = f"random instead of {first}" if draws else None
    units = [Unit(name, change, against) for name, change in named.items()]
    return units + [Unit(f"{against} {n}", random_like(model, named[first], seed + n), drawn=True) for n in range(draws)]


def head_units(model: Adapter | GPTJ, heads: Mapping[str, Sequence[Head]], draws: int, seed: int) -> list[Unit]:
    """Kinds of heads out, each against as many random ones; against none if there are no others."""
    units = []
    for kind, own in heads.items():
        name, all_there_are = f"{kind} heads out", len(own) == sum(heads_of(model).values())
        against = None if all_there_are or not draws else f"random instead of {name}"
        if own:
            units.append(Unit(name, remove_heads(own), against))
        if own and against:
            drawn = (remove_heads(random_heads(model, own, seed + n)) for n in range(draws))
            units += [Unit(f"{against} {n}", others, drawn=True) for n, others in enumerate(drawn)]
    return units


def default_units(model: Adapter | GPTJ, draws: int, seed: int, kept: Sequence[float] = KEPT) -> list[Unit]:
    """Bands from fast to slow dropped, thirds dropped and stopped, slow shares stopped (p-RoPE), all but few planes dropped."""
    thirds = ("fast", "middle", "slow")
    groups: list[dict[str, Changes]] = [
        {f"band {n} of 8 dropped": drop_planes(model, f"{n}/8") for n in range(1, 9)},
        {f"{name} third dropped": drop_planes(model, name) for name in thirds},
        {f"{name} third stopped": stop_planes(model, name) for name in thirds},
    ]
    for share in (100 * part for part in kept):
        ends = ("fastest", "slowest")
        groups.append({f"only {end} {share:.3g}% kept": keep_planes(model, f"{end}{share}%,still") for end in ends})
    units = [unit for group in groups for unit in plane_units(model, group, draws, seed)]
    return units + [Unit(f"slowest {share:.0%} stopped", p_rope(model, share)) for share in SHARES]
