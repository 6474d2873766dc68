"""`ropescope theory` as a user meets it."""

import subprocess
import sys

import pytest
from test_cli import check_summary, run


def test_theory(tmp_path):
    done = run("theory", "--out", str(tmp_path), "--inputs", "200", "--longest", "150", "--draws", "20")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    results = check_summary(tmp_path, "theory")["results"]
    assert results["every_input"]["wrong"] == 0
    assert all(row["wrong"] == 0 for row in results["random_inputs"].values())
    assert len(results["bounds"]["index_printed_violated_up_to_100"]) == 25
    assert results["bounds"]["index_corrected_violated"] == 0
    assert results["scores"]["index"]["positional"] == pytest.approx(1)
    assert results["scores"]["retrieval, angle 0"]["symbolic"] == pytest.approx(1)
    assert results["limits"]["symbolic_on_index_largest_distance"] < 1e-12
    assert "violated at 25 lengths" in done.stdout
    for name in ("gaps", "planes"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<script src=" not in (tmp_path / f"{name}.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--longest", "50"], "longest at least 100"),
        (["--inputs", "0"], "inputs and draws must be at least 1"),
        (["--out", "/dev/null/x"], "cannot be written to"),
    ],
)
def test_bad_input(arguments, says, tmp_path):
    done = run("theory", "--out", str(tmp_path), *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_help_names_an_example_and_imports_nothing_heavy():
    code = (
        "import sys; from ropescope.cli import app\n"
        "try:\n    app(['theory', '--help'])\nfinally:\n    print('MODULES', *sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    text, modules = out.split("MODULES")
    assert "Example:" in text
    assert not {"torch", "numpy", "altair"} & set(modules.split())
