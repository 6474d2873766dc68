"""The run folder: results with the settings, versions, seeds and hashes they came from; written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

PARTS = ("ropescope", "torch", "numpy", "altair")


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


def write_summary(
    folder: Path, command: str, config: Mapping[str, Any], results: Mapping[str, Any], files: Sequence[str] = ()
) -> Path:
    """`summary.json`: what was asked, what came out, by which versions, and the hashes of the files beside it."""
    summary = {
        "command": command,
        "config": dict(config),
        "results": dict(results),
        "versions": {"python": platform.python_version(), **{part: version(part) for part in PARTS}},
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "sha256": {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files},
    }
    path = folder / "summary.json"
    write_whole(path, json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return path
