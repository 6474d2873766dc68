"""The study of sizes: what is trained, when a model breaks, and how claims are judged."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from commands import run as command

from ropescope.runs import Run, read_run
from ropescope.studies.claims import CASES, Runs, all_cases
from ropescope.studies.sizes import PRESETS, Settings, knobs, tables
from ropescope.studies.sizes import run as study
from ropescope.studies.sizes.knobs import Setting, Unit
from ropescope.studies.sizes.recipes import recipe_of
from ropescope.tasks import split

TINY = {"seeds": 1, "windows": (4,), "hops": (1,), "letters": (8,), "steps": 8, "layers": 2, "width": 16}
TINY |= {"multiples": (2, 4), "inputs": 40, "long_inputs": 20}
FLAGS = ["--windows", "4", "--hops", "2", "--letters", "16", "--steps", "8", "--layers", "2", "--width", "16"]
FLAGS += ["--multiples", "2,4", "--inputs", "40", "--long-inputs", "20"]


# What is trained


def test_one_size_is_changed_at_a_time():
    settings = Settings(windows=(8, 16), hops=(1, 2, 6), letters=(8, 64), seeds=2, seed=5)
    names = [setting.name for setting in knobs.asked(settings)]
    assert names == [
        *("number default", "number windows 16", "number hops 1", "number hops 6", "number letters 8", "number letters 64"),
        *("letter default", "letter windows 16", "letter hops 1", "letter hops 6", "letter letters 8"),  # no 64 letters
    ]
    assert [(unit.setting.name, unit.seed) for unit in knobs.units(settings)][10:12] == [
        ("letter letters 8", 5),
        ("number default", 6),
    ]
    usual = {"targets": 8, "stops": 8, "hops": 2}
    for setting, sizes in (
        (Setting("number", "default", 0), usual | {"letters": 16, "integers": 16}),
        (Setting("number", "windows", 32), {"targets": 32, "stops": 32, "hops": 2, "letters": 16, "integers": 64}),
        (Setting("letter", "hops", 6), usual | {"hops": 6, "alphabet": 16}),
        (Setting("letter", "letters", 24), usual | {"alphabet": 24}),
    ):
        recipe = recipe_of(settings, Unit(setting, 3))
        assert recipe.task_sizes == sizes
        default = recipe_of(settings, Unit(Setting(setting.task, "default", 0), 3))
        assert asdict(replace(recipe, task_sizes={})) == asdict(replace(default, task_sizes={}))


def test_what_a_model_does_by_slow_loops():
    settings, unit = Settings(**TINY), Unit(Setting("letter", "windows", 4), 1)
    found = study.run_unit(settings, unit)
    recipe = recipe_of(settings, unit)
    task = recipe.make_task()
    data = split(task, recipe.samples, 1)
    torch.manual_seed(1)
    model = study.trained(recipe, data["train"])

    def per_hop(samples):
        with torch.inference_mode():
            right = [int(model(torch.from_numpy(row[None]))[0, -1].argmax()) for row in samples.tokens] == samples.answer
        return [right[samples.hops == hops].mean() for hops in (1, 2)]

    assert found["lengths"].tolist() == [9, 18, 36]
    expected = [data["test"], *(task.sample(20, 1, extra) for extra in (9, 27))]
    np.testing.assert_allclose(found["accuracy"], [per_hop(samples) for samples in expected], atol=1e-6)
    assert found["looks"][:, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert found["positional"].shape == found["symbolic"].shape == (2, 1)
    again = study.run_unit(settings, unit)
    assert all(np.array_equal(found[name], again[name]) for name in found)


@pytest.mark.parametrize(
    ("accuracy", "expected"),
    [
        ([1.0, 0.9, 0.6], None),
        ([1.0, 0.0, 0.0], 20.0),  # half way from 10 to 40, in doublings
        ([1.0, 0.75, 0.25], 80.0),
        ([0.8, 0.6, 0.2], 80.0),
        ([1.0, 0.2, 0.9], 10 * 4 ** (0.5 / 0.8)),
    ],
)
def test_where_a_model_breaks(accuracy, expected):
    found = study.breaking([10, 40, 160], accuracy)
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-3))


def arrays(learned=3, breaks=(0.9, 0.1), pure=1):
    looks = np.array([(step, 0.95 if step >= learned else 0.1) for step in range(1, 6)])
    scores = np.array([[float(n < pure)] for n in range(3)])
    accuracy = np.array([[1.0, 0.95], *([value, value] for value in breaks)])
    return {
        "lengths": np.array([17, 34, 68]),
        "accuracy": accuracy,
        "looks": looks,
        "positional": scores,
        "symbolic": 1 - scores,
    }


def test_a_row_tells_when_and_how_a_model_learned():
    row = study.row_of(Unit(Setting("number", "hops", 4), 2), arrays())
    assert (row["setting"], row["task"], row["knob"], row["value"], row["seed"]) == ("number hops 4", "number", "hops", 4, 2)
    assert (row["learned"], row["learned_at"], row["pure_positional"], row["pure_symbolic"]) == (True, 3, 1, 2)
    assert row["breaks_at"] == study.breaking([17, 34, 68], [0.975, 0.9, 0.1])
    never = study.row_of(Unit(Setting("number", "hops", 4), 2), arrays(learned=9, breaks=(0.9, 0.9)))
    assert (never["learned_at"], never["breaks_at"]) == (None, None)


# The command


@pytest.mark.slow
def test_the_command_runs_adds_and_resumes(tmp_path):
    out = tmp_path / "sizes"
    done = command("sizes", *FLAGS, "--seeds", "1", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "Range over seeds (1)" in done.stdout
    files = sorted((out / "units").iterdir())
    assert [path.name for path in files] == [
        f"{task}-{name}-0.safetensors" for task in ("letter", "number") for name in ("default", "windows-4")
    ]
    before = {path: path.stat().st_mtime_ns for path in files}
    first = read_run(out)
    done = command("sizes", *FLAGS, "--seeds", "2", "--out", out)  # more models of the same kind
    assert done.returncode == 0, done.stderr
    assert len(list((out / "units").iterdir())) == 8
    assert {path: path.stat().st_mtime_ns for path in files} == before
    run = read_run(out)
    assert run.results["models"][:4] == first.results["models"]
    assert tables.dataset(run).sizes == {"model": 8, "multiple": 3, "layer": 2}
    other = command("sizes", *FLAGS, "--width", "8", "--out", out)
    assert other.returncode == 2
    assert "holds a run with other settings (width differs)" in other.stderr


def test_presets_are_settings():
    for changes in PRESETS.values():
        assert knobs.units(Settings(**changes))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seeds": 0}, "seeds must be at least 1, not 0"),
        ({"inputs": 3}, "inputs and long_inputs must be at least 4, one for each hop count, not 3 and 64"),
        ({"multiples": (1, 2)}, "multiples must grow from at least 2, not 1, 2"),
        ({"hops": (9, 10)}, "hops is 10 but stops only 8"),
        ({"windows": (0,)}, "targets must be at least 1, not 0"),
        ({"letters": (3,)}, "alphabet is 3 but the tokens of 2 hops begin with 3 different letters"),
        ({"width": 7}, "width must be a multiple of 2 x heads = 2, not 7"),
    ],
)
def test_settings_that_are_not_allowed_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        Settings(**change)


# Claims

NAMES = ("default", "windows 64", "hops 1", "hops 6", "letters 8", "letters 24")


def made(folder, changes=None):
    """A run of both tasks and two seeds, in which hops move heads and steps, and windows the breaking length."""
    moved = {
        "hops 6": {"learned_at": 4, "pure": 3},
        "windows 64": {"breaks": (0.9, 0.6), "learned_at": 3},
    } | (changes or {})
    rows = []
    for task in ("number", "letter"):
        for seed in (0, 1):
            for name in NAMES:
                knob, _, value = name.rpartition(" ")
                given = {"learned_at": 2, "breaks": (0.1, 0.0), "pure": 1} | moved.get(name, {})
                row = study.row_of(
                    Unit(Setting(task, knob or "default", int(value) if knob else 0), seed),
                    arrays(given["learned_at"], given["breaks"], given["pure"]),
                )
                rows.append(row | {"breaks_at": 17.0 if given["breaks"][0] < 0.5 else 170.0})
    results = {"settings": list(dict.fromkeys(row["setting"] for row in rows)), "models": rows}
    config = {"seeds": 2, "seed": 0, "steps": 8}
    return Run(folder, {"command": "sizes", "config": config, "results": json.loads(json.dumps(results))})


def verdict(run, claim):
    all_cases()
    return CASES[claim].row(Runs([run])).verdict


@pytest.mark.parametrize(
    ("claim", "changes", "expected"),
    [
        ("ours-sizes-heads", {}, "reproduced"),
        ("ours-sizes-heads", {"letters 24": {"pure": 3}}, "not"),  # as many
        ("ours-sizes-step", {}, "reproduced"),
        ("ours-sizes-step", {"hops 6": {"learned_at": 2}}, "not"),
        ("ours-sizes-step", {"hops 6": {"learned_at": 9}}, "reproduced"),  # the last step is 8
        ("ours-sizes-step", {"hops 6": {"learned_at": 9}, "letters 24": {"learned_at": 9}}, "not"),
        ("ours-sizes-breaks", {}, "reproduced"),
        ("ours-sizes-breaks", {"windows 64": {}}, "not"),
    ],
)
def test_what_sizes_move(tmp_path, claim, changes, expected):
    assert verdict(made(tmp_path, changes), claim) == expected


def test_some_seeds_are_partly_and_one_seed_is_not_run(tmp_path):
    run = made(tmp_path)
    row = next(row for row in run.results["models"] if row["setting"] == "number hops 6" and row["seed"] == 1)
    row["pure_positional"] = 1
    assert verdict(run, "ours-sizes-heads") == "partly"
    run.summary["config"]["seeds"] = 1
    assert verdict(run, "ours-sizes-heads") == "not run"


def test_a_run_is_shown(tmp_path):
    from ropescope.studies.sizes.figures import figures  # noqa: PLC0415

    run = made(tmp_path)
    assert tables.headline(run).startswith("number, windows 8 to 64: learned at 2 to 3, breaks at 17 to 170 tokens")
    (table,) = tables.tables(run)
    shown = {row[0]: row[1:] for row in table.rows}
    assert shown["number hops 6"] == ["17", "2 of 2", "4", "0.97", "3", "0", "17", "1.0"]
    assert list(figures(run)) == ["sizes"]
    spec = figures(run)["sizes"].chart.to_dict()
    assert len(spec["hconcat"]) == 3
    never = made(tmp_path, {"hops 6": {"learned_at": 9, "breaks": (0.9, 0.6)}})
    (table,) = tables.tables(never)
    shown = {row[0]: row[1:] for row in table.rows}
    assert shown["letter hops 6"][2] == "never in 2"
