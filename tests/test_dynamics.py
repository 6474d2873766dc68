"""Milestones, figures and claims of a training run are those of its history."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import spearmanr

import ropescope as rs
from ropescope.runs import read_trajectory
from ropescope.studies.claims import judge
from ropescope.studies.histories.milestones import milestones

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
    result = milestones(read_trajectory(folder))
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


@pytest.mark.slow
def test_figures_are_written(folder, tmp_path):
    """They need no other folder: the run holds a copy of the history."""
    out = tmp_path / "out"
    written = set(rs.run("dynamics", sources=[folder], out=out).summary["sha256"])
    assert written == {
        "histories.json",
        "histories/number-7.safetensors",
        *(f"{name}.{kind}" for name in ("milestones", "number-7-learning", "number-7-layers") for kind in ("html", "png")),
    }
    for name in written:
        assert (out / name).stat().st_size > (10_000 if name.endswith(("html", "png")) else 10)
    assert "L2" in (out / "number-7-layers.html").read_text()
    shutil.rmtree(folder)
    result = rs.open_run(out)
    assert list(result.figures()) == ["milestones", "number-7-learning", "number-7-layers"]
    assert result.dataset["learned_at"].sel(run="number-7").values.tolist() == [50, 100]
    assert float(result.dataset["pure_since"].sel(run="number-7", gamma=0.1, kind="symbolic", head="L2")) == 150
    assert result.headline == "1 training run: number-7"


def test_chosen_layers_are_shown(folder):
    result = rs.run("dynamics", sources=[folder], layers=[1])
    shown = json.dumps(result.plot("number-7-learning").to_dict())
    assert "layer 1" in shown
    assert "layer 2" not in shown
    assert result.run.config["layers"] == [1]
    with pytest.raises(ValueError, match="layer 3 is not one of the layers of number-7: 0, 1, 2"):
        rs.run("dynamics", sources=[folder], layers=[3])


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
    result = milestones(read_trajectory(folder))
    assert result["purity_and_accuracy"] is None
    json.dumps(result, allow_nan=False)


def test_a_run_in_which_nothing_changed_has_no_correlation(folder):
    run = read_trajectory(folder)
    run.measures["accuracy"][:] = 0
    assert milestones(run)["purity_and_accuracy"] is None


def test_claims_are_judged_by_the_rules_of_the_scoreboard(runs, rows, tmp_path):
    """By the training runs that were read and no others; at other sizes there are none."""
    sources = [run for run in runs if run.command == "train" and run.name in ("number-0", "letter-1")]
    result = rs.run("dynamics", sources=[run.folder for run in sources], progress=False)
    found = {row.claim: row for row in result.claims()}
    assert {"B-2-number-positional", "B-2-purity-rises", "ours-2-shares", "B-I-training-cost"} <= set(found)
    assert all(row == found[row.claim] for row in judge(sources, "dynamics") if row.claim in found)
    # Of two recorded runs, that of the released recipe, which the scoreboard reads first.
    (recorded,) = (run for run in runs if run.name == "dynamics-released")
    from_page = judge(result.study.evidence(recorded, runs), "dynamics")
    assert {row.claim: row.verdict for row in from_page} == {row.claim: row.verdict for row in rows if row.claim in found}


def test_no_claims_at_other_sizes(folder):
    assert rs.run("dynamics", sources=[folder]).claims() == []
