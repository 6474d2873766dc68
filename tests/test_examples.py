"""The scripts in `examples` do what they say, in a short form."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import real

from ropescope.runs import find_runs, read_trajectory

pytest.importorskip("transformers")


def main_of(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


@pytest.mark.slow
def test_letter_llama(tmp_path, capsys):
    short = "--layers 2 --heads 2 --width 32 --steps 5 --batch 8 --every 2 --probe 4"
    main_of("letter_llama")([*short.split(), "--out", str(tmp_path / "run")])
    run = read_trajectory(tmp_path / "run")
    assert run.steps.tolist() == [0, 2, 4, 5]
    assert run.measures["positional"].shape == (4, 2, 2)
    assert run.accuracy.shape == (4, 2)
    assert np.isfinite(run.loss[1:]).all()
    assert "test accuracy by hops" in capsys.readouterr().out
    assert find_runs([tmp_path / "run"])[0].results["looks"] == 4


@pytest.mark.slow
@pytest.mark.weights
def test_watch_smollm2(tmp_path, capsys):
    short = "--steps 2 --batch 1 --tokens 16 --prompts 1 --every 2"
    main_of("watch_smollm2")([*short.split(), "--model", str(real.folder("smollm2-135m")), "--out", str(tmp_path / "run")])
    run = read_trajectory(tmp_path / "run")
    assert run.steps.tolist() == [0, 2]
    assert np.isfinite(run.measures["positional"]).all()
    assert run.measures["positional"].shape == (2, 30, 9)
    assert list((tmp_path / "run-trainer").rglob("events.out.tfevents.*"))
    assert "'looks': 2" in capsys.readouterr().out
