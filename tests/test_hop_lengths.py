"""Accuracy by hop count over length: against one sequence after the other, and as a user runs it."""

import json

import numpy as np
import pytest
import torch
from commands import run as command

import ropescope as rs
from ropescope.studies.length.hops import MIXES, RULES, distances, right_by_hop, subjects
from ropescope.tasks import LetterTask, NumberTask
from ropescope.training.recipe import recipe

SMALL = ["--lengths", "17,25", "--samples", "8", "--draws", "2", "--share", "4"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "task", [NumberTask(), LetterTask(), LetterTask(share_query=True)], ids=["number", "letter", "released"]
)
def test_accuracy_is_that_of_plain_passes_over_whole_sequences(task):
    model, right, hops = rs.bundled(task.name), [], []
    for group in task.behind_one_front(task.sample(24, seed=3, extra=30), 6):
        for tokens, answer in zip(group.tokens, group.answer, strict=True):
            assert task.solve(tokens[None]).answer[0] == answer
            right.append(int(model(torch.from_numpy(tokens)[None])[0, -1].argmax()) == answer)
        hops += list(group.hops)
    found = right_by_hop(model, task, 30, 24, 6, 3)
    expected = [np.mean([r for r, h in zip(right, hops, strict=True) if h == hop]) for hop in (1, 2, 3, 4)]
    assert found.tolist() == pytest.approx(expected)


def trained(at, name, preset="released", changes=()):
    for part in ("model", "last"):
        (at / name / part).mkdir(parents=True)
        rs.save_gptj(rs.bundled("letter"), at / name / part)
    config = recipe("letter", preset, 7, changes).settings()
    (at / name / "config.json").write_text(json.dumps(config | {"made_with": {"code": "x"}}))
    return at / name


@pytest.mark.slow
def test_the_command_measures_best_and_last_checkpoints_with_both_fillers(tmp_path):
    run = trained(tmp_path, "letter-7")
    out = tmp_path / "out"
    done = command("hop-lengths", run, "--out", out, *SMALL)
    assert (done.returncode, done.stderr) == (0, "")
    result = rs.open_run(out)
    curves = result.summary["results"]["curves"]
    letter = [(row["name"], row["recipe"], row["checkpoint"], row["fillers"]) for row in curves if row["task"] == "letter"]
    assert len(letter) == 2 * 3
    assert {("letter-7", "released", which, rule) for which in ("best", "last") for rule in RULES} < set(letter)
    assert len([row for row in curves if row["task"] == "number"]) == 1
    # The same weights and sequences have the same accuracy, under whatever name.
    same = [row["per_hop"] for row in curves if row["task"] == "letter" and row["fillers"] == "as released"]
    assert same[0] == same[1] == same[2]
    for row in curves:
        hop = np.array(row["per_hop"])
        for name, hops in MIXES.items():
            assert row["mixes"][name]["mean"] == pytest.approx(hop[[h - 1 for h in hops]].mean(0).tolist(), abs=2e-5)
    assert set(result.figures()) == {"number", "letter"}
    assert result.dataset.accuracy.dims == ("curve", "hops", "length")
    assert "17" in str(result.table())
    assert command("hop-lengths", run, "--out", out, *SMALL).returncode == 0
    assert json.loads((out / "summary.json").read_text())["results"]["curves"] == curves


def test_distances_are_read_between_lengths():
    mixes = {name: {"mean": [1.0, 0.0]} for name in MIXES}
    row = {"name": "a", "recipe": "paper", "task": "letter", "checkpoint": "last", "fillers": "as released", "mixes": mixes}
    (found,) = distances([17, 17_000], [row])
    line = {n: 1 - np.log(n / 17) / np.log(1000) for n in (850, 3000, 5000)}
    expected = max(abs(line[n] - value) for n, value in ((850, 0.9), (3000, 0.65), (5000, 0.5)))
    assert found["distance"]["all"] == pytest.approx(expected, abs=1e-4)
    assert distances([17, 850], [row]) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "nowhere holds no finished training run"),
        (["--lengths", "16,20"], "lengths must be at least 17"),
        (["--lengths", "20,17"], "lengths must grow"),
        (["--samples", "2"], "samples must be at least 4"),
        (["--draws", "0"], "draws must be at least 1"),
    ],
)
def test_bad_settings_are_one_sentence(arguments, says, tmp_path):
    done = command("hop-lengths", *arguments, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_run_has_the_recipe_of_a_preset_or_a_changed_one(tmp_path):
    paper, changed = trained(tmp_path, "a", "paper"), trained(tmp_path, "b", "released", ["steps=7000"])
    found = {(one.name, one.checkpoint): one.recipe for one in subjects([paper, changed])}
    assert found["a", "last"] == "paper"
    assert found["b", "best"] == found["b", "last"] == "changed"


def test_models_of_other_sizes_are_refused(tmp_path):
    with pytest.raises(ValueError, match="is of a task of another size"):
        subjects([trained(tmp_path, "a", "quick")])


def test_two_runs_of_one_name_are_refused(tmp_path):
    runs = [trained(tmp_path / place, "letter-7") for place in "ab"]
    with pytest.raises(ValueError, match="two run folders are called letter-7"):
        subjects(runs)
