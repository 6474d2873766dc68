"""Checkpoints of a training run, as `transformers` keeps them: folders beside each other, or revisions of a hub id.

Only one of them is ever on this machine beside what was here before: a revision is downloaded, read and removed again.
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

from ..runs import read_header
from .load import silent

NEEDED = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
"""Files of a hub id that are downloaded: settings, tokenizer and weights; never anything pickled, never code."""

ASIDE = ("transformers_version", "_name_or_path", "use_cache", "dtype", "torch_dtype")
"""Entries of `config.json` that do not change what a model computes in a given precision."""

PIECE = 1 << 22
"""Bytes hashed at once."""


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
    for one, other in itertools.pairwise(found):
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
    import transformers  # noqa: PLC0415
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="ropescope-") as into:
        try:
            with silent(transformers):
                snapshot_download(checkpoint.source, revision=checkpoint.revision, local_dir=into, allow_patterns=list(NEEDED))
        except Exception as error:  # the hub, the network or the disk may fail in many ways
            reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise ValueError(f"{checkpoint.source} at {checkpoint.revision} cannot be downloaded: {reason[:300]}") from None
        if not holds_model(Path(into)):
            raise ValueError(f"{checkpoint.source} at {checkpoint.revision} holds no weights in safetensors: it is not opened")
        yield Path(into)


def weights_hash(folder: Path) -> str:
    """By which weights are recognised: of all names, types, shapes and numbers, however they lie in files."""
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
    """Of every tensor in a file: type and shape, and where its bytes begin and end."""
    whole = path.stat().st_size
    try:
        header, front = read_header(path)
        header.pop("__metadata__", None)
        found = {}
        for name, entry in header.items():
            begin, end = (front + offset for offset in entry["data_offsets"])
            if not front <= begin <= end <= whole:
                raise ValueError("it is cut short")
            found[name] = (path, json.dumps([entry["dtype"], entry["shape"]]), begin, end)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no whole file of safetensors ({error}): copy it anew") from None
    return found


def settings_hash(folder: Path) -> str:
    """Of what `config.json` says of the model; not of who wrote it when, or for what use."""
    try:
        settings = json.loads((folder / "config.json").read_text())
        said = {key: value for key, value in settings.items() if key not in ASIDE}
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{folder / 'config.json'} cannot be read ({error}): copy it anew") from None
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
