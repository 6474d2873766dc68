"""Writing a page: what it is made of, and what it cannot be made of. How it looks is tested in `in_browser`."""

import json
import shutil
import subprocess
import sys

import pytest
from pages import PROFILE, RESULTS, TRAINING

from ropescope import runs
from ropescope.report.page import write_page

pytestmark = pytest.mark.slow


def test_a_page_of_one_profile_is_small(tmp_path):
    page = write_page([RESULTS / PROFILE], tmp_path / "page.html")
    assert page.stat().st_size < 5e6
    assert "http://" not in page.read_text().split('id="engine"')[0]


def broken(tmp_path, case):
    folder = tmp_path / "bench"
    shutil.copytree(RESULTS / "conformance" if case == "hash" else RESULTS / "bench", folder)
    path = folder / "summary.json"
    if case == "hash":
        (folder / "families.json").write_text("[]")
    elif case == "JSON":
        path.write_text(path.read_text()[:100])
    elif case == "NaN":
        path.write_text(path.read_text().replace("15", "NaN", 1))
    elif case == "other JSON":
        path.write_text("[1]")
    elif case == "lacking":
        summary = json.loads(path.read_text().replace('"what"', '"that"'))
        del summary["content_sha256"]  # as if written so, by an earlier version
        path.write_text(json.dumps(summary))
    elif case == "no run":
        path.unlink()
    return folder / "nowhere" if case == "nowhere" else folder


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("hash", "families.json is not the file its summary was written with"),
        ("JSON", "summary.json is damaged"),
        ("NaN", "summary.json is damaged .NaN is no number"),
        ("other JSON", "summary.json is damaged .it has no entries"),
        ("lacking", "lacks what a run of bench holds"),
        ("no run", "holds no run of ropescope"),
        ("nowhere", "nowhere is no folder"),
    ],
)
def test_bad_folders_are_named_in_one_sentence(tmp_path, case, said):
    with pytest.raises(ValueError, match=said) as error:
        write_page([broken(tmp_path, case)], tmp_path / "page.html")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "page.html").exists()


def test_a_page_is_a_file(tmp_path):
    with pytest.raises(ValueError, match="is a folder: give the name of a file"):
        write_page([RESULTS / "bench"], tmp_path)


def test_runs_are_found_below_folders_and_unfinished_ones_too(tmp_path):
    for name in ("bench", "number-0"):
        shutil.copytree(RESULTS / name, tmp_path / "all" / "below" / name)
    (tmp_path / "all" / "below" / "number-0" / "summary.json").unlink()
    found = runs.find_runs([tmp_path / "all", tmp_path / "all" / "below" / "bench"])
    assert [(run.name, run.command) for run in found] == [("bench", "bench"), ("number-0", "train")]
    assert "not ended yet" in write_page([tmp_path / "all"], tmp_path / "page.html").read_text()


def test_the_command_needs_no_torch(tmp_path):
    code = (
        "import sys; from ropescope.cli import main\n"
        "try:\n    sys.argv = ['ropescope', *sys.argv[1:]]; main()\n"
        "finally:\n    print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "report", RESULTS / "bench", RESULTS / TRAINING, "--out", tmp_path / "page.html"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("False\n"), done.stderr
    assert f"{tmp_path / 'page.html'}: " in done.stdout
    assert " MB, made in " in done.stdout
