"""The playground as HTML: the data of a run, and one script and one style sheet for any number of playgrounds."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..html import ASSETS, asset, document, for_script, packed_bytes, render
from ..html.modules import joined


def fragment(data: Mapping[str, Any], run: str) -> str:
    """Return the element of one playground. A page needs `script` and `style` once, for any number of fragments.

    data  the content of `playground.json` in a run folder
    run   the name of the run in the event that tells charts and playgrounds which head is chosen
    """
    told, arrays = _apart(data)
    return render("playground.html", run=run, data=for_script(told), arrays=packed_bytes(arrays))


SIZES = {"float32": 4, "float64": 8}
"""Bytes of a number."""


def _apart(data: Any) -> tuple[Any, bytes]:
    """The data without their arrays, which refer to numbers of one sequence for each type; and the bytes of these sequences.

    All first bytes come first, then all second ones, and so on: exponents resemble each other, so that they compress better.
    """
    raw = {kind: bytearray() for kind in SIZES}

    def visit(part: Any) -> Any:
        if isinstance(part, list):
            return [visit(one) for one in part]
        if not isinstance(part, Mapping):
            return part
        if set(part) != {"type", "base64"}:
            return {key: visit(value) for key, value in part.items()}
        found, size = base64.b64decode(part["base64"], validate=True), SIZES[part["type"]]
        if len(found) % size:
            raise ValueError("an array of the playground is cut off")
        at = len(raw[part["type"]]) // size
        raw[part["type"]] += found
        return {"type": part["type"], "at": at, "length": len(found) // size}

    told = visit(data)
    apart = [np.frombuffer(bytes(raw[kind]), np.uint8).reshape(-1, size).T.tobytes() for kind, size in SIZES.items()]
    return {"data": told, "counts": [len(raw[kind]) // size for kind, size in SIZES.items()]}, b"".join(apart)


def script() -> str:
    """Return the JavaScript that turns fragments into playgrounds, safe inside a script element."""
    return joined(ASSETS / "playground")


def style() -> str:
    """Return the style sheet of playgrounds: all of it is scoped to their class."""
    return asset("playground.css")


def page(runs: Mapping[str, Mapping[str, Any]], title: str = "Playground") -> str:
    """Return a page of playgrounds alone, for one or several runs by name: one file that needs no network."""
    return document(
        "playgrounds.html",
        script() + joined(ASSETS / "page", "inframe.js"),
        title=title,
        style=asset("playgrounds.css") + style(),
        playgrounds=[(run, fragment(data, run)) for run, data in runs.items()],
    )
