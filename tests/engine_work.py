"""Units of work for test_engine.py, which workers import."""

import os
import time
from pathlib import Path

import numpy as np
import torch


def halve(shared, unit):
    """Half the number of a unit; earlier units take longer, so that later ones are done first."""
    time.sleep(shared["slow"] / (1 + unit["number"]))
    if unit["number"] in shared["bad"]:
        raise ValueError(f"unit {unit['number']} is bad")
    return {"half": np.full(unit["size"], unit["number"] / 2), "threads": np.array(torch.get_num_threads())}


def wait_for(shared, unit):
    """The unit, once the file `go` exists; another file records which unit waits in which process."""
    Path(shared, f"begun-{unit}-{os.getpid()}").touch()
    while not Path(shared, "go").exists():
        time.sleep(0.05)
    return unit


def crash(shared, unit):
    """Crash the worker."""
    os._exit(1)


def lacking(shared, unit):
    """Fail as on a machine where a package is missing."""
    raise ModuleNotFoundError("No module named 'something'")
