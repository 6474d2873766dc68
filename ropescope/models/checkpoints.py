"""Checkpoints of a training run, as `transformers` keeps them: folders beside each other, or revisions of a hub id.

Only one of them is ever on this machine beside what was here before: a revision is downloaded, read and removed again.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NEEDED = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
"""Files of a hub id that are downloaded: settings, tokenizer and weights; never anything pickled, never code."""


@dataclass(frozen=True)
class Checkpoint:
    """One of them: the step it was kept at, what it is called, and where it is (folder, or hub id with its revision)."""

    step: int
    name: str
    source: str
    revision: str | None = None


def find_checkpoints(source: str, revisions: Sequence[str] = ()) -> list[Checkpoint]:
    """All checkpoints in a folder, or the revisions asked for of a hub id, in the order of their steps.

    The step is what `trainer_state.json` says, else the last number of the name.
    """
    folder = Path(source)
    if revisions:
        if folder.exists():
            raise ValueError(f"--revisions are those of a hub id, and {source} is a folder: leave them out")
        if source.count("/") != 1 or source.startswith((".", "/", "~")):
            raise ValueError(f"{source} is neither a folder nor a hub id like org/name")
        found = [Checkpoint(_last_number(revision), revision, source, revision) for revision in revisions]
    else:
        if not folder.is_dir():
            raise ValueError(f"{source} is no folder: give a run folder, a folder of checkpoints, or a hub id with --revisions")
        found = [Checkpoint(_step(path), path.name, str(path)) for path in folder.iterdir() if holds_model(path)]
        if not found:
            raise ValueError(f"{source} holds neither a training run nor checkpoints of transformers: see what is in it")
    found.sort(key=lambda one: one.step)
    for one, other in zip(found, found[1:], strict=False):
        if one.step == other.step:
            raise ValueError(f"{one.name} and {other.name} in {source} are both of step {one.step}: leave one of them out")
    return found


def holds_model(folder: Path) -> bool:
    """Whether a folder is one of a `transformers` model with its weights."""
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def _step(folder: Path) -> int:
    try:
        return int(json.loads((folder / "trainer_state.json").read_text())["global_step"])
    except (OSError, ValueError, LookupError, TypeError):
        return _last_number(folder.name)


def _last_number(name: str) -> int:
    if not (numbers := re.findall(r"\d+", name)):
        raise ValueError(f"{name} names no step: checkpoints are called checkpoint-500 or the like")
    return int(numbers[-1])


@contextmanager
def at_hand(checkpoint: Checkpoint) -> Iterator[Path]:
    """Its folder, downloaded for as long as it is needed if it is a revision of a hub id."""
    if checkpoint.revision is None:
        yield Path(checkpoint.source)
        return
    from huggingface_hub import snapshot_download  # noqa: PLC0415
    from huggingface_hub.utils import disable_progress_bars  # noqa: PLC0415

    disable_progress_bars()
    with tempfile.TemporaryDirectory(prefix="ropescope-") as into:
        try:
            snapshot_download(checkpoint.source, revision=checkpoint.revision, local_dir=into, allow_patterns=list(NEEDED))
        except Exception as error:  # the hub, the network or the disk may fail in many ways
            reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise ValueError(f"{checkpoint.source} at {checkpoint.revision} cannot be downloaded: {reason[:300]}") from None
        if not holds_model(Path(into)):
            raise ValueError(f"{checkpoint.source} at {checkpoint.revision} holds no weights in safetensors: it is not opened")
        yield Path(into)


def weights_hash(folder: Path) -> str:
    """By which weights are recognised: of all names, types, shapes and numbers, however they lie in files."""
    places: dict[str, tuple[Path, int, dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            try:
                size = int.from_bytes(file.read(8), "little")
                if not 0 < size <= path.stat().st_size - 8:
                    raise ValueError("its header is longer than the file")
                header = json.loads(file.read(size))
                header.pop("__metadata__", None)
                entries = {name: (path, 8 + size, _entry(entry, path.stat().st_size - 8 - size)) for name, entry in header.items()}
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                raise ValueError(f"{path} is no whole file of safetensors ({error}): copy it anew") from None
        places |= entries
    digest = hashlib.sha256()
    for name in sorted(places):
        path, start, entry = places[name]
        digest.update(json.dumps([name, entry["dtype"], entry["shape"]]).encode())
        begin, end = entry["data_offsets"]
        with path.open("rb") as file:
            file.seek(start + begin)
            left = end - begin
            while left:
                piece = file.read(min(left, 1 << 22))
                digest.update(piece)
                left -= len(piece)
    return digest.hexdigest()


def _entry(entry: dict[str, Any], size: int) -> dict[str, Any]:
    begin, end = entry["data_offsets"]
    if not (type(begin) is type(end) is int and 0 <= begin <= end <= size):
        raise ValueError("it is cut short")
    return {key: entry[key] for key in ("dtype", "shape", "data_offsets")}
