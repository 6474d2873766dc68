"""Hostile text, and copies of run folders that are filled with it.

Fields are found by walking through files and not from a list: every string, the keys of every dictionary, names of arrays, and
text in datasets.
"""

from __future__ import annotations

import csv
import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from made_runs import make_missing

from ropescope import runs

RESULTS = Path(__file__).parents[1] / "results"
TEXTS = (
    '"><img src=x onerror=hit()>',
    "'><svg onload=hit()>",
    "</script><script>hit()</script>",
    "<!--<script>hit()</script>",
    "</style><script>hit()</script>",
    "</template><script>hit()</script>",
    "</title></textarea></noscript><script>hit()</script>",
    "<iframe srcdoc='<script>parent.hit()</script>'></iframe>",
    "javascript:hit()",
    "data:text/html,<script>parent.hit()</script>",
    "'-hit()-'",
    '"-hit()-"',
    '"+hit()+"',
    "`${hit()}`",
    "${hit()}",
    "{{hit()}}",
    "{% print(hit()) %}",
    "'] || hit() || ['",
    "datum.x), hit(), (1",
    "\\'-hit()//",
    "\\u003cimg src=x onerror=hit()\\u003e",
    "&lt;img src=x onerror=hit()&gt;",
    '" autofocus onfocus=hit() x="',
    "' onmouseover='hit()' x='",
    "__proto__",
    "constructor",
    "engine",
    "scoreboard",
    "\u202e\u2066<b onclick=hit()>\u2069",
    "\u2028hit()\u2029",
    "\x1b]0;hit\x07\x1b[2J",
    "[/b][link=javascript:hit()]",
    "L0 H0",
    "\N{GRINNING FACE}" * 40,
    "",
)


def fields_of(content: Any, path: str = "") -> Iterator[str]:
    """Every string and the keys of every dictionary in JSON, as paths without the numbers of items."""
    if isinstance(content, str):
        yield path
    elif isinstance(content, list):
        for each in content:
            yield from fields_of(each, f"{path}[]")
    elif isinstance(content, dict) and content:
        yield f"{path}{{}}"
        for key, value in content.items():
            yield from fields_of(value, f"{path}.{key}")


def filled(content: Any, chosen: dict[str, Text], path: str = "") -> Any:
    """JSON with the chosen fields filled with hostile text."""
    if isinstance(content, str):
        return chosen[path].of(content) if path in chosen else content
    if isinstance(content, list):
        return [filled(each, chosen, f"{path}[]") for each in content]
    if not isinstance(content, dict):
        return content
    own = {key: filled(value, chosen, f"{path}.{key}") for key, value in content.items()}
    keys = chosen.get(f"{path}{{}}")
    if keys is None or not own:
        return own
    if keys.how == "added":
        return own | {keys.of(""): keys.draw.choice(list(own.values()))}
    return {keys.of(key) + str(n): value for n, (key, value) in enumerate(own.items())}


@dataclass(frozen=True)
class Text:
    """Hostile text for one field.

    how     "replaced": instead of what was there; "extended": after it; "added": one more key of a dictionary
    number  what the text calls `hit` with, so that it is known which field was run
    """

    draw: random.Random
    how: str = "replaced"
    number: int = 0

    def of(self, old: str) -> str:
        """Some hostile text."""
        return (old if self.how == "extended" else "") + self.draw.choice(TEXTS).replace("hit()", f"hit({self.number})")


def ways(name: str) -> tuple[str, ...]:
    """How a field is filled, one after the other, until a page shows it."""
    if name.endswith("{}") and ".json" in name.partition(":")[0]:
        return ("added", "replaced")  # without its own keys a run can seldom be shown
    return ("replaced", "extended")


@dataclass
class Kind:
    """A run of some type, and its fields, by file, but for those that another run of the type has."""

    command: str
    folder: Path
    known: frozenset[str] = frozenset()
    fields: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Find the fields of all files."""
        self.fields = [name for name in fields_in(self.folder) if name not in self.known]

    @property
    def name(self) -> str:
        """The name of the run folder."""
        return self.folder.name

    def hostile(self, chosen: dict[str, Text], to: Path) -> None:
        """Write a copy of the folder with the chosen fields filled, and hashes that fit."""
        to.mkdir(parents=True)
        names = [path for path in sorted(self.folder.rglob("*")) if path.is_file()]
        for path in sorted(names, key=lambda path: path.name == "summary.json"):
            file = str(path.relative_to(self.folder))
            mine = {key.removeprefix(f"{file}:"): text for key, text in chosen.items() if key.startswith(f"{file}:")}
            (to / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to / file)
            if mine or path.name == "summary.json":
                _write(to / file, filled(_content(path), mine), to)


def _content(path: Path) -> Any:
    """What a file holds, as JSON; nothing for files without text (tables with tabs hold numbers alone)."""
    if path.suffix == ".json":
        found = json.loads(path.read_text(encoding="utf-8"))
        return {key: value for key, value in found.items() if key != runs.SEAL} if isinstance(found, dict) else found
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if path.suffix == ".csv":
        columns, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
        return {"columns": columns, "rows": [[_number(cell) for cell in row] for row in rows]}
    if path.suffix == ".safetensors":
        return {name: [] for name in runs.read_arrays(path)}
    if path.suffix == ".nc":
        found = runs.read_profile(path)
        text = {str(name): values.values.tolist() for name, values in found.variables.items() if values.dtype.kind in "SUO"}
        about = {str(name): dict(values.attrs) for name, values in found.variables.items()}
        return {"attrs": dict(found.attrs), "text": text, "about": about}
    assert path.suffix in ("", ".html", ".png", ".tsv"), f"nothing finds the text in {path}"
    return None


def _number(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


def _write(path: Path, content: Any, folder: Path) -> None:
    if path.name == "summary.json" and isinstance(content, dict) and isinstance(content.get("sha256"), dict):
        there = {name: runs.sha256(folder / name) for name in content["sha256"] if _inside(folder, name)}
        content = {**content, "sha256": content["sha256"] | there}
    if path.suffix == ".json":
        text = runs.sealed(content) if isinstance(content, dict) else json.dumps(content)
        path.write_text(text, encoding="utf-8")
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(line) + "\n" for line in content), encoding="utf-8")
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([content["columns"], *content["rows"]])
    elif path.suffix == ".safetensors":
        arrays = runs.read_arrays(path)
        path.write_bytes(runs.packed_arrays(dict(zip(content, arrays.values(), strict=True))))
    else:
        found = runs.read_profile(path)
        found.attrs = content["attrs"]
        for name, about in zip(found.variables, content["about"].values(), strict=True):
            found[name].attrs = about
        for name, text in content["text"].items():
            found = found.assign_coords({name: (found[name].dims, text)})
        names = zip(found.variables, content["about"], strict=True)
        found.rename({old: new for old, new in names if old != new}).to_netcdf(path, engine="scipy")


def _inside(folder: Path, name: str) -> bool:
    try:
        return (folder / name).is_file()
    except (OSError, ValueError):
        return False


def fields_in(folder: Path) -> list[str]:
    """The fields of all files of a run folder."""
    found: dict[str, None] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            file = str(path.relative_to(folder))
            ours = {"{}", ".text{}"} if path.suffix in (".nc", ".csv") else set()  # keys that are not in the file
            found |= dict.fromkeys(f"{file}:{name}" for name in fields_of(_content(path)) if name not in ours)
    return list(found)


def recorded_runs() -> dict[str, list[Path]]:
    """Run folders in `results` by their type; records of these sessions are left out."""
    found: dict[str, list[Path]] = {}
    for path in sorted(RESULTS.glob("*/summary.json")):
        found.setdefault(json.loads(path.read_text(encoding="utf-8"))["command"], []).append(path.parent)
    found.pop("hostile", None)
    return found


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def kinds(at: Path) -> list[Kind]:
    """Runs that together have every field of every run type: recorded ones, and runs made in `at` of types without a record.

    Of each type the smallest run is taken, then every larger one that has fields which those before it lack.
    """
    by_type = recorded_runs()
    for folder in make_missing(at / "made", set(by_type)):
        by_type.setdefault(runs.read_run(folder).command, []).append(folder)
    found = []
    for command, folders in by_type.items():
        known: frozenset[str] = frozenset()
        for folder in sorted(folders, key=_size):
            kind = Kind(command, folder, known)
            if kind.fields:
                found.append(kind)
                known |= set(kind.fields)
    return found
