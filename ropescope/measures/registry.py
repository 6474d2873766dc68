"""The measures of attention heads, each named once: name, label, axes and function.

A measure is a function of a `LayerView`. Profiles, watchers, datasets, figures and the page read names, labels and axes from
here, so a new measure takes two steps: write it in a module of this folder, and list the module in `MODULES`.

>>> from ropescope.measures.registry import measures
>>> measures("exclusion")["exclusion_bound"].label
'its bound by the exclusion principle'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TypeAlias

import torch
from torch import Tensor

from .view import LayerView

MODULES = ("block_scores", "attention", "sensitivity", "redrawn", "contrast", "plane_scores")
"""Modules of this folder that register measures. Datasets list measures in this order."""

Compute: TypeAlias = Callable[[LayerView], Tensor]
HEAD_AXES = ("layer", "head")

_registered: dict[str, Measure] = {}


@dataclass(frozen=True)
class Measure:
    """A number, or several, of every head of a layer on every input.

    name        of the variable in a dataset
    label       one line that says what it is, for figures and tables
    axes        axes behind "input", out of "tau", "draw", "layer", "head" and "plane"
    compute     function of a `LayerView`; its result has the axes "input" and `axes` without "layer", in this order
    group       measures that are computed or left out together
    module      name of the module that defines it
    min_blocks  least number of visible blocks; the measure is NaN in a layer whose window leaves fewer
    """

    name: str
    label: str
    axes: tuple[str, ...]
    compute: Compute
    group: str
    module: str
    min_blocks: int = 2


def measure(
    name: str, label: str, *, group: str, axes: Sequence[str] = HEAD_AXES, min_blocks: int = 2
) -> Callable[[Compute], Compute]:
    """Decorator that registers a function of a `LayerView` as a measure. Arguments are the fields of `Measure`."""

    def register(function: Compute) -> Compute:
        _register(Measure(name, label, tuple(axes), function, group, function.__module__, min_blocks))
        return function

    return register


def joint_measures(
    labels: dict[str, str], *, group: str, axes: Sequence[str] = HEAD_AXES, min_blocks: int = 2
) -> Callable[[Callable[[LayerView], Sequence[Tensor]]], Callable[[LayerView], Sequence[Tensor]]]:
    """Decorator for a function that computes several measures at once and returns them in the order of `labels`.

    labels  name of each measure to its label; other arguments are the fields of `Measure`
    """

    def register(function: Callable[[LayerView], Sequence[Tensor]]) -> Callable[[LayerView], Sequence[Tensor]]:
        def output(number: int) -> Compute:
            return lambda view: view.once(function)[number]

        for number, (name, label) in enumerate(labels.items()):
            _register(Measure(name, label, tuple(axes), output(number), group, function.__module__, min_blocks))
        return function

    return register


def _register(new: Measure) -> None:
    if new.name in _registered:
        raise ValueError(f"a measure named {new.name!r} is registered already: choose another name")
    _registered[new.name] = new


def measures(*groups: str, axes: Sequence[str] | None = None) -> dict[str, Measure]:
    """Registered measures by name, in the order of datasets.

    groups  only those of these groups; of all groups if none is given
    axes    only those with exactly these axes

    Raises ValueError if a group does not exist.
    """
    order = {import_module(f".{module}", __package__).__name__: number for number, module in enumerate(MODULES)}
    if unknown := set(groups) - {known.group for known in _registered.values()}:
        raise ValueError(f"there is no group of measures named {min(unknown)!r}: choose among {', '.join(measure_groups())}")
    return {
        name: known
        for name, known in sorted(_registered.items(), key=lambda item: order.get(item[1].module, len(order)))
        if (not groups or known.group in groups) and (axes is None or known.axes == tuple(axes))
    }


def measure_groups() -> tuple[str, ...]:
    """Names of the groups of measures."""
    return tuple(dict.fromkeys(known.group for known in measures().values()))


def compute(view: LayerView, chosen: Iterable[Measure]) -> dict[str, Tensor]:
    """Values of the chosen measures by name, with axes "input" and those of the measure without "layer".

    A measure that needs more blocks than the layer's last query sees is NaN.
    """
    visible = len(view.visible_blocks)
    return {each.name: each.compute(view) if visible >= each.min_blocks else _blank(view, each) for each in chosen}


def _blank(view: LayerView, missing: Measure) -> Tensor:
    shape = [view.sizes[axis] for axis in ("input", *missing.axes) if axis != "layer"]
    return torch.full(shape, torch.nan, dtype=torch.float64)
