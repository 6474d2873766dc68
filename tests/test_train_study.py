"""Training as a study: from Python as from the shell, resumed bit for bit, with the run folder of the trainer."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from test_cli import check_summary

import ropescope as rs
from ropescope import cli
from ropescope.models.bundled import bundled_folder
from ropescope.models.gptj import save_gptj
from ropescope.training import trainer

CHANGES = [
    'task_sizes={"targets": 3, "stops": 3, "hops": 2, "letters": 6, "integers": 6}',
    "samples=[500, 60, 100]",
    "layers=2",
    "width=16",
    "steps=20",
    "warm_up=2",
    "watch_every=5",
    "checkpoint_every=10",
    "probe=20",
]
FILES = ["checkpoint.safetensors", "config.json", "history.safetensors", "model", "summary.json"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return rs.run("train", task="number", changes=CHANGES, out=tmp_path_factory.mktemp("runs") / "number-0", progress=False)


def contents(folder: Path) -> dict[str, bytes]:
    names = ("config.json", "history.safetensors", "checkpoint.safetensors", "model/model.safetensors")
    return {name: (folder / name).read_bytes() for name in names}


def test_the_result_of_a_run(trained):
    assert sorted(path.name for path in trained.folder.iterdir()) == FILES
    summary = check_summary(trained.folder, "train")
    assert set(summary["sha256"]) == {"config.json", "history.safetensors", "model/config.json", "model/model.safetensors"}
    key = json.loads((trained.folder / "config.json").read_text())
    assert set(key.pop("made_with")) == {"code", "versions"}
    assert summary["config"] == key
    assert dict(trained.dataset.sizes) == {"step": 5, "layer": 2, "head": 1, "hops": 2}
    assert trained.dataset["hops"].values.tolist() == [1, 2]
    assert np.isfinite(trained.dataset["positional"]).all()
    assert {"film", "accuracy", "head", "learning", "layers"} == set(trained.figures())
    assert str(trained.table()) == f"{trained.folder}: test accuracy {summary['results']['test_accuracy']}"
    assert trained.headline.startswith("number task, seed 0: test accuracy from ")


def from_python(out: Path, resume: bool = False) -> None:
    rs.run("train", task="number", changes=CHANGES, out=out, resume=resume, progress=False)


def words(out: Path, resume: bool = False) -> list[str]:
    return ["train", "number", "--out", str(out), *(f"--set={change}" for change in CHANGES), *(["--resume"] * resume)]


def from_shell(out: Path, resume: bool = False) -> None:
    cli.app(words(out, resume), standalone_mode=False)


@pytest.mark.parametrize(("start", "leaves_by"), [(from_python, KeyboardInterrupt), (from_shell, SystemExit)])
def test_an_interrupted_run_is_resumed_bit_for_bit(trained, tmp_path, monkeypatch, capsys, start, leaves_by):
    step, taken, out = trainer.train_step, [], tmp_path / "run"

    def stopped(*given):
        taken.append(given)
        if len(taken) == 14:
            raise KeyboardInterrupt
        return step(*given)

    with monkeypatch.context() as patched:
        patched.setattr(trainer, "train_step", stopped)
        patched.setattr(sys, "argv", ["ropescope", *words(out)])
        with pytest.raises(leaves_by):
            cli.main() if start is from_shell else start(out)
    if leaves_by is SystemExit:
        advice = f"ropescope: interrupted; add --resume to the same command to continue in {out}\n"
        assert capsys.readouterr().err == advice
    assert not (out / "summary.json").exists()
    with pytest.raises(ValueError, match="already holds a run: pass resume"):
        start(out)
    with pytest.raises(ValueError, match="run of another recipe"):
        rs.run("train", task="number", changes=[*CHANGES, "rate=0.5"], out=out, resume=True)
    start(out, resume=True)
    assert rs.open_run(out).run.results["steps_timed"] == 10, "from the checkpoint at step 10"
    assert contents(out) == contents(trained.folder)


def test_several_seeds_are_runs_of_their_own(tmp_path):
    result = rs.run("train", task="number", changes=CHANGES, seeds=[0, 3], out=tmp_path / "out", progress=False)
    assert [run.name for run in (result.run, *result.sources)] == ["number-0", "number-3"]
    assert [line.split(":")[0] for line in str(result.table()).splitlines()] == [
        str(tmp_path / "out" / f"number-{seed}") for seed in (0, 3)
    ]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["number-0", "number-3"]


def test_a_refused_recipe_leaves_nothing_behind(tmp_path):
    with pytest.raises(ValueError, match="layers must be at least 1"):
        rs.run("train", task="number", changes=["layers=0"], out=tmp_path / "new" / "out")
    assert not list(tmp_path.iterdir())


def test_without_a_folder_everything_is_temporary():
    result = rs.run("train", task="number", changes=CHANGES, progress=False)
    assert result.folder.exists()
    folder = result.folder
    del result
    assert not folder.exists()


@pytest.mark.slow
def test_accuracy_of_a_model_of_ones_own(tmp_path, monkeypatch):
    """With accuracies of our own: a model of this size takes a while on 45,600 sequences."""
    monkeypatch.setattr(trainer, "evaluate", lambda model, test: np.array([0.5, 0.25, 1.0, 1.0]))
    save_gptj(rs.bundled("letter"), tmp_path / "mine")
    result = rs.run("evaluate", task="letter", model=tmp_path / "mine", out=tmp_path / "out")
    assert result.run.config | {"weights": ""} == {"task": "letter", "model": "mine", "weights": "", "seed": 0}
    assert result.dataset["accuracy"].sel(hops=2) == 0.25
    assert str(result.table()) == "45,600 test sequences: 1-hop 0.5000, 2-hop 0.2500, 3-hop 1.0000, 4-hop 1.0000"
    with pytest.raises(ValueError, match="vocabulary"):
        rs.run("evaluate", task="letter", model=bundled_folder("number"), out=tmp_path / "other")
    assert not (tmp_path / "other").exists()
