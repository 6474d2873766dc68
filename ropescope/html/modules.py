"""One inline script from ES modules, without a bundler.

The modules of a folder are what editors and eslint read. A page must work as one file without a network, and a browser loads no
module from a `file:` address. So each module becomes a function of its own scope, called once in the order of imports. To keep
this simple a module may only import names from its own folder, at the start of lines, and export functions, classes and
constants where they are declared.
"""

from __future__ import annotations

import re
from pathlib import Path

IMPORT = re.compile(r'^import \{([^{}]*)\} from "\./([\w-]+\.js)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.MULTILINE)
OTHER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)
# Either would end the script element, or begin what HTML reads as a comment in it.
UNSAFE = re.compile(r"</script|<!--", re.IGNORECASE)


def joined(folder: Path, entry: str = "main.js") -> str:
    """Return the module `entry` and all that it imports as one script, safe inside a script element."""
    modules: dict[str, list[str]] = {}
    parts = _parts(folder, entry, modules, ())
    return "\n".join(['(() => {\n"use strict";\nconst modules = {};', *parts, "})();\n"])


def _parts(folder: Path, name: str, exports: dict[str, list[str]], above: tuple[str, ...]) -> list[str]:
    """The scripts of a module and of those it imports, which come first; `exports` collects the names that each one exports."""
    if name in above:
        raise ValueError(f"modules import each other in a circle: {' -> '.join((*above, name))}")
    if name in exports:
        return []
    code = (folder / name).read_text(encoding="utf-8")
    if found := UNSAFE.search(code):
        raise ValueError(f"{name} contains {found.group()}, which cannot stand in a script element")
    parts: list[str] = []
    for names, source in IMPORT.findall(code):
        parts += _parts(folder, source, exports, (*above, name))
        for one in _names(names):
            if one not in exports[source]:
                raise ValueError(f"{name} imports {one}, which {source} does not export")
    exports[name] = EXPORT.findall(code)
    code = IMPORT.sub(lambda found: f'const {{ {", ".join(_names(found[1]))} }} = modules["{found[2]}"];', code)
    code = EXPORT.sub("", code)
    if other := OTHER.search(code):
        raise ValueError(f"{name} has an import or export that cannot be joined: {other.group()}")
    returned = f"return {{ {', '.join(exports[name])} }};" if exports[name] else ""
    return [*parts, f'modules["{name}"] = (() => {{\n{code}{returned}\n}})();']


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",") if name.strip()]
