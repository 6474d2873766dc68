"""Writes docs/api.md from signatures and docstrings, and docs/commands.md from `--help`: `make reference`.

The package is read as text and not imported, so nothing has to be installed for its API but Python.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PACKAGE = DOCS.parent / "ropescope"
WIDTH = 110
WRITTEN = "Written by `make reference`; a test checks that it is up to date."


@dataclass(frozen=True)
class Public:
    """A public name, where it is defined, and its definition."""

    name: str
    room: str
    node: ast.ClassDef | ast.FunctionDef

    @property
    def doc(self) -> str:
        """The docstring without its indentation."""
        return ast.get_docstring(self.node) or ""


# Reading


def module(room: str) -> ast.Module:
    """A module of the package by its name, such as measures.scores."""
    return ast.parse((PACKAGE / f"{room.replace('.', '/')}.py").read_text(encoding="utf-8"))


def rooms() -> dict[str, str]:
    """Public name to the module that holds it, as the package itself has it."""
    for node in module("__init__").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_ROOMS":
            found: dict[str, str] = ast.literal_eval(node.value)
            return found
    raise ValueError("ropescope/__init__.py has no _ROOMS: there is nothing to tell the public names by")


def public() -> list[Public]:
    """All public names, those of one module together."""
    of = rooms()
    found = []
    for room in dict.fromkeys(of.values()):
        nodes = {node.name: node for node in module(room).body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        found += [Public(name, room, nodes[name]) for name, its in of.items() if its == room]
    return found


def members(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Methods and properties of a class that have a docstring: how they are called, and what they say."""
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and not part.name.startswith("_") and (doc := ast.get_docstring(part)):
            plain = any(ast.unparse(mark) == "property" for mark in part.decorator_list)
            yield part.name if plain else f"{part.name}({', '.join(arguments(part))}){returns(part)}", doc


def arguments(node: ast.FunctionDef) -> list[str]:
    """Arguments of a function as they are written."""
    given = node.args
    listed = [(each, None) for each in given.args]
    for at, value in enumerate(reversed(given.defaults), start=1):
        listed[-at] = (listed[-at][0], value)
    shown = [_argument(each, value) for each, value in listed if each.arg not in ("self", "cls")]
    if given.vararg or given.kwonlyargs:
        shown.append(f"*{_argument(given.vararg, None)}" if given.vararg else "*")
    shown += [_argument(each, value) for each, value in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return [*shown, f"**{_argument(given.kwarg, None)}"] if given.kwarg else shown


def _argument(each: ast.arg, value: ast.expr | None) -> str:
    kind = "" if each.annotation is None else f": {_kind(each.annotation)}"
    return each.arg + kind + ("" if value is None else f" = {ast.unparse(value)}")


def _kind(annotation: ast.expr) -> str:
    """A type as it is written, shapes in the quotes of the code."""
    return re.sub(r"'([^']*)'", lambda shape: f'"{shape[1].strip()}"', ast.unparse(annotation))


def fields(node: ast.ClassDef) -> list[str]:
    """What a class is made with: arguments of its `__init__`, or its fields; of an error, what it is a kind of."""
    if node.name.endswith("Error"):
        return [ast.unparse(base) for base in node.bases]
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            return arguments(part)
    shown = []
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and not ast.unparse(part.target).startswith("_"):
            value = "" if part.value is None else f" = {ast.unparse(part.value)}"
            shown.append(f"{ast.unparse(part.target)}: {_kind(part.annotation)}{value}")
    return shown


def returns(node: ast.FunctionDef) -> str:
    """The type of a function's result; of a context manager none, as it is for `with`."""
    if node.returns is None or any("contextmanager" in ast.unparse(mark) for mark in node.decorator_list):
        return ""
    return f" -> {_kind(node.returns)}"


def signature(name: str, listed: list[str], result: str = "") -> str:
    """A call, in one line if it fits, else with one argument a line."""
    line = f"{name}({', '.join(listed)}){result}"
    if len(line) <= WIDTH:
        return line
    return "\n".join((f"{name}(", *(f"    {argument}," for argument in listed), f"){result}"))


def call(each: Public) -> str:
    """How a public name is called; defaults that the module has a name for are shown as what they are."""
    given = fields(each.node) if isinstance(each.node, ast.ClassDef) else arguments(each.node)
    for node in module(each.room).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            name, value = ast.unparse(node.targets[0]), ast.unparse(node.value)
            given = [
                f"{argument.removesuffix(name)}{value}" if argument.endswith(f"= {name}") else argument for argument in given
            ]
    return signature(f"rs.{each.name}", given, returns(each.node) if isinstance(each.node, ast.FunctionDef) else "")


def types(signatures: str) -> dict[str, str]:
    """Names of types that stand in these signatures and have a docstring of their own, to what they are."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for node, after in pairwise(body):
            if not (isinstance(node, ast.Assign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)):
                continue
            name = ast.unparse(node.targets[0])
            if re.fullmatch(r"[A-Z][A-Za-z]*[a-z]", name) and re.search(rf"\b{name}\b", signatures):
                found[name] = f"`{_kind(node.value)}`. {after.value.value}"
    return dict(sorted(found.items()))


# Writing


def markdown(doc: str) -> str:
    """A docstring as Markdown: lists of arguments become lists, examples become blocks that a test runs."""
    text, mark, example = doc.partition(">>> ")
    parts = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        entries = re.split(r"\n(?=\S)", paragraph)
        named = [re.match(r"([\w*, ]*\w)\s{2,}(\S.*)", entry, re.S) for entry in entries]
        if all(named):
            lines = [(entry[1], " ".join(entry[2].split())) for entry in named if entry]
            parts.append("\n".join(f"- `{name}`: {said}" for name, said in lines))
        else:
            parts.append(paragraph)
    if mark:
        parts.append(f"```pycon\n{mark}{example.strip()}\n```")
    return "\n\n".join(parts)


def api() -> str:
    """The page of all public names."""
    names = public()
    shown = {each.name: call(each) for each in names}
    _, _, letters = (ast.get_docstring(module("__init__")) or "").partition("Axis letters, in every signature of the project:")
    lines = [
        "# API",
        f"Every public name but `rs.__version__`: `import ropescope as rs`. {WRITTEN} Examples (`>>>`) are run by a "
        "test, output and all. How to use them together: [guide.md](guide.md).",
        'Shapes stand in signatures as in [jaxtyping](https://docs.kidger.site/jaxtyping/): `Float[Tensor, "*batch T T"]` is a '
        "tensor of floats with any leading axes, then two of the same length. Letters of axes:",
        f"```text\n{letters.strip(chr(10))}\n```",
        "\n".join(("| name | what it is |", "|---|---|", *_index(names))),
    ]
    room, written = None, list(shown.values())
    for each in names:
        if each.room != room:
            room = each.room
            lines += [f"## ropescope.{room}", _first(ast.get_docstring(module(room)) or "")]
        lines += [f"### {each.name}", f"```text\n{shown[each.name]}\n```", markdown(each.doc)]
        if isinstance(each.node, ast.ClassDef) and (parts := list(members(each.node))):
            lines += ["It has", "\n".join(f"- `{part}`: {_first(doc)}" for part, doc in parts)]
            written += [part for part, _ in parts]
    lines += ["## Types", "\n".join(f"- `{name}`: {said}" for name, said in types("\n".join(written)).items())]
    return "\n\n".join(lines) + "\n"


def _index(names: list[Public]) -> Iterator[str]:
    """A row of the table for each name, with a link to its heading; of equal headings later ones are numbered."""
    seen: dict[str, int] = {}
    for each in names:
        anchor = each.name.lower()
        before = seen.get(anchor, 0)
        seen[anchor] = before + 1
        yield f"| [`{each.name}`](#{anchor}{f'-{before}' if before else ''}) | {_first(each.doc)} |"


def _first(doc: str) -> str:
    """The first paragraph in one line, as it may stand in a table."""
    return " ".join(doc.split("\n\n", maxsplit=1)[0].split()).replace("|", "\\|")


def commands() -> str:
    """The page of all commands: what their `--help` says, without its layout, which changes with the version of typer."""
    import typer  # noqa: PLC0415

    from ropescope.cli import app  # noqa: PLC0415

    known: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    index = [f"| [`{name}`](#{name}) | {_first(command.help)} |" for name, command in known.items()]
    lines = [
        "# Commands",
        f"What `ropescope COMMAND --help` says. {WRITTEN} Which one for what: [guide.md](guide.md#recipes).",
        "\n".join(("| command | what it does |", "|---|---|", *index)),
        "Bad input ends in one sentence and exit code 2, Ctrl-C in exit code 130. Every run folder has a `summary.json` with "
        "settings, versions, seeds and hashes of the files beside it. What else can go wrong: [faults.md](faults.md).",
    ]
    for name, command in known.items():
        lines += [f"## {name}", command.help.strip(), f"```sh\n{_examples(command.epilog)}\n```", "\n".join(_options(command))]
    return "\n\n".join(lines) + "\n"


def _examples(epilog: str) -> str:
    """Examples of a command, what stands in brackets behind them as a comment."""
    shown = re.findall(r"Example:\s+(\S.*)", epilog)
    return "\n".join(re.sub(r"\s{2,}\((.*)\)$", r"    # \1", example) for example in shown)


def _options(command: Any) -> Iterator[str]:
    """Rows of the table of a command's arguments and options."""
    yield "| argument or option | | unless given |\n|---|---|---|"
    for each in command.params:
        if each.name != "help":
            argument = f"{each.name.upper()}{'…' if each.nargs != 1 else ''}" if each.param_type_name == "argument" else ""
            said, _, otherwise = each.help.replace("|", "\\|").partition("[default: ")
            unless = "required" if each.required else otherwise.rstrip("]") or _default(each)
            yield f"| `{argument or ' / '.join((*each.opts, *each.secondary_opts))}` | {said.strip()} | {unless} |"


def _default(each: Any) -> str:
    """What an argument or option is unless given; of a word that may be left out, nothing."""
    value = each.default
    if getattr(each, "is_flag", False) and value is not None:
        value = (each.opts if value else each.secondary_opts)[0] if each.secondary_opts else None
    return "" if value is None else f"`{value}`"


PAGES = {"api.md": api, "commands.md": commands}


if __name__ == "__main__":
    sys.path.insert(0, str(DOCS.parent))
    for page, make in PAGES.items():
        (DOCS / page).write_text(make(), encoding="utf-8", newline="\n")
