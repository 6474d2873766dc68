"""The run folder: results beside the settings, versions, seeds and hashes they came from."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .files import sha256, write_whole
from .key import keyed, refuse_other
from .sealed import read_json, read_sealed, sealed

if TYPE_CHECKING:
    import xarray as xr

PACKAGES = ("ropescope", "torch", "numpy", "safetensors", "scipy", "altair", "xarray", "transformers", "inspect_ai")
"""Every summary records the versions of those that are installed."""


def claim(folder: Path, config: Mapping[str, Any], made_by: str | None, holds: str, other: str) -> None:
    """Reserve a folder for results of these settings by writing its `config.json`, or resume in it.

    made_by  name of the module that computes what is stored; None if no code of ours determines it

    Raises a ValueError if the folder is in use for something else: `holds` names what such a folder holds, `other` what it
    holds if its settings differ.
    """
    own, key = folder / "config.json", keyed(config, made_by)
    if own.exists():
        refuse_other(own, key, other)
    elif any(not entry.name.startswith(".") for entry in folder.glob("*")):
        raise ValueError(f"{folder} holds other files but no {holds}: choose another folder")
    write_whole(own, json.dumps(key, indent=2) + "\n")


def plain(values: NDArray[Any]) -> Any:
    """Numbers of a result as nested lists, rounded to 6 digits for a summary."""
    return np.round(values, 6).tolist()


def write_summary(
    folder: Path, command: str, config: Mapping[str, Any], results: Mapping[str, Any], files: Sequence[str] = ()
) -> Path:
    """Write `summary.json`: settings, results, versions, and the hashes of the files beside it. Returns its path."""
    path = folder / "summary.json"
    write_whole(path, sealed(new_summary(folder, command, config, results, files), indent=2))
    return path


def new_summary(
    folder: Path, command: str, config: Mapping[str, Any], results: Mapping[str, Any], files: Sequence[str] = ()
) -> dict[str, Any]:
    """The entries of a summary, as JSON holds them."""
    summary = {
        "command": command,
        "config": dict(config),
        "results": dict(results),
        "versions": {"python": platform.python_version(), **_versions()},
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "sha256": {name: sha256(folder / name) for name in files},
    }
    found: dict[str, Any] = json.loads(json.dumps(summary, allow_nan=False))
    return found


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


@dataclass(frozen=True)
class Run:
    """A run folder as its summary describes it."""

    folder: Path
    summary: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.folder.resolve().name

    @property
    def command(self) -> str:
        """The command that made it."""
        return str(self.summary["command"])

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings."""
        found: Mapping[str, Any] = self.summary["config"]
        return found

    @property
    def results(self) -> Mapping[str, Any]:
        """The results, as far as they are in the summary."""
        found: Mapping[str, Any] = self.summary["results"]
        return found

    def read(self, name: str) -> Any:
        """The content of a JSON file beside the summary; None if there is no such file."""
        path = self.folder / name
        return read_json(path) if path.exists() else None


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


def _natural(text: str) -> list[tuple[int, str]]:
    """A key for sorting: run-10 after run-9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]


def read_run(folder: Path) -> Run:
    """The run in a folder; raises a ValueError if it is damaged or its files are not those of its summary."""
    path = folder / "summary.json"
    if not path.exists():  # a training run that has not ended
        config = read_sealed(folder / "config.json")
        return Run(folder, {"command": str(config.get("command", "train")), "config": config, "results": {}, "sha256": {}})
    summary = read_sealed(path)
    types = {"command": str, "config": dict, "results": dict, "sha256": dict}
    if any(not isinstance(summary.get(key), expected) for key, expected in types.items()):
        raise ValueError(f"{path} is no summary of a run of ropescope: give folders that its commands have written")
    for name, expected in summary["sha256"].items():
        if ".." in Path(name).parts or Path(name).is_absolute() or "\0" in name:
            raise ValueError(f"{path} names a file outside of its folder ({name}): it is no summary of a run of ropescope")
        if (folder / name).is_file() and sha256(folder / name) != expected:
            raise ValueError(
                f"{folder / name} is not the file its summary was written with (their hashes differ): "
                "copy the folder again or run its command again"
            )
    return Run(folder, summary)


def read_profile(path: Path) -> xr.Dataset:
    """The scores that `ropescope profile` stored; every input has the mean over inputs in its planes and draws."""
    import xarray as xr  # noqa: PLC0415

    try:
        scores = xr.load_dataset(path, engine="scipy")
        names = [str(name) for name in scores.data_vars if str(name).startswith("plane_") or str(name).endswith("_redrawn")]
        return scores.assign({name: scores[name].broadcast_like(scores["input"]) for name in names})
    except Exception as error:  # a damaged file can fail anywhere in the reader
        raise ValueError(f"{path} holds no profile that can be read ({error}): copy it again or profile again") from None
