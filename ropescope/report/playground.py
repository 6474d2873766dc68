"""The playground as HTML: the data of a run, and one script and one style sheet for any number of playgrounds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from .modules import joined

ASSETS = Path(__file__).parent / "assets"
# Nothing in a script element may look like the end of it, or like a comment; U+2028 and U+2029 end lines in old scripts.
UNSAFE = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


def fragment(data: Mapping[str, Any], run: str) -> str:
    """Return the element of one playground. A page needs `script` and `style` once, for any number of fragments.

    data  the content of `playground.json` in a run folder
    run   the name of the run in the event that tells charts and playgrounds which head is chosen
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(UNSAFE)
    return (
        f'<div class="playground" data-run="{escape(run)}">'
        f'<script type="application/json">{text}</script>'
        "<noscript>The playground needs JavaScript.</noscript></div>"
    )


def script() -> str:
    """Return the JavaScript that turns fragments into playgrounds, safe inside a script element."""
    return joined(ASSETS / "playground")


def style() -> str:
    """Return the style sheet of playgrounds: all of it is scoped to their class."""
    return (ASSETS / "playground.css").read_text(encoding="utf-8")


def page(runs: Mapping[str, Mapping[str, Any]], title: str = "Playground") -> str:
    """Return a page of playgrounds alone, for one or several runs by name: one file that needs no network."""
    inner = "\n".join(f"<h2>{escape(run)}</h2>\n{fragment(data, run)}" for run, data in runs.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
body {{ margin: 0 auto; max-width: 1180px; padding: 12px; font-family: system-ui, sans-serif; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #15181d; color: #e8eaee; }} }}
{style()}
</style>
</head>
<body>
<h1>{escape(title)}</h1>
{inner}
<script>
{script()}
</script>
</body>
</html>
"""
