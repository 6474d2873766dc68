"""Queries and keys that another runtime has dumped: a manifest in JSON beside arrays in safetensors, npz or npy files.

    {
      "runtime": "mlx-lm 0.32.2",
      "config": "config.json",
      "tokens": "equal",
      "precision": "float32",
      "arrays": [
        {"layers": 30, "part": "key", "when": "after", "file": "keys.npz", "name": "layer{layer}", "axes": "head token dim"}
      ]
    }

runtime    what made the arrays; optional
config     configuration of `transformers`, as an object or as the name of a file; optional
tokens     "equal" if all tokens are the same, or the list of token ids; left out if arrays before the rotation are there
positions  position number of each token; 0, 1, ... unless given
precision  of the runtime: float32, float16, bfloat16 or float64; that of the arrays unless given
pairing    "half" or "interleaved", where the runtime's own differs from that of `transformers`; optional
arrays     which array is what. `layer` is a number, or `layers` is how many there are, and {layer} in `file` and `name` stands
           for each. `part` is query or key, `when` is before or after the rotation, `axes` are the names of all axes in
           order: head, token, dim, and batch for one of length 1. `name` is for safetensors and npz.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Rounding of one number, relative to it, in each precision."""
AXES = ("batch", "head", "token", "dim")


@dataclass(frozen=True)
class Entry:
    """Where one array is."""

    path: Path
    name: str
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Dump:
    """Arrays of a runtime, which are read when they are asked for.

    entries  by layer, part ("query", "key") and time ("before", "after")
    equal    whether all tokens are the same
    """

    path: Path
    runtime: str
    config: dict[str, Any] | None
    equal: bool
    tokens: NDArray[np.int64] | None
    positions: Array | None
    precision: str | None
    pairing: str | None
    entries: Mapping[tuple[int, str, str], Entry]

    @property
    def layers(self) -> list[int]:
        """Numbers of the layers that are there."""
        return sorted({layer for layer, _, _ in self.entries})

    def read(self, layer: int, part: str, when: str) -> tuple[Array, float] | None:
        """Vectors (head, token, dimension) and their rounding; None if the dump does not hold them."""
        entry = self.entries.get((layer, part, when))
        if entry is None:
            return None
        found, precision = _load(entry)
        what = f"{entry.path.name} {entry.name}".strip()
        if found.ndim != len(entry.axes):
            raise ValueError(f"{what} has {found.ndim} axes, but its manifest names {len(entry.axes)}: {' '.join(entry.axes)}")
        if "batch" in entry.axes:
            at = entry.axes.index("batch")
            if found.shape[at] != 1:
                raise ValueError(f"{what} must hold a batch of one input, not of {found.shape[at]}")
            found = found.squeeze(at)
        order = [axis for axis in entry.axes if axis != "batch"]
        found = found.transpose([order.index(axis) for axis in AXES[1:]])
        if not np.isfinite(found).all():
            raise ValueError(f"{what} holds NaN or infinite numbers")
        return found, UNITS[self.precision or precision]


def read_dump(path: Path) -> Dump:
    """The dump that a manifest describes; ValueError says what is wrong with it. Arrays are not read yet."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as a manifest in JSON: {str(error).splitlines()[0]}") from None
    if not isinstance(given, dict) or not isinstance(given.get("arrays"), list) or not given["arrays"]:
        raise ValueError(f"{path} is no manifest of a dump: it has no list of arrays")
    entries: dict[tuple[int, str, str], Entry] = {}
    for number, each in enumerate(given["arrays"]):
        entries |= _entries(path, number, each)
    tokens = given.get("tokens")
    if not (tokens is None or tokens == "equal" or _are_numbers(tokens)):
        raise ValueError(f'{path}: tokens must be "equal" or a list of token ids, not {str(tokens)[:40]}')
    places = given.get("positions")
    if not (places is None or _are_numbers(places)):
        raise ValueError(f"{path}: positions must be a list of numbers, not {str(places)[:40]}")
    for name, known in (("precision", tuple(UNITS)), ("pairing", ("half", "interleaved"))):
        if given.get(name) is not None and given[name] not in known:
            raise ValueError(f"{path}: {name} must be one of {', '.join(known)}, not {given[name]!r}")
    return Dump(
        path,
        str(given.get("runtime", "")),
        _config(path, given.get("config")),
        tokens == "equal",
        np.asarray(tokens, dtype=np.int64) if isinstance(tokens, list) else None,
        None if places is None else np.asarray(places, dtype=np.float64),
        given.get("precision"),
        given.get("pairing"),
        entries,
    )


def _are_numbers(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(type(item) in (int, float) for item in value)


def _entries(path: Path, number: int, each: Any) -> dict[tuple[int, str, str], Entry]:
    """Entries of one member of the list of arrays."""
    where = f"{path}: array {number}"
    if not isinstance(each, dict):
        raise ValueError(f"{where} must be an object")
    part, when, axes = each.get("part"), each.get("when", "after"), str(each.get("axes", "head token dim")).split()
    if part not in ("query", "key") or when not in ("before", "after"):
        raise ValueError(f"{where}: part must be query or key, and when before or after, not {part!r} and {when!r}")
    if sorted(axis for axis in axes if axis != "batch") != ["dim", "head", "token"] or axes.count("batch") > 1:
        raise ValueError(
            f"{where}: axes must be head, token and dim in some order, and at most one batch, not {' '.join(axes)}"
        )
    one: Any = each.get("layer")
    many: Any = each.get("layers")
    if (one is None) == (many is None) or type(many if one is None else one) is not int:
        raise ValueError(f"{where} needs either layer, a number, or layers, how many there are")
    numbers = range(many) if one is None else [one]
    found = {}
    for layer in numbers:
        file = str(each.get("file", "")).replace("{layer}", str(layer))
        target = path.parent / file
        if not file or Path(file).is_absolute() or ".." in Path(file).parts:
            raise ValueError(f"{where}: file must be a name below the manifest's folder, not {file!r}")
        if target.suffix not in (".safetensors", ".npz", ".npy"):
            raise ValueError(f"{where}: {file} must be a safetensors, npz or npy file")
        found[layer, part, when] = Entry(target, str(each.get("name", "")).replace("{layer}", str(layer)), tuple(axes))
    return found


def _config(path: Path, given: Any) -> dict[str, Any] | None:
    if given is None or isinstance(given, dict):
        return given
    if not isinstance(given, str) or Path(given).is_absolute() or ".." in Path(given).parts:
        raise ValueError(f"{path}: config must be an object, or the name of a file below the manifest's folder")
    try:
        found = json.loads((path.parent / given).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: config {given} cannot be read: {str(error).splitlines()[0]}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: config {given} holds no object")
    return found


def _load(entry: Entry) -> tuple[Array, str]:
    """One array in double precision, and the precision that it is stored in. Pickles are refused."""
    try:
        if entry.path.suffix == ".safetensors":
            from safetensors import safe_open  # noqa: PLC0415

            with safe_open(str(entry.path), "pt") as file:
                tensor = file.get_tensor(entry.name)
            return tensor.double().numpy(), str(tensor.dtype).removeprefix("torch.")
        if entry.path.suffix == ".npz":
            with np.load(entry.path, allow_pickle=False) as archive:
                found = archive[entry.name]
        else:
            found = np.load(entry.path, allow_pickle=False)
    except Exception as error:  # files of strangers may be broken in many ways
        raise ValueError(f"{entry.path} {entry.name} cannot be read: {str(error).splitlines()[0]}") from None
    precision = str(found.dtype)
    if precision not in UNITS:
        raise ValueError(f"{entry.path} {entry.name} must hold floating-point numbers, not {precision}")
    return found.astype(np.float64), precision
