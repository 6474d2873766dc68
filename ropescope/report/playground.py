"""The playground as HTML: the data of a run, and one script and one style sheet for any number of playgrounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..html import ASSETS, asset, document, for_script, render
from ..html.modules import joined


def fragment(data: Mapping[str, Any], run: str) -> str:
    """Return the element of one playground. A page needs `script` and `style` once, for any number of fragments.

    data  the content of `playground.json` in a run folder
    run   the name of the run in the event that tells charts and playgrounds which head is chosen
    """
    return render("playground.html", run=run, data=for_script(data))


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
