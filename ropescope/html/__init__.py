"""HTML that escapes by default: templates, and what may stand in a page as it is.

Every page and every fragment that the package writes is made by `render` or `document`. Their templates escape all text. Only
what this room returns as `Markup` is not escaped: our own scripts and style sheets, compressed data, and JSON for script
elements. So nothing in a run folder or in a model can become an element, an attribute or a script.
"""

from __future__ import annotations

from .glossary import GLOSSARY
from .template import ASSETS, Ids, asset, document, engine, for_script, packed, packed_bytes, packed_engine, page_style, render

__all__ = [
    "ASSETS",
    "GLOSSARY",
    "Ids",
    "asset",
    "document",
    "engine",
    "for_script",
    "packed",
    "packed_bytes",
    "packed_engine",
    "page_style",
    "render",
]
