"""Checkpoints of a training run, as `transformers` stores them: folders in one folder, or revisions of a hub id.

Revisions are downloaded one at a time, and each is deleted after it was read.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..console import first_line
from ..runs import read_header
from .identity import ASIDE
from .load import quiet_loading

NEEDED = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
"""Files that are downloaded: settings, tokenizer and weights, never pickles or code."""

TIMEOUT = 20.0
"""Seconds in which the hub must answer."""
PIECE = 1 << 22
"""Bytes hashed at once."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint: its training step, its name, and its source (a folder, or a hub id with a revision)."""

    step: int
    name: str
    source: str
    revision: str | None = None


def find_checkpoints(source: str, revisions: Sequence[str] = ()) -> list[Checkpoint]:
    """All checkpoints in a folder, or the given revisions of a hub id, in the order of their steps.

    The step is that in `trainer_state.json`, or the last number of the name.
    """
    folder = Path(source)
    if revisions:
        if folder.exists():
            raise ValueError(f"revisions are for a hub id, and {source} is a folder: leave them out")
        if source.count("/") != 1 or source.startswith((".", "/", "~")):
            raise ValueError(f"{source} is neither a folder nor a hub id like org/name")
        found = [Checkpoint(_last_number(revision), revision, source, revision) for revision in revisions]
    else:
        if not folder.is_dir():
            raise ValueError(f"{source} is no folder: give a run folder, a folder of checkpoints, or a hub id with revisions")
        found = [Checkpoint(_step(path), path.name, str(path)) for path in folder.iterdir() if holds_model(path)]
        if not found:
            raise ValueError(f"{source} holds neither a training run nor checkpoints of transformers: check the path")
    found.sort(key=lambda one: one.step)
    for one, other in itertools.pairwise(found):
        if one.step == other.step:
            raise ValueError(f"{one.name} and {other.name} in {source} are both of step {one.step}: leave one of them out")
    return found


def holds_model(folder: Path) -> bool:
    """Whether a folder holds a `transformers` model with its weights."""
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def _step(folder: Path) -> int:
    try:
        return int(json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))["global_step"])
    except (OSError, ValueError, LookupError, TypeError):
        return _last_number(folder.name)


def _last_number(name: str) -> int:
    if not (numbers := re.findall(r"\d+", name)):
        raise ValueError(f"{name} names no step: checkpoints have names like checkpoint-500")
    return int(numbers[-1])


@contextmanager
def at_hand(checkpoint: Checkpoint) -> Iterator[Path]:
    """The checkpoint's folder; a revision of a hub id is downloaded, and deleted at the end of the context."""
    if checkpoint.revision is None:
        yield Path(checkpoint.source)
        return
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    name = f"{checkpoint.source} at {checkpoint.revision}"
    with tempfile.TemporaryDirectory(prefix="ropescope-") as into:
        try:
            with quiet_loading():
                snapshot_download(checkpoint.source, revision=checkpoint.revision, local_dir=into, allow_patterns=list(NEEDED))
        except Exception as error:  # the hub, the network or the disk may fail in many ways
            raise ValueError(f"{name} cannot be downloaded: {first_line(error)}") from None
        if not holds_model(Path(into)):
            raise ValueError(f"{name} holds no weights in safetensors: it is not loaded")
        yield Path(into)


def hub_commit(source: str, revision: str = "main") -> str:
    """The commit that a revision of a hub id stands for now, or stood for when it was last downloaded, if there is no network.

    Names of revisions can be moved to other commits, so work is known by the commit.
    """
    from huggingface_hub import HfApi, try_to_load_from_cache  # noqa: PLC0415

    try:
        return str(HfApi().model_info(source, revision=revision, timeout=TIMEOUT).sha)
    except Exception as error:  # the hub or the network may fail in many ways
        cached = try_to_load_from_cache(source, "config.json", revision=revision)
        if isinstance(cached, str):
            return Path(cached).parent.name
        raise ValueError(f"{source} at {revision} cannot be downloaded: {first_line(error)}") from None


def weights_hash(folder: Path) -> str:
    """The hash of all names, types, shapes and numbers, however they are split into files."""
    places: dict[str, tuple[Path, str, int, int]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        places |= _places(path)
    digest = hashlib.sha256()
    for name in sorted(places):
        path, kind, begin, end = places[name]
        digest.update(json.dumps([name, kind]).encode())
        with path.open("rb") as file:
            file.seek(begin)
            for start in range(begin, end, PIECE):
                digest.update(file.read(min(PIECE, end - start)))
    return digest.hexdigest()


def _places(path: Path) -> dict[str, tuple[Path, str, int, int]]:
    """The type, shape, first and last byte of every tensor in a file."""
    whole = path.stat().st_size
    try:
        header, front = read_header(path)
        header.pop("__metadata__", None)
        found = {}
        for name, entry in header.items():
            begin, end = (front + offset for offset in entry["data_offsets"])
            if not front <= begin <= end <= whole:
                raise ValueError("it is truncated")
            found[name] = (path, json.dumps([entry["dtype"], entry["shape"]]), begin, end)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a complete safetensors file ({error}): copy it again") from None
    return found


def settings_hash(folder: Path) -> str:
    """The hash of those entries of `config.json` that change what the model computes."""
    try:
        settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        relevant = {key: value for key, value in settings.items() if key not in ASIDE}
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{folder / 'config.json'} cannot be read ({error}): copy it again") from None
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()
