"""Pages inside a notebook: an iframe that holds the whole page, so that it needs no network and no server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..runs import write_whole
from .template import render


@dataclass(frozen=True)
class InlinePage:
    """A page that notebooks display where it is returned. `save` writes it as a file.

    page    the whole HTML document
    title   what it shows, for people who do not see it
    height  in pixels, until the page itself has found out how high it is
    """

    page: str
    title: str
    height: int = 480

    def save(self, path: str | Path) -> Path:
        """Write the page to a file and return its path."""
        write_whole(Path(path), self.page)
        return Path(path)

    def _repr_html_(self) -> str:
        return str(render("inline.html", page=self.page, title=self.title, height=self.height))

    def __repr__(self) -> str:
        return f"<page: {self.title}>"
