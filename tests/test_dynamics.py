"""What is said of a training run is what its history holds."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import spearmanr

from ropescope.experiments.dynamics import claims, dynamics
from ropescope.report.dynamics import write_figures
from ropescope.runs import read_trajectory

STEPS = [0, 50, 100, 150]


@pytest.fixture
def folder(tmp_path) -> Path:
    """Three layers: one turns positional at 50, one symbolic at 100 and back, one never; two hop counts."""
    mixed, place, thing = (0.7, 0.6), (0.97, 0.03), (0.02, 1.0)
    scores = np.array([[mixed, place, place, place], [mixed, mixed, thing, mixed], [mixed, mixed, mixed, (0.08, 0.93)]])
    accuracy = np.array([[0.1, 0.0], [0.992, 0.4], [0.98, 0.99], [1.0, 1.0]])
    arrays = {"step": np.array(STEPS), "accuracy": accuracy, "loss": np.ones(4), "entropy": np.full((4, 3, 1), 0.5)}
    arrays["positional"], arrays["symbolic"] = scores.transpose(2, 1, 0)[..., None]
    run = tmp_path / "number-7"
    run.mkdir()
    save_file(
        {
            name: torch.tensor(value, dtype=None if name == "step" else torch.float32).contiguous()
            for name, value in arrays.items()
        },
        run / "history.safetensors",
    )
    (run / "config.json").write_text(json.dumps({"task": "number", "seed": 7}))
    return run


def test_events_of_a_run(folder):
    result = dynamics(read_trajectory(folder))
    assert (result["task"], result["seed"], result["last_step"]) == ("number", 7, 150)
    assert result["learned_at"] == [50, 100]
    assert result["step_of_best_accuracy"] == 150
    wide, narrow = result["purity"]["0.1"], result["purity"]["0.05"]
    assert (wide["final_positional"], wide["final_symbolic"]) == ([0], [2])
    assert wide["since_positional"] == [50, None, None]
    assert wide["first_symbolic"] == [None, 100, 150]
    assert wide["since_symbolic"] == [None, None, 150]
    assert (narrow["final_positional"], narrow["final_symbolic"]) == ([0], [])
    run = read_trajectory(folder)
    degree = np.abs(run.measures["positional"] - run.measures["symbolic"]).mean((1, 2))
    assert result["purity_and_accuracy"]["spearman"] == pytest.approx(spearmanr(degree, run.accuracy.mean(-1)).statistic)


def test_figures_are_written(folder, tmp_path):
    run = read_trajectory(folder)
    names = write_figures(run, dynamics(run), tmp_path)
    assert names == [f"number-7-{figure}.{kind}" for figure in ("learning", "layers") for kind in ("html", "png")]
    for name in names:
        assert (tmp_path / name).stat().st_size > 10_000
    assert "L2" in (tmp_path / "number-7-layers.html").read_text()


def test_chosen_layers_are_shown(folder, tmp_path):
    run = read_trajectory(folder)
    write_figures(run, dynamics(run), tmp_path, [1])
    page = (tmp_path / "number-7-learning.html").read_text()
    assert "layer 1" in page
    assert "layer 2" not in page
    with pytest.raises(ValueError, match="layer 3 is not one of the 3 layers"):
        write_figures(run, dynamics(run), tmp_path, [3])


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no training run"):
        read_trajectory(tmp_path)


def test_a_damaged_run_is_reported(folder):
    history = folder / "history.safetensors"
    history.write_bytes(history.read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged training run"):
        read_trajectory(folder)


def test_a_run_looked_at_twice_has_no_correlation(folder):
    """Two points always lie on a line, and have no p-value to write down."""
    arrays = {name: value[:2].contiguous() for name, value in load_file(folder / "history.safetensors").items()}
    save_file(arrays, folder / "history.safetensors")
    result = dynamics(read_trajectory(folder))
    assert result["purity_and_accuracy"] is None
    json.dumps(result, allow_nan=False)


def test_a_run_in_which_nothing_changed_has_no_correlation(folder):
    run = read_trajectory(folder)
    run.measures["accuracy"][:] = 0
    assert dynamics(run)["purity_and_accuracy"] is None


def run_of(task, learned, positional, symbolic):
    since = {"since_positional": [None] * 12, "final_positional": positional, "final_symbolic": symbolic}
    return {"task": task, "learned_at": learned, "purity": {"0.1": since}, "purity_and_accuracy": {"spearman": 0.9}}


@pytest.mark.parametrize(
    ("run", "holds"),
    [
        (run_of("number", [1750, 2250, 2450, 3450], [1, 2, 3], [5, 6, 7, 8, 9, 10, 11]), [True, True, True, True]),
        (run_of("number", [1750, 2000, 2000, 2200], [1, 2, 9], [3, 4, 5, 6, 7, 8]), [False, False, True, True]),
        (run_of("number", [1750, 2000, 2000, None], [1, 2, 3, 9], [4, 5, 6, 7, 8]), [False, False, False, True]),
        (run_of("letter", [2450, 2550, 2500, 2450], [], [*range(1, 12)]), [True, True, True, True]),
        (run_of("letter", [2000, 2550, 2500, None], [0], [*range(1, 10)]), [False, False, False, True]),
    ],
)
def test_claims_of_the_paper_are_judged(run, holds):
    assert [claim["holds"] for claim in claims(run)] == holds


def test_no_claims_at_other_sizes(folder):
    assert dynamics(read_trajectory(folder))["claims"] == []
