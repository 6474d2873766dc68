"""The worked examples of CONTRIBUTING: applied to a copy of the package, checked, and counted."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECTIONS = re.split(r"^## ", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.M)[1:]
TOUCHED = {"Add a measure": 2, "Add a task": 2, "Add a study": 3, "Add a claim": 1, "Add a chart": 1}
"""Files of each example; those of a study are its folder's two and one line elsewhere."""


def blocks(section: str) -> list[tuple[str, str, str]]:
    """What to do (new file, edit, check), the path, and the text of every block."""
    found = []
    for code in re.findall(r"^```\w+\n(.*?)^```$", section, re.S | re.M):
        first, _, text = code.partition("\n")
        what, _, path = first.removeprefix("# ").partition(": ")
        found.append((what, path, text))
    return found


def edited(text: str, change: str) -> str:
    """The text with the lines that a diff removes replaced by those it adds; what surrounds them must occur once."""
    lines = change.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if line[0] in " -")
    new = "".join(line[1:] for line in lines if line[0] in " +")
    assert text.count(old) == 1, old
    return text.replace(old, new)


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition(":")[0])
def test_the_example_works_and_touches_as_many_files_as_it_says(section, tmp_path):
    shutil.copytree(ROOT / "ropescope", tmp_path / "ropescope", ignore=shutil.ignore_patterns("__pycache__"))
    touched, checks = set(), []
    for what, path, text in blocks(section):
        if what == "check":
            checks.append(text)
            continue
        touched.add(path)
        file = tmp_path / path
        if what == "new file":
            assert not file.exists()
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        else:
            assert what == "edit"
            file.write_text(edited(file.read_text(), text))
    assert len(touched) == TOUCHED[section.partition(":")[0]]
    assert checks
    for check in checks:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", check], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]


def test_every_example_is_tried():
    assert [section.partition(":")[0] for section in SECTIONS] == list(TOUCHED)
