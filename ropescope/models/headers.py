"""Sizes of files of weights, checked before they are loaded: no number in a header may fill the memory."""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path
from typing import IO

from safetensors import SafetensorError, safe_open

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of the scalar values of GGUF, by the number of their type."""
STRING, ARRAY = 8, 9
DEEPEST = 4
"""Most levels of nested arrays, and most axes of a tensor."""


def check_gguf(path: Path) -> int:
    """How many numbers the tensors of a GGUF file hold. Raises ValueError if its header claims more than fit into the file."""
    with path.open("rb") as file:
        try:
            return _Gguf(file, os.fstat(file.fileno()).st_size).check()
        except (struct.error, OverflowError):
            raise ValueError("its header is truncated") from None


class _Gguf:
    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file, self.size, self.order = file, size, "<"

    def check(self) -> int:
        if self.file.read(4) != b"GGUF":
            raise ValueError("it is not a GGUF file")
        version = self.number("I")
        if not version & 0xFFFF:  # big-endian
            self.order, version = ">", version >> 24
        if version not in (2, 3):
            raise ValueError(f"version {version} of GGUF is not supported")
        tensors, values = self.number("Q"), self.number("Q")
        for _ in range(self.fitting(values, 13)):  # a name's length, a type, a byte
            self.skip(self.number("Q"))
            self.value(self.number("I"))
        return sum(self.tensor() for _ in range(self.fitting(tensors, 24)))

    def number(self, kind: str) -> int:
        form = self.order + kind
        (found,) = struct.unpack(form, self.file.read(struct.calcsize(form)))
        return int(found)

    def fitting(self, count: int, each: int) -> int:
        """The count, if the rest of the file can hold so many entries of at least `each` bytes."""
        if count * each > self.size - self.file.tell():
            raise ValueError(f"its header claims {count:,} entries, more than the file can hold")
        return count

    def skip(self, count: int) -> None:
        self.file.seek(self.fitting(count, 1), os.SEEK_CUR)

    def value(self, kind: int, depth: int = 0) -> None:
        if kind in SIZES:
            self.skip(SIZES[kind])
        elif kind == STRING:
            self.skip(self.number("Q"))
        elif kind == ARRAY and depth < DEEPEST:
            kind, count = self.number("I"), self.number("Q")
            if kind in SIZES:
                self.skip(self.fitting(count, SIZES[kind]) * SIZES[kind])
                return
            for _ in range(self.fitting(count, 8)):
                self.value(kind, depth + 1)
        else:
            raise ValueError(f"its header holds a value of the unknown type {kind}")

    def tensor(self) -> int:
        self.skip(self.number("Q"))
        axes = self.number("I")
        if axes > DEEPEST:
            raise ValueError(f"its header claims a tensor of {axes} axes")
        numbers = math.prod(self.number("Q") for _ in range(axes))
        self.number("I")  # its type
        if self.number("Q") > self.size or numbers > 32 * self.size:  # the densest packing has less than two bits per number
            raise ValueError("its header claims a tensor outside of the file")
        return numbers


def count_safetensors(folder: Path) -> tuple[int, int]:
    """How many tensors the safetensors files of a folder hold, and how many numbers."""
    tensors = numbers = 0
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="np") as file:
                names = file.keys()
                tensors += len(names)
                numbers += sum(math.prod(file.get_slice(name).get_shape()) for name in names)
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path.name} is damaged ({error})") from None
    return tensors, numbers
