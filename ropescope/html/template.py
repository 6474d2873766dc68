"""Templates, the policy of pages, ids, and data for script elements."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from .glossary import explained

ASSETS = Path(__file__).parent / "assets"
# Nothing in a script element may look like the end of it, or like a comment; U+2028 and U+2029 end lines in old scripts.
UNSAFE = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})
# No network at all, and no script but our own, which are named by their hashes. Charts need no `unsafe-eval`: Vega interprets
# their expressions (`ast` in the page's scripts). Styles may be inline, as Vega adds some; they can load nothing.
POLICY = "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@cache
def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(ASSETS / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["explained"] = lambda text: render("text.html", pieces=explained(str(text)))
    return made


def render(template: str, **data: Any) -> Markup:
    """Return a fragment: a template filled in with data, all of it escaped."""
    return Markup(_templates().get_template(template).render(data))  # the template has escaped it


def document(template: str, script: str, *later: str, **data: Any) -> str:
    """Return a page whose policy allows its own script and nothing else.

    template  a template that extends `base.html`
    script    the script of the page
    later     further scripts that the first one adds to the page
    """
    return str(render(template, policy=_policy([script, *later]), script=Markup(script), **data))


def _policy(scripts: Sequence[str]) -> str:
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts if script)
    return POLICY.format(scripts=" ".join(f"'sha256-{found}'" for found in hashes) or "'none'")


@cache
def engine() -> str:
    """Return the script that draws charts: Vega, Vega-Lite and the function `vegaEmbed`."""
    import vl_convert  # noqa: PLC0415

    found: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return found


@cache
def packed_engine() -> Markup:
    """Return the same for a page, compressed."""
    return packed(engine())


def packed(text: str) -> Markup:
    """Return compressed text for a script element: nothing in it can end the element."""
    return packed_bytes(text.encode(errors="backslashreplace"))


def packed_bytes(content: bytes) -> Markup:
    """Return compressed bytes for a script element: nothing in it can end the element."""
    return Markup(base64.b64encode(gzip.compress(content, 9, mtime=0)).decode())


def for_script(data: Any) -> Markup:
    """Return data as JSON for a script element: nothing in it can end the element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(UNSAFE)
    return Markup(text)


def asset(name: str) -> Markup:
    """Return one of our own style sheets."""
    return Markup((ASSETS / name).read_text(encoding="utf-8"))


def page_style() -> Markup:
    """Return the style sheet of pages, with those of their parts."""
    parts = sorted(path.name for path in (ASSETS / "page").glob("*.css"))
    return Markup("").join([asset("page.css"), *(asset(f"page/{name}") for name in parts)])


THEIRS = re.compile(r"(clip|gradient_)\d+|vg-tooltip-element|vega-(tooltip|embed)-style")
"""Ids that Vega gives to elements."""


class Ids:
    """Ids of the elements of one page: each is given once, however alike the names are that they are made from."""

    def __init__(self, *taken: str) -> None:
        self.taken = set(taken)

    def new(self, name: str) -> str:
        """Return an id that looks like the name, with a number if another element has it."""
        text = re.sub(r"[^\w.-]+", "-", name).strip("-")[:200] or "run"
        found, number = text, 1
        while found in self.taken or THEIRS.fullmatch(found):
            number += 1
            found = f"{text}-{number}"
        self.taken.add(found)
        return found
