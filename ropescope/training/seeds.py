"""The same training with several seeds: one after another, or side by side on a cluster. Each run has a folder of its own.

A run writes its folder itself, where it can be resumed. On a cluster that folder must be on a disk that all machines share:
a run whose machine is lost is resumed elsewhere from its last checkpoint, bit for bit.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import runs
from ..runs import HERE, Engine, spread
from .trainer import Recipe, check_folder, train


@dataclass(frozen=True)
class Sharing:
    """What all runs have in common; the file `mark`, which every machine must see, holds `token`."""

    snapshots: bool
    mark: Path | None = None
    token: str = ""
    on_step: Callable[[int, float, runs.Row | None], None] | None = None


def train_seeds(
    recipes: Mapping[Path, Recipe],
    resume: bool = False,
    snapshots: bool = False,
    engine: Engine = HERE,
    on_step: Callable[[int, float, runs.Row | None], None] | None = None,
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Folders of runs and the results of each, as they finish; with `resume` those that have ended are not touched.

    Nothing is started unless every folder is free or can be resumed. `on_step` is for runs of this process.
    """
    for folder, recipe in recipes.items():
        check_folder(recipe, folder, resume)
    left: list[tuple[Path, Recipe]] = []
    for folder, recipe in recipes.items():
        if (folder / "summary.json").exists():
            yield folder, dict(runs.read_run(folder).results)
        else:
            left.append((folder.resolve(), recipe))
    if not left:
        return
    names = {folder.resolve(): folder for folder in recipes}
    here = engine.name == "here"
    with nullcontext((None, "")) if here else _marked(runs.new_folder(left[0][0].parent)) as (mark, token):
        sharing = Sharing(snapshots, mark, token, on_step if here else None)
        for number, results in spread(train_unit, sharing, left, engine, max(recipe.threads for _, recipe in left)):
            yield names[left[number][0]], results


def train_unit(shared: Sharing, unit: tuple[Path, Recipe]) -> dict[str, Any]:
    """Results of one run, started or resumed."""
    folder, recipe = unit
    if shared.mark is not None and (not shared.mark.is_file() or shared.mark.read_text(encoding="utf-8") != shared.token):
        raise ValueError(
            f"{socket.gethostname()} does not see {shared.mark.parent} of the machine where training was started: "
            "choose `out` on a disk that all machines share"
        )
    # A lost machine may release the folder a moment after its unit is started again elsewhere.
    patience = 0.0 if shared.mark is None else 60.0
    return train(recipe, folder, resume=True, snapshots=shared.snapshots, on_step=shared.on_step, patience=patience)


@contextmanager
def _marked(folder: Path) -> Iterator[tuple[Path, str]]:
    token = secrets.token_hex(8)
    mark = folder / f".shared-{token}"
    runs.write_whole(mark, token)
    try:
        yield mark, token
    finally:
        mark.unlink(missing_ok=True)
