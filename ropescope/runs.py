"""The run folder: results with the settings, versions, seeds and hashes they came from; written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

if TYPE_CHECKING:
    import xarray as xr

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


def claim(folder: Path, config: Mapping[str, Any], holds: str, other: str) -> None:
    """Take a folder for results of these settings, by its `config.json`, or go on in it; a ValueError if it is taken.

    `holds` names what such a folder holds; `other` says what one holds whose settings are not these.
    """
    own, text = folder / "config.json", json.dumps(config, indent=2) + "\n"
    if own.exists():
        if own.read_text() != text:
            raise ValueError(f"{folder} holds {other}: choose another folder for --out")
    elif any(not entry.name.startswith(".") for entry in folder.glob("*")):
        raise ValueError(f"{folder} holds other files but no {holds}: choose another folder for --out")
    write_whole(own, text)


def kept_arrays(path: Path, make: Callable[[], Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The arrays in a file; where there is none, or it was cut short, they are made and kept."""
    with suppress(FileNotFoundError, SafetensorError):
        return load(path.read_bytes())
    arrays = {name: np.asarray(values, order="C") for name, values in make().items()}
    write_whole(path, save(arrays))
    return arrays


def sha256(path: Path) -> str:
    """The hash by which a result names a file."""
    with path.open("rb") as data:  # not all at once: weights of language models are large
        return hashlib.file_digest(data, "sha256").hexdigest()


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


def read_profile(path: Path) -> xr.Dataset:
    """The scores that `ropescope profile` kept; every input has the mean over inputs in its planes."""
    import xarray as xr  # noqa: PLC0415

    try:
        scores = xr.load_dataset(path, engine="scipy")
        names = [str(name) for name in scores.data_vars if str(name).startswith("plane_")]
        return scores.assign({name: scores[name].broadcast_like(scores["input"]) for name in names})
    except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
        raise ValueError(f"{path} holds no profile that can be read ({error}): copy it anew or profile again") from None


@dataclass(frozen=True)
class Run:
    """A run folder as its summary tells it."""

    folder: Path
    summary: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What the folder is called."""
        return self.folder.resolve().name

    @property
    def command(self) -> str:
        """Which command made it."""
        return str(self.summary["command"])

    @property
    def config(self) -> Mapping[str, Any]:
        """What was asked."""
        found: Mapping[str, Any] = self.summary["config"]
        return found

    @property
    def results(self) -> Mapping[str, Any]:
        """What came out."""
        found: Mapping[str, Any] = self.summary["results"]
        return found

    def read(self, name: str) -> Any:
        """A JSON file beside the summary; None if it was not kept."""
        path = self.folder / name
        return _json(path) if path.exists() else None


def find_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs in the folders, or in folders below them, in the order of their names; each is read and checked."""
    found: dict[Path, Run] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder} is no folder: give run folders, or a folder of them")
        marks = [path for name in ("summary.json", "history.safetensors") for path in folder.rglob(name)]
        paths = sorted({path.parent for path in marks}, key=lambda path: [_natural(part) for part in path.parts])
        if not paths:
            raise ValueError(f"{folder} holds no run of ropescope: give folders that its commands have written")
        for path in paths:
            if path.resolve() not in found:
                found[path.resolve()] = read_run(path)
    return list(found.values())


def read_run(folder: Path) -> Run:
    """A run folder; a ValueError in one sentence if it is damaged or its files are not those of its summary."""
    path = folder / "summary.json"
    if not path.exists():  # a training run that has not ended
        return Run(folder, {"command": "train", "config": _json(folder / "config.json"), "results": {}, "sha256": {}})
    summary = _json(path)
    kinds = {"command": str, "config": dict, "results": dict, "sha256": dict}
    if not isinstance(summary, dict) or any(not isinstance(summary.get(key), kind) for key, kind in kinds.items()):
        raise ValueError(f"{path} is no summary of a run of ropescope: give folders that its commands have written")
    for name, expected in summary["sha256"].items():
        if (folder / name).is_file() and sha256(folder / name) != expected:
            raise ValueError(
                f"{folder / name} is not the file its summary was written with (their hashes differ): "
                "copy the folder anew or run its command again"
            )
    return Run(folder, summary)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): copy it anew or run its command again") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}): copy it anew or run its command again") from None


def _no_number(name: str) -> None:
    """What Python reads as a number though JSON has no such thing; no command writes it."""
    raise ValueError(f"{name} is no number")


def _natural(text: str) -> list[tuple[int, str]]:
    """For sorting: run-10 after run-9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]
