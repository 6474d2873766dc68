"""Every block of Python in the documentation runs, and the shell commands in it exist."""

import re
from pathlib import Path

import pytest

from ropescope.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list:
    found = []
    for page in PAGES:
        for n, code in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)):
            found.append(pytest.param(code, id=f"{page.name}-{n}"))
    return found


@pytest.mark.parametrize("code", blocks("python"))
def test_python_in_the_docs_runs(code):
    exec(compile(code, "docs", "exec"), {})


@pytest.mark.parametrize("code", blocks("sh"))
def test_commands_in_the_docs_exist(code):
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M)
    for line in code.strip().splitlines():
        program, first, *_ = line.split("#")[0].split()
        known = {"make": targets, "ropescope": [command.callback.__name__ for command in app.registered_commands]}
        assert program in known, line
        assert first in known[program], line


def test_the_map_of_rooms_is_true():
    """Every module of the package stands in the README's map, and every room in the map exists."""
    readme = (ROOT / "README.md").read_text()
    package = ROOT / "ropescope"
    rooms = {path.stem if path.is_file() else f"{path.name}/" for path in package.iterdir() if not path.name.startswith("_")}
    named = set(re.findall(r"^\| `([a-z/]+)` \|", readme, re.M))
    assert named == rooms


def test_the_benchmark_table_is_that_of_the_recorded_run():
    import json  # noqa: PLC0415

    readme = (ROOT / "README.md").read_text()
    results = json.loads((ROOT / "results" / "bench" / "summary.json").read_text())["results"]["scores"]
    for tokens in ("17", "32", "64", "128"):
        row = results[tokens]
        cells = (
            f"| {tokens} | {row['swaps']:,} | {row['scored_over_plain']:.2f}x | {row['faster_than_rerunning_blocks']:,.0f}x |"
        )
        assert cells in readme, cells
