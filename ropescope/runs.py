"""The run folder: results with the settings, versions, seeds and hashes they came from; written whole or not at all.

One process at a time writes to a folder (`locked`). What is read to go on from, or to be shown, carries a hash of its content:
what is damaged is named and never used. See docs/faults.md.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import hashlib
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

if TYPE_CHECKING:
    import xarray as xr

PARTS = ("ropescope", "torch", "numpy", "safetensors", "scipy", "altair", "xarray", "transformers", "inspect_ai")
"""Those that are installed are named in every summary."""


LOCK = ".lock"
PART = re.compile(r"\..+\.[a-z0-9_]{8}\.part")
"""Names of files that are being written."""
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
"""What file systems say that have no locks."""
SEAL = "content_sha256"
"""The last entry of a JSON file that carries the hash of all its others."""


def write_whole(path: Path, data: str | bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old one or the new one and nothing between."""
    content = data.encode() if isinstance(data, str) else data
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear(path.parent)
        handle, part = _part(path)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(handle, 0o644)
                os.fsync(handle)
                part.replace(path)  # while it is still held: nobody takes it for one that was left
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        _settle(path.parent)
    except OSError as error:  # by the name of the file that was wanted: writing itself knows none
        raise OSError(error.errno, error.strerror, str(path)) from error


def _part(path: Path) -> tuple[int, Path]:
    """A new file beside the path, held by this process as long as it is open."""
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        with suppress(OSError):  # no locks here: then nothing is cleared here either
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle, Path(name)
        os.close(handle)  # somebody cleared it away before it was held


_cleared: set[Path] = set()


def _clear(folder: Path) -> None:
    """Remove what killed processes left half-written, once per folder; what a live one is writing it holds."""
    if folder in _cleared:
        return
    _cleared.add(folder)
    for left in [path for path in folder.glob(".*.part") if PART.fullmatch(path.name)]:
        with suppress(OSError), left.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


def _settle(folder: Path) -> None:
    """Have names on the disk in the order in which files were written, should the machine lose power."""
    with suppress(OSError):  # not every file system can
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def say(sentence: str) -> None:
    """Tell the user something that does not end the run."""
    print(f"ropescope: {sentence}", file=sys.stderr)


def new_folder(path: Path) -> Path:
    """The folder for results, made if need be; a ValueError in one sentence if it cannot hold any."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise ValueError(f"--out {path} cannot be written to ({error.strerror}): choose another folder") from None


@contextmanager
def locked(folder: Path, patience: float = 0.0) -> Iterator[int]:
    """Make the folder for results if need be, and hold it against other writers; a ValueError if one has it.

    The system gives it up when this process ends, however it ends. Yields the open file that holds it: a process that inherits
    it holds the folder, too. With `patience` another holder is waited for so many seconds.
    """
    path, until = new_folder(folder) / LOCK, time.monotonic() + patience
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_file(path, lock):
                break
        except BlockingIOError:
            if time.monotonic() >= until:
                os.close(lock)
                raise ValueError(
                    f"another process writes to {folder}: wait for it or choose another folder for --out"
                ) from None
            time.sleep(0.1)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(lock)
                raise
            say(f"{folder} is on a file system without locks: let no other process write to it")
            break
        os.close(lock)
    ending = sys.is_finalizing  # by then there is no `sys` any more, nor anything else; the system gives up the lock itself
    try:
        yield lock
    finally:
        if not ending():
            with suppress(OSError):
                path.unlink()  # while it is held: who waits for it finds that it is gone and makes another
            os.close(lock)


def _is_file(path: Path, handle: int) -> bool:
    """Whether an open file is the one at the path, and not one that was there before."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def claim(folder: Path, config: Mapping[str, Any], holds: str, other: str) -> None:
    """Take a folder for results of these settings, by its `config.json`, or go on in it; a ValueError if it is taken.

    `holds` names what such a folder holds; `other` says what one holds whose settings are not these.
    """
    own, text = folder / "config.json", json.dumps(config, indent=2) + "\n"
    if own.exists():
        if own.read_bytes() != text.encode():
            raise ValueError(f"{folder} holds {other}: choose another folder for --out")
    elif any(not entry.name.startswith(".") for entry in folder.glob("*")):
        raise ValueError(f"{folder} holds other files but no {holds}: choose another folder for --out")
    write_whole(own, text)


def kept_arrays(path: Path, make: Callable[[], Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The arrays in a file; where there is none, or it is damaged, they are made and kept."""
    try:
        return read_arrays(path)
    except FileNotFoundError:
        pass
    except ValueError as error:
        say(f"{error}: it is not used but made again")
    arrays = {name: np.asarray(values, order="C") for name, values in make().items()}
    write_whole(path, packed_arrays(arrays))
    return arrays


def packed_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """A safetensors file of arrays, with the hash of their content."""
    plain = {name: np.asarray(values, order="C") for name, values in arrays.items()}
    return save(plain, metadata={"sha256": _arrays_hash(plain)})


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of such a file; a ValueError if it is damaged. Files of earlier versions carry no hash."""
    data = path.read_bytes()
    try:
        arrays = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        about = header.get("__metadata__")
        expected = None if about is None else about["sha256"]
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error})") from None
    if expected is not None and expected != _arrays_hash(arrays):
        raise ValueError(f"{path} is damaged (its content is not what was written)")
    return arrays


def _arrays_hash(arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(json.dumps([name, arrays[name].dtype.str, arrays[name].shape]).encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def sealed(content: Mapping[str, Any], indent: int | None = None) -> str:
    """A JSON file's text, with the hash of its content as the last entry."""
    plain = json.loads(json.dumps(dict(content), allow_nan=False))
    return json.dumps(plain | {SEAL: _json_hash(plain)}, indent=indent, ensure_ascii=False) + "\n"


AGAIN = "copy it anew or run its command again"


def read_sealed(path: Path, then: str = AGAIN) -> dict[str, Any]:
    """The entries of such a file; a ValueError if it is damaged, which says what to do `then`.

    Files of earlier versions carry no hash.
    """
    found = _json(path, then)
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged (it has no entries): {then}")
    expected = found.pop(SEAL, None)
    if expected is not None and expected != _json_hash(found):
        raise ValueError(f"{path} is damaged (its content is not what was written): {then}")
    return found


def _json_hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


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
    for part in PARTS:
        with suppress(PackageNotFoundError):
            found[part] = version(part)
    return found


Row = dict[str, NDArray[Any]]
"""One look at a model: each measure (layer, head), and what else is known then, as `loss` () or `accuracy` (hop class)."""


class History:
    """What was seen of a model, step by step. `layers` are those that were looked at, where that is not all of them."""

    def __init__(self, layers: Sequence[int] | None = None) -> None:
        self.layers = None if layers is None else list(layers)
        self.steps: list[int] = []
        self.rows: list[Row] = []

    def add(self, step: int, row: Row) -> None:
        """Append a row. Those from this step on are dropped: training went back and took another way from there."""
        self.drop_after(step - 1)
        self.steps.append(step)
        self.rows.append(row)

    def drop_after(self, step: int) -> None:
        """Forget rows that are later than a step."""
        kept = sum(other <= step for other in self.steps)
        del self.steps[kept:], self.rows[kept:]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """`step` (S,), every measure with the axis of steps in front, and `layer` if not all are there.

        What some rows lack is NaN in them.
        """
        found: dict[str, NDArray[Any]] = {"step": np.array(self.steps, dtype=np.int64)}
        if self.layers is not None:
            found["layer"] = np.array(self.layers, dtype=np.int64)
        shapes = {name: value for row in self.rows for name, value in row.items()}
        for name, like in shapes.items():
            found[name] = np.stack([row[name] if name in row else np.full_like(like, np.nan) for row in self.rows])
        return found

    def write(self, path: Path) -> None:
        """As one safetensors file, whole."""
        write_whole(path, packed_arrays(self.arrays()))

    @classmethod
    def read(cls, path: Path, up_to: int | None = None) -> History:
        """From a file, without rows later than a step."""
        arrays = read_arrays(path)
        layers = arrays.pop("layer", None)
        history = cls(None if layers is None else layers.tolist())
        for n, step in enumerate(arrays.pop("step").tolist()):
            if up_to is None or step <= up_to:
                history.add(step, {name: value[n, ...] for name, value in arrays.items()})
        return history


class HistoryFolder:
    """A run folder that grows look by look, and can be read at any moment; a `config` names the command that writes it.

    The history is replaced whole with every row. `summary.json` is written at the end, and goes when rows are added again: a
    folder without one has not ended. Until then it is held against other writers.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any], layers: Sequence[int] | None = None) -> None:
        self.folder, self.config = folder, dict(config)
        self._file = folder / "history.safetensors"
        self._held = ExitStack()
        self._lock: int | None = None
        if (other := _growing.get(folder.resolve())) is not None:  # of this process, as when a cell of a notebook is run again
            other.release()
        self._hold()
        try:
            claim(folder, self.config, "history of a model", "the history of another model, other inputs or other settings")
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
            raise ValueError(f"{self._file} cannot be gone on with ({error}): choose another folder") from None

    def _hold(self) -> None:
        if self._lock is None:
            self._lock = self._held.enter_context(locked(self.folder))

    def release(self) -> None:
        """Hold the folder no longer."""
        self._held.close()
        self._lock = None

    def drop_after(self, step: int) -> None:
        """Forget rows that are later than a step: training goes on from there."""
        if self.history.steps and self.history.steps[-1] > step:
            self.history.drop_after(step)
            self._write()

    def add(self, step: int, row: Row) -> None:
        """Keep one more row."""
        self.history.add(step, row)
        self._write()

    def _write(self) -> None:
        self._hold()
        (self.folder / "summary.json").unlink(missing_ok=True)
        if self.history.rows:
            self.history.write(self._file)
        else:
            self._file.unlink(missing_ok=True)

    def finish(self, results: Mapping[str, Any]) -> None:
        """Write the summary: what came out, by which versions, and the hash of the history."""
        self._hold()
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
    """A model over its training: every measure (step, layer, head); accuracy (step, hop class) and loss (step) if known.

    `layers` are the numbers of the layers that were looked at.
    """

    name: str
    config: Mapping[str, Any]
    steps: NDArray[np.int64]
    layers: NDArray[np.int64]
    measures: dict[str, NDArray[np.float32]]

    @property
    def command(self) -> str:
        """What wrote it: `train`, or what its settings name."""
        return str(self.config.get("command", "train"))

    @property
    def task(self) -> str:
        """The task of `ropescope train`; nothing if there is none."""
        return str(self.config.get("task", ""))

    @property
    def seed(self) -> int | None:
        """Of the training, where it is known."""
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
        """Every head, layer by layer, as "L3 H2"."""
        heads = self.measures["positional"].shape[2]
        return [f"L{layer} H{head}" for layer in self.layers for head in range(heads)]

    def looks(self) -> Trajectory:
        """Without the steps at which looking failed (then no head has scores)."""
        seen = np.isfinite(self.measures["positional"]).any((1, 2))
        if seen.all():
            return self
        return replace(self, steps=self.steps[seen], measures={name: value[seen] for name, value in self.measures.items()})


def read_trajectory(folder: Path) -> Trajectory:
    """The history in a run folder, of a run that has ended or not."""
    try:
        config = json.loads((folder / "config.json").read_text())
        arrays = read_arrays(folder / "history.safetensors")
    except OSError as error:
        raise ValueError(f"{folder} holds no training run ({error.strerror}): give a folder of `ropescope train`") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{folder} holds a damaged training run ({error}): copy it anew or train again") from None
    steps, layers = _require_history(folder, config, arrays)
    return Trajectory(folder.name, config, steps, layers, arrays)


def _require_history(folder: Path, config: Any, arrays: dict[str, NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Steps and layers, taken out of the arrays of a history; what no command has written is refused, whatever it is."""
    said = f"{folder} holds a damaged training run ({{}}): copy it anew or train again"
    if not isinstance(config, dict):
        raise ValueError(said.format("config.json holds no settings"))
    if "command" not in config and not (isinstance(config.get("task"), str) and type(config.get("seed")) is int):
        raise ValueError(said.format("it lacks a task or a seed"))
    steps, scores = arrays.pop("step", np.zeros(0)), arrays.get("positional", np.zeros(0))
    if steps.ndim != 1 or not len(steps) or steps.dtype.kind != "i" or (np.diff(steps) <= 0).any():
        raise ValueError(said.format("it lacks steps"))
    layers = arrays.pop("layer", np.arange(scores.shape[1] if scores.ndim == 3 else 0))
    heads = [value for value in arrays.values() if value.ndim == 3]
    if layers.shape != scores.shape[1:2] or layers.dtype.kind != "i" or any(value.shape != scores.shape for value in heads):
        raise ValueError(said.format("its arrays do not belong together"))
    if any(value.ndim == 0 or len(value) != len(steps) or value.dtype.kind != "f" for value in arrays.values()):
        raise ValueError(said.format("its arrays do not belong together"))
    return steps, layers


def read_profile(path: Path) -> xr.Dataset:
    """The scores that `ropescope profile` kept; every input has the mean over inputs in its planes."""
    import xarray as xr  # noqa: PLC0415

    try:
        scores = xr.load_dataset(path, engine="scipy")
        names = [str(name) for name in scores.data_vars if str(name).startswith("plane_")]
        return scores.assign({name: scores[name].broadcast_like(scores["input"]) for name in names})
    except Exception as error:  # what is in a damaged file can go wrong anywhere
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
        config = read_sealed(folder / "config.json")
        return Run(folder, {"command": str(config.get("command", "train")), "config": config, "results": {}, "sha256": {}})
    summary = read_sealed(path)
    kinds = {"command": str, "config": dict, "results": dict, "sha256": dict}
    if any(not isinstance(summary.get(key), kind) for key, kind in kinds.items()):
        raise ValueError(f"{path} is no summary of a run of ropescope: give folders that its commands have written")
    for name, expected in summary["sha256"].items():
        if ".." in Path(name).parts or Path(name).is_absolute() or "\0" in name:
            raise ValueError(f"{path} names a file outside of its folder ({name}): it is no summary of a run of ropescope")
        if (folder / name).is_file() and sha256(folder / name) != expected:
            raise ValueError(
                f"{folder / name} is not the file its summary was written with (their hashes differ): "
                "copy the folder anew or run its command again"
            )
    return Run(folder, summary)


def _json(path: Path, then: str = AGAIN) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): {then}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}): {then}") from None


def _no_number(name: str) -> None:
    """What Python reads as a number though JSON has no such thing; no command writes it."""
    raise ValueError(f"{name} is no number")


def _natural(text: str) -> list[tuple[int, str]]:
    """For sorting: run-10 after run-9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]
