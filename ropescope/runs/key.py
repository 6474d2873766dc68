"""What stored work must have in common with new work: settings, inputs and models, code, and versions of libraries.

Studies put settings, hashes of inputs and what identifies their models into a `config`. `made_with` adds what no setting says:

code      a hash of the source of every module that can change a number. Modules are not listed but left out: those that only
          show results, and other studies. So a new module counts without being named, and no version has to be changed by
          anybody. Comments and docstrings do not count.
versions  of torch, transformers and numpy: their kernels, their code of models and their random numbers are in every result.
          Results of two versions mostly agree up to rounding, but not always, and nobody can tell afterwards.
measures  those registered from outside of the package, by the hash of their file.

What does not count: the number of threads and the machine, which change how sums are rounded, and where units are computed.
"""

from __future__ import annotations

import ast
import hashlib
import json
import secrets
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .files import sha256
from .sealed import read_json

PACKAGE = Path(__file__).parents[1]
SHOWING = ("report/", "charts.py", "cli.py", "console.py", "api.py", "__main__.py", "studies/claims.py", "studies/result.py")
"""Modules and folders that only show results."""
SHOWING_STEMS = ("figures", "tables", "claims")
"""In folders of studies, modules whose names begin with these only show results."""
LIBRARIES = ("torch", "transformers", "numpy")
UNKNOWN = secrets.token_hex(8)
"""Stands for code without a file, as in a notebook: work done with it is not resumed by another process."""


def made_with(module: str) -> dict[str, Any]:
    """Hash of the code and versions of the libraries with which a module of this package does its work."""
    from ..measures.registry import measures  # noqa: PLC0415  # it imports torch

    own = {name: found.module for name, found in measures().items() if not found.module.startswith("ropescope.")}
    return {
        "code": _code_hash(_study_of(module)),
        "versions": {name: _version(name) for name in LIBRARIES},
        **({"measures": {name: _file_hash(where) for name, where in own.items()}} if own else {}),
    }


def _study_of(module: str) -> str | None:
    """The folder of the study that a module belongs to; None if it belongs to none."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["studies"] and len(parts) > 2 else None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _file_hash(module: str) -> str:
    file = getattr(sys.modules.get(module), "__file__", None)
    return sha256(Path(file)) if file and Path(file).is_file() else UNKNOWN


def computing_files(study: str | None, package: Path = PACKAGE) -> list[Path]:
    """The modules that can change a number of a study, or of work outside of studies."""
    return [path for path in sorted(package.rglob("*.py")) if _computes(path.relative_to(package).as_posix(), study)]


def _computes(path: str, study: str | None) -> bool:
    if path.startswith(SHOWING):
        return False
    room, *rest = path.split("/")
    if room != "studies":
        return True
    if study is None or (len(rest) > 1 and rest[0] != study):
        return False
    return len(rest) == 1 or not rest[-1].startswith(SHOWING_STEMS)


@cache
def _code_hash(study: str | None) -> str:
    digest = hashlib.sha256()
    for path in computing_files(study):
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\n{_bare(path.read_text(encoding='utf-8'))}\n".encode())
    return digest.hexdigest()


def _bare(source: str) -> str:
    """Python code without comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            if isinstance(block := getattr(node, name, None), list):
                setattr(node, name, [entry for entry in block if not _is_text(entry)])
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    """Whether a statement is a string that nothing reads."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def keyed(config: Mapping[str, Any], made_by: str | None) -> dict[str, Any]:
    """A config with all that determines what the module `made_by` stores; with None, where no code of ours determines it."""
    found: dict[str, Any] = json.loads(
        json.dumps(dict(config) | ({} if made_by is None else {"made_with": made_with(made_by)}))
    )
    return found


def refuse_other(path: Path, key: Mapping[str, Any], other: str) -> None:
    """Raise ValueError, naming the first difference, unless the JSON file at `path` holds the same key.

    `other` names what its folder holds if settings, inputs or model differ.
    """
    try:
        stored = read_json(path)
    except ValueError:
        stored = None
    refuse_different(path.parent, stored, key, other)


def refuse_different(folder: Path, stored: Any, key: Mapping[str, Any], other: str) -> None:
    """Raise ValueError, naming the first difference, unless what the folder stores has the same key."""
    if stored == key:
        return
    place = ".".join(_difference(stored, key))
    if place.startswith("made_with"):
        other = "work of another version of ropescope or its libraries"
    raise ValueError(f"{folder} holds {other}{f' ({place} differs)' if place else ''}: choose another folder")


def _difference(one: Any, other: Any) -> list[str]:
    """The path to the first entry in which two configs differ."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys((*other, *one)):
            if key not in one or key not in other or one[key] != other[key]:
                return [str(key), *_difference(one.get(key), other.get(key))]
    return []
