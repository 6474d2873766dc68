"""Other numbers give other verdicts on claims about learning the number and letter tasks."""

from fnmatch import fnmatch

import numpy as np
import pytest
from doctored import at, check_changed
from safetensors.numpy import load_file, save_file

from ropescope.models.gptj import GPTJ, GPTJConfig
from ropescope.runs import Run
from ropescope.studies.by_recipe import is_released
from ropescope.studies.claims import CASES, Runs, judge
from ropescope.studies.dynamics.trained import parameter_count


@pytest.fixture(scope="module")
def runs(runs):
    """Recorded runs without those by the released recipe, which would be judged instead."""
    return [run for run in runs if run.command != "train" or not is_released(run)]


@pytest.fixture(scope="module")
def rows(runs):
    return judge(runs)


CHANGES = [
    ("B-2-setting", "not", at("number-0", "config", "batch", 32)),
    ("B-2-parameters", "not", at("number-0", "config", "width", 64)),
    ("B-2-number-accuracy", "partly", at("number-0", "test_accuracy", "4-hop", 0.5)),
    ("B-2-letter-accuracy", "partly", at("letter-0", "test_accuracy", "4-hop", 0.5)),
    ("B-I-training-cost", "partly", at("number-*", "seconds", 9999.0)),
]


@pytest.mark.parametrize("change", CHANGES, ids=[change[0] for change in CHANGES])
def test_other_numbers_give_another_verdict(runs, rows, tmp_path, change):
    check_changed(runs, rows, tmp_path, *change)


def test_parameters_are_counted_as_the_model_has_them(runs):
    config = next(run for run in runs if run.name == "number-0").config
    sizes = GPTJConfig(vocab_size=136, layers=config["layers"], heads=1, width=config["width"], mlp_width=config["mlp_width"])
    assert parameter_count(config, 136) == sum(p.numel() for p in GPTJ(sizes).parameters())


# Training runs: (claim, verdict, runs, changes of the history), a change being (measure, index, value).
STEP = 50  # between two looks
SCORES = ("positional", "symbolic")


def scores(where, positional):
    return [("positional", where, float(positional)), ("symbolic", where, 1.0 - positional)]


LAST, EVER = np.s_[-1], np.s_[:]
HISTORIES = [
    ("B-2-number-when", "reproduced", "number-*", [("accuracy", np.s_[: 4800 // STEP], 0.5)]),
    ("B-2-letter-when", "reproduced", "letter-*", [("accuracy", np.s_[: 3400 // STEP], 0.5)]),
    ("B-2-number-hop-by-hop", "partly", "number-0", [("accuracy", np.s_[: 3500 // STEP, 0], 0.5)]),
    ("B-2-number-hop-steps", "partly", "number-0", [("accuracy", np.s_[: 3500 // STEP, 0], 0.5)]),
    ("B-2-letter-together", "partly", "letter-0", [("accuracy", np.s_[: 5000 // STEP, 3], 0.5)]),
    ("B-2-letter-done", "not", "letter-0", [("accuracy", np.s_[: 5000 // STEP, 3], 0.5)]),
    ("B-2-uniform-start", "not", "number-0", [("entropy", np.s_[0, 5], 0.5)]),
    ("B-2-purity-rises", "partly", "number-0", [*((score, EVER, 0.5) for score in SCORES), ("symbolic", 0, 1.0)]),
    ("B-2-maximum-when-pure", "not", "letter-0", [(score, np.s_[: 5000 // STEP], 0.5) for score in SCORES]),
    ("B-2-number-positional", "reproduced", "number-*", scores(np.s_[-1, 4], 1)),
    ("B-2-number-symbolic", "reproduced", "number-*", scores(np.s_[-1, 4], 0)),
    ("B-2-number-L0", "partly", "number-0", scores(np.s_[-1, 0], 1)),
    ("B-2-letter-L0", "partly", "letter-0", scores(np.s_[-1, 0], 0)),
    ("B-2-number-one-at-a-time", "not", "number-*", [(score, EVER, 0.5) for score in SCORES]),
    ("B-2-letter-positional", "partly", "letter-0", scores(np.s_[-1, 5], 1)),
    ("B-2-letter-symbolic", "reproduced", "letter-*", scores(np.s_[-1, 1:], 0)),
    ("B-2-letter-L11-last", "not", "letter-*", [("positional", np.s_[-1, 11], 0.5)]),
    ("B-2-hops-follow-heads", "reproduced", "number-*", scores(np.s_[1000 // STEP :, 1:5], 1)),
    ("B-2-letter-waits", "reproduced", "letter-*", scores(np.s_[1000 // STEP :, 1:], 0)),
    ("ours-2-shares", "not", "number-0", [("binding_share", np.s_[-1, 0], 0.1)]),
    ("ours-2-first-heads", "reproduced", "number-*", scores(np.s_[-1, 4], 1)),
]


@pytest.mark.parametrize(("claim", "expected", "name", "changes"), HISTORIES, ids=[case[0] for case in HISTORIES])
def test_another_history_gives_another_verdict(runs, rows, tmp_path, claim, expected, name, changes):
    assert next(row for row in rows if row.claim == claim).verdict != expected
    doctored = []
    for run in runs:
        if fnmatch(run.name, name) and run.command == "train":
            arrays = load_file(run.folder / "history.safetensors")
            for measure, where, value in changes:
                arrays[measure][where] = value
            folder = tmp_path / run.name
            folder.mkdir()
            (folder / "config.json").write_text((run.folder / "config.json").read_text())
            save_file(arrays, folder / "history.safetensors")
            run = Run(folder, run.summary)  # noqa: PLW2901
        doctored.append(run)
    assert CASES[claim].row(Runs(doctored)).verdict == expected


def test_released_runs_are_judged_and_ours_stand_behind(runs):
    """Runs by the released recipe take the place of ours where a rule reads them; the others keep their verdict."""
    released = []
    for run in runs:
        if run.command == "train" and run.name.startswith("letter"):
            results = {**run.results, "test_accuracy": {**run.results["test_accuracy"], "4-hop": 0.5}}
            released.append(
                Run(run.folder, {**run.summary, "config": {**run.config, "betas": [0.95, 0.999]}, "results": results})
            )
    both = Runs([*runs, *released])
    alone = {name: CASES[name].row(Runs(runs)) for name in ("B-2-letter-accuracy", "B-2-number-accuracy")}
    letter, number = (CASES[name].row(both) for name in alone)
    before = alone["B-2-letter-accuracy"]
    assert (before.verdict, letter.verdict) == ("reproduced", "not")
    assert letter.ours.endswith(f". By our recipe: {before.ours} (reproduced)")
    assert number == alone["B-2-number-accuracy"]
