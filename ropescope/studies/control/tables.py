"""Headline, tables and the labelled dataset of a run in which planes or heads were changed."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import TYPE_CHECKING, Any

from ...runs import Run
from ..study import Table

if TYPE_CHECKING:
    import xarray as xr


def describe(config: Mapping[str, Any]) -> str:
    """The model and the inputs of a run."""
    if "inputs" in config:
        return f"{config['model']}, {config['inputs']:,} test sequences"
    pairs = " and ".join(map(str, config["pairs"]))
    return f"{config['model']}, {config['prompts']} binding prompts each of {pairs} pairs, a text of {config['tokens']} tokens"


def headline(run: Run) -> str:
    """One line on what was tried."""
    return f"{describe(run.config)}: {len(run.results['changes']) - 1} changes"


def dataset(run: Run) -> xr.Dataset:
    """Measures after every change, those of random changes beside them, and mean scores of every layer's heads."""
    import xarray as xr  # noqa: PLC0415

    changes = run.results["changes"]
    names = list(changes["nothing"]["measures"])
    layers = len(changes["nothing"]["positional"])

    def random(key: str) -> list[list[float]]:
        return [[entry.get("random", {}).get(name, {}).get(key, nan) for name in names] for entry in changes.values()]

    def scores(key: str) -> list[list[float]]:
        return [[nan if value is None else value for value in entry[key]] for entry in changes.values()]

    return xr.Dataset(
        {
            "value": (("change", "measure"), [list(entry["measures"].values()) for entry in changes.values()]),
            **{f"random_{key}": (("change", "measure"), random(key)) for key in ("mean", "least", "most")},
            **{key: (("change", "layer"), scores(key)) for key in ("positional", "symbolic")},
        },
        coords={"change": list(changes), "measure": names, "layer": list(range(layers))},
    )


def tables(run: Run) -> list[Table | str]:
    """What the command prints."""
    results = run.results
    changes = results["changes"]
    names = [name for name in changes["nothing"]["measures"] if not name.endswith("pairs: right")]
    rows = [[change, *(_cell(entry, name) for name in names)] for change, entry in changes.items()]
    return [
        "heads: " + ", ".join(f"{number} {kind}" for kind, number in results["kinds"].items()),
        Table(["changed [random: least, most]", *names], rows),
    ]


def _cell(entry: Mapping[str, Any], name: str) -> str:
    shown = f"{entry['measures'][name]:.3f}"
    if "random" in entry:
        others = entry["random"][name]
        shown += f" [{others['least']:.2f}, {others['most']:.2f}]"
    return shown
