"""JSON files and arrays that carry the hash of their content, so that damage is noticed before they are used.

Files of earlier versions carry no hash and are read as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ..console import tell
from .files import write_whole
from .headers import read_header

SEAL = "content_sha256"
"""The last entry of a JSON file, the hash of all others."""
AGAIN = "copy it again or run its command again"


def sealed(content: Mapping[str, Any], indent: int | None = None) -> str:
    """The text of a JSON file, with the hash of its content as the last entry."""
    plain = json.loads(json.dumps(dict(content), allow_nan=False))
    return json.dumps(plain | {SEAL: _json_hash(plain)}, indent=indent, ensure_ascii=False) + "\n"


def read_sealed(path: Path, advice: str = AGAIN) -> dict[str, Any]:
    """The entries of a JSON file that `sealed` wrote; raises a ValueError with the advice if it is damaged."""
    found = read_json(path, advice)
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged (it has no entries): {advice}")
    expected = found.pop(SEAL, None)
    if expected is not None and expected != _json_hash(found):
        raise ValueError(f"{path} is damaged (its content is not what was written): {advice}")
    return found


def read_json(path: Path, advice: str = AGAIN) -> Any:
    """The content of a JSON file; raises a ValueError with the advice if it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): {advice}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}): {advice}") from None


def _refuse_constant(name: str) -> None:
    """NaN and Infinity: Python reads them, but JSON has none and no command writes them."""
    raise ValueError(f"{name} is no number")


def _json_hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def packed_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of a safetensors file of arrays, with the hash of their content."""
    plain = {name: np.asarray(values, order="C") for name, values in arrays.items()}
    return save(plain, metadata={"sha256": _arrays_hash(plain)})


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file that `packed_arrays` made; raises a ValueError if it is damaged."""
    data = path.read_bytes()
    try:
        arrays = load(data)
        about = read_header(data)[0].get("__metadata__")
        expected = None if about is None else about["sha256"]
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error})") from None
    if expected is not None and expected != _arrays_hash(arrays):
        raise ValueError(f"{path} is damaged (its content is not what was written)")
    return arrays


def cached_arrays(path: Path, make: Callable[[], Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The arrays in a file; if it is missing or damaged, they are computed and written to it."""
    try:
        return read_arrays(path)
    except FileNotFoundError:
        pass
    except ValueError as error:
        tell(f"ropescope: {error}: it is computed again")
    arrays = {name: np.asarray(values, order="C") for name, values in make().items()}
    write_whole(path, packed_arrays(arrays))
    return arrays


def _arrays_hash(arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(json.dumps([name, arrays[name].dtype.str, arrays[name].shape]).encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()
