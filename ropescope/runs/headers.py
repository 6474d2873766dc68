"""The header of a safetensors file, checked against the size of the file before it is read."""

from __future__ import annotations

import json
import os
from io import BytesIO
from pathlib import Path
from typing import Any


def read_header(source: Path | bytes) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file, given as a path or as its bytes, and the offset at which its data begin.

    Raises a ValueError if it is not whole. What the entries say is not checked.
    """
    with BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        begin = 8 + int.from_bytes(file.read(8), "little")
        if not 8 < begin <= size:
            raise ValueError("its header is longer than the file")
        try:
            header = json.loads(file.read(begin - 8))
        except RecursionError:
            raise ValueError("its header is nested too deeply") from None
    if not isinstance(header, dict):
        raise ValueError("its header has no entries")
    return header, begin
