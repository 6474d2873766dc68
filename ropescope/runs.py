"""The run folder: results with the settings, versions, seeds and hashes they came from; written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

PARTS = ("ropescope", "torch", "numpy", "safetensors", "scipy", "altair", "xarray", "transformers", "inspect_ai")
"""Those that are installed are named in every summary."""


def write_whole(path: Path, data: str | bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old one or the new one and nothing between."""
    content = data.encode() if isinstance(data, str) else data
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def new_folder(path: Path) -> Path:
    """The folder for results, made if need be; a ValueError in one sentence if it cannot hold any."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise ValueError(f"--out {path} cannot be written to ({error.strerror}): choose another folder") from None


def sha256(path: Path) -> str:
    """The hash by which a result names a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def plain(values: NDArray[Any]) -> Any:
    """Numbers of a result as nested lists, rounded, as they go into a summary."""
    return np.round(values, 6).tolist()


def write_summary(
    folder: Path, command: str, config: Mapping[str, Any], results: Mapping[str, Any], files: Sequence[str] = ()
) -> Path:
    """`summary.json`: what was asked, what came out, by which versions, and the hashes of the files beside it."""
    summary = {
        "command": command,
        "config": dict(config),
        "results": dict(results),
        "versions": {"python": platform.python_version(), **_versions()},
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "sha256": {name: sha256(folder / name) for name in files},
    }
    path = folder / "summary.json"
    write_whole(path, json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def _versions() -> dict[str, str]:
    found = {}
    for part in PARTS:
        with suppress(PackageNotFoundError):
            found[part] = version(part)
    return found


@dataclass(frozen=True)
class Trajectory:
    """A training run as its watcher saw it: every measure (step, layer, head), accuracy (step, hop class)."""

    name: str
    task: str
    seed: int
    steps: NDArray[np.int64]
    measures: dict[str, NDArray[np.float32]]

    @property
    def accuracy(self) -> NDArray[np.float32]:
        """(step, hop class)"""
        return self.measures["accuracy"]


def read_trajectory(folder: Path) -> Trajectory:
    """The history in a run folder of `ropescope train`, finished or not."""
    try:
        config = json.loads((folder / "config.json").read_text())
        arrays = load((folder / "history.safetensors").read_bytes())
    except OSError as error:
        raise ValueError(f"{folder} holds no training run ({error.strerror}): give a folder of `ropescope train`") from None
    except (ValueError, SafetensorError) as error:
        raise ValueError(f"{folder} holds a damaged training run ({error}): copy it anew or train again") from None
    return Trajectory(folder.name, config["task"], config["seed"], arrays.pop("step"), arrays)
