"""Measures of a model over its training: the history in memory, the folder it grows in, and the trajectory read back."""

from __future__ import annotations

import atexit
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from .files import write_whole
from .folder import claim, write_summary
from .lock import locked
from .sealed import packed_arrays, read_arrays

Row = dict[str, NDArray[Any]]
"""The measures of a model at one step, each (layer, head), and what else is known, as `loss` () or `accuracy` (hop class)."""

OTHER = "the history of another model, other inputs or other settings"


class History:
    """Rows of measures, step by step. `layers` are the numbers of the measured layers, if not all were measured."""

    def __init__(self, layers: Sequence[int] | None = None) -> None:
        self.layers = None if layers is None else list(layers)
        self.steps: list[int] = []
        self.rows: list[Row] = []

    def add(self, step: int, row: Row) -> None:
        """Append a row. Rows from this step on are dropped: training was resumed from an earlier step."""
        self.drop_after(step - 1)
        self.steps.append(step)
        self.rows.append(row)

    def drop_after(self, step: int) -> None:
        """Drop the rows that are later than a step."""
        count = sum(other <= step for other in self.steps)
        del self.steps[count:], self.rows[count:]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """`step` (S,), every measure with steps as its first axis, and `layer` if not all were measured.

        A measure is NaN in rows that lack it.
        """
        found: dict[str, NDArray[Any]] = {"step": np.array(self.steps, dtype=np.int64)}
        if self.layers is not None:
            found["layer"] = np.array(self.layers, dtype=np.int64)
        shapes = {name: value for row in self.rows for name, value in row.items()}
        for name, like in shapes.items():
            found[name] = np.stack([row[name] if name in row else np.full_like(like, np.nan) for row in self.rows])
        return found

    def write(self, path: Path) -> None:
        """Write one safetensors file, whole."""
        write_whole(path, packed_arrays(self.arrays()))

    @classmethod
    def read(cls, path: Path, up_to: int | None = None) -> History:
        """The history in a file, without rows later than a step."""
        arrays = read_arrays(path)
        layers = arrays.pop("layer", None)
        history = cls(None if layers is None else layers.tolist())
        for n, step in enumerate(arrays.pop("step").tolist()):
            if up_to is None or step <= up_to:
                history.add(step, {name: value[n, ...] for name, value in arrays.items()})
        return history


class HistoryFolder:
    """A run folder that grows row by row and can be read at any time; `config` names the command that writes it.

    `made_by` is the name of the module that measures the rows.

    The file of the history is replaced whole with every row. `summary.json` is written at the end and removed when rows are
    added again, so a folder without one belongs to a run that has not ended. Until then the folder is locked.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any], made_by: str, layers: Sequence[int] | None = None) -> None:
        self.folder, self.config = folder, dict(config)
        self._file = folder / "history.safetensors"
        self._lock = ExitStack()
        self._locked = False
        # This process may hold the folder already, as when the cell of a notebook is run again.
        if (other := _growing.get(folder.resolve())) is not None:
            other.release()
        self._acquire()
        try:
            claim(folder, self.config, made_by, "history of a model", OTHER)
            self.history = self._so_far(layers)
        except ValueError:
            self.release()
            raise
        _growing[folder.resolve()] = self

    def _so_far(self, layers: Sequence[int] | None) -> History:
        if not self._file.exists():
            return History(layers)
        try:
            return History.read(self._file)
        except (ValueError, KeyError) as error:
            raise ValueError(f"{self._file} cannot be resumed ({error}): choose another folder") from None

    def _acquire(self) -> None:
        if not self._locked:
            self._lock.enter_context(locked(self.folder))
            self._locked = True

    def release(self) -> None:
        """Release the lock on the folder."""
        self._lock.close()
        self._locked = False

    def drop_after(self, step: int) -> None:
        """Drop the rows that are later than a step, from which training is resumed."""
        if self.history.steps and self.history.steps[-1] > step:
            self.history.drop_after(step)
            self._write()

    def add(self, step: int, row: Row) -> None:
        """Append a row and write the history."""
        self.history.add(step, row)
        self._write()

    def _write(self) -> None:
        self._acquire()
        (self.folder / "summary.json").unlink(missing_ok=True)
        if self.history.rows:
            self.history.write(self._file)
        else:
            self._file.unlink(missing_ok=True)

    def finish(self, results: Mapping[str, Any]) -> None:
        """Write the summary with these results and the hash of the history, and release the folder."""
        self._acquire()
        files = ["config.json", *([self._file.name] if self.history.rows else [])]
        write_summary(self.folder, str(self.config["command"]), self.config, results, files)
        self.release()


_growing: WeakValueDictionary[Path, HistoryFolder] = WeakValueDictionary()


@atexit.register
def _release_all() -> None:
    for folder in list(_growing.values()):
        folder.release()


@dataclass(frozen=True)
class Trajectory:
    """A model over its training: every measure (step, layer, head); accuracy (step, hop class) and loss (step,) if known.

    `layers` are the numbers of the measured layers.
    """

    name: str
    config: Mapping[str, Any]
    steps: NDArray[np.int64]
    layers: NDArray[np.int64]
    measures: dict[str, NDArray[np.float32]]

    @property
    def command(self) -> str:
        """The command that wrote it: `train`, or the one that its settings name."""
        return str(self.config.get("command", "train"))

    @property
    def task(self) -> str:
        """The task of `ropescope train`; empty for other commands."""
        return str(self.config.get("task", ""))

    @property
    def seed(self) -> int | None:
        """The seed of the training, if it is known."""
        return self.config.get("seed")

    @property
    def accuracy(self) -> NDArray[np.float32] | None:
        """(step, hop class)"""
        return self.measures.get("accuracy")

    @property
    def loss(self) -> NDArray[np.float32] | None:
        """(step,)"""
        return self.measures.get("loss")

    @property
    def one_each(self) -> bool:
        """Whether layers have one head each, so that a layer's number names its head."""
        return bool(self.measures["positional"].shape[2] == 1)

    def head_names(self) -> list[str]:
        """Names of all heads, layer by layer, as "L3 H2"."""
        heads = self.measures["positional"].shape[2]
        return [f"L{layer} H{head}" for layer in self.layers for head in range(heads)]

    def looks(self) -> Trajectory:
        """The trajectory without steps at which measuring failed, where no head has scores."""
        seen = np.isfinite(self.measures["positional"]).any((1, 2))
        if seen.all():
            return self
        return replace(self, steps=self.steps[seen], measures={name: value[seen] for name, value in self.measures.items()})


def read_trajectory(folder: Path) -> Trajectory:
    """The history in a run folder, whether the run has ended or not."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        arrays = read_arrays(folder / "history.safetensors")
    except OSError as error:
        raise ValueError(f"{folder} holds no training run ({error.strerror}): give a folder of `ropescope train`") from None
    except (ValueError, RecursionError) as error:
        raise _damaged(folder, str(error)) from None
    return make_trajectory(folder, folder.name, config, arrays)


def make_trajectory(source: Path, name: str, config: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> Trajectory:
    """The trajectory of a history's arrays and settings; raises a ValueError that names the source if they are damaged."""
    steps, layers = _checked(source, config, arrays)
    return Trajectory(name, config, steps, layers, arrays)


def _damaged(folder: Path, why: str) -> ValueError:
    return ValueError(f"{folder} holds a damaged training run ({why}): copy it again or train again")


def _checked(folder: Path, config: Any, arrays: dict[str, NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Steps and layers, removed from the arrays of a history; raises a ValueError for files that no command has written."""
    if not isinstance(config, dict):
        raise _damaged(folder, "config.json holds no settings")
    if "command" not in config and not (isinstance(config.get("task"), str) and type(config.get("seed")) is int):
        raise _damaged(folder, "it lacks a task or a seed")
    steps, scores = arrays.pop("step", np.zeros(0)), arrays.get("positional", np.zeros(0))
    if steps.ndim != 1 or not len(steps) or steps.dtype.kind != "i" or (np.diff(steps) <= 0).any():
        raise _damaged(folder, "it lacks steps")
    layers = arrays.pop("layer", np.arange(scores.shape[1] if scores.ndim == 3 else 0))
    heads = [value for value in arrays.values() if value.ndim == 3]
    if layers.shape != scores.shape[1:2] or layers.dtype.kind != "i" or any(value.shape != scores.shape for value in heads):
        raise _damaged(folder, "its arrays do not belong together")
    if any(value.ndim == 0 or len(value) != len(steps) or value.dtype.kind != "f" for value in arrays.values()):
        raise _damaged(folder, "its arrays do not belong together")
    return steps, layers
