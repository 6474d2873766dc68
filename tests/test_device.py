"""No tensor stays on the CPU while a model is on another device."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
def test_on_another_device():
    """In a process of its own, since a device is registered for the whole of it."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", str(HERE / "on_device.py")]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, cwd=HERE.parent)
    assert done.returncode == 0, done.stdout[-4000:]
    passed = re.search(r"(\d+) passed in", done.stdout)
    assert passed is not None
    assert int(passed[1]) == (HERE / "on_device.py").read_text(encoding="utf-8").count("\ndef test_") + 5  # of parameters
