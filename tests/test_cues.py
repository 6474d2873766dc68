"""The study of cues: what is trained, what is asked of models, and how claims are judged."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run as command
from doctored import RESULTS
from scipy.stats import rankdata

import ropescope as rs
from ropescope.models.gptj import GPTJ, GPTJConfig
from ropescope.runs import Run, read_run
from ropescope.studies.claims import CASES, Runs, all_cases
from ropescope.studies.cues import PRESETS, Settings, figures, knobs, tables
from ropescope.studies.cues import run as study
from ropescope.studies.cues.knobs import Setting, Unit
from ropescope.tasks import RedundantTask, Samples, split
from ropescope.tasks.redundant import conflicting, scrambled
from ropescope.training.probe import last_logits
from ropescope.training.recipe import Recipe, recipe
from ropescope.training.trainer import train

TINY = {"seeds": 1, "shares": (0.5,), "bases": (), "stretches": (3,), "log_lengths": (2,), "heads": (2,), "steps": 12}
TINY |= {"width": 16, "multiples": (2, 4), "inputs": 40, "long_inputs": 20}
FLAGS = ["--shares", "0.5", "--bases", "10000", "--stretches", "3", "--log-lengths", "0", "--heads", "1", "--steps", "12"]
FLAGS += ["--width", "16", "--multiples", "2,50", "--inputs", "40", "--long-inputs", "20"]


# What is trained


def test_one_knob_is_turned_at_a_time():
    settings = Settings(shares=(0.0, 1.0, 0.25), bases=(100.0, 10_000.0), stretches=(1, 8), log_lengths=(2,), heads=(1, 4))
    names = [setting.name for setting in knobs.asked(settings)]
    assert names == ["default", "p-RoPE 0", "p-RoPE 0.25", "base 100", "stretch 8", "log n 2", "heads 4"]  # no default twice
    assert [(unit.setting.name, unit.seed) for unit in knobs.units(replace(settings, seeds=2, seed=5))][6:8] == [
        ("heads 4", 5),
        ("default", 6),
    ]
    usual = asdict(knobs.recipe_of(settings, Unit(Setting("default", 0.0), 3)))
    turned = {
        ("p-RoPE", 0.25): {"planes": tuple(range(1, 9))},
        ("p-RoPE", 0.0): {"planes": ()},
        ("base", 100.0): {"base": 100.0},
        ("stretch", 8.0): {"stretch": 8},
        ("log n", 2.0): {"log_length": 2},
        ("heads", 4.0): {"heads": 4},
    }
    for setting, change in turned.items():
        found = asdict(knobs.recipe_of(settings, Unit(Setting(*setting), 3)))
        assert {name: value for name, value in found.items() if value != usual[name]} == change


def test_p_rope_keeps_the_fastest_planes_turning():
    settings = Settings(**TINY)
    usual = rs.Rope(16).frequencies
    for share, turning in ((0.0, 0), (0.25, 2), (0.75, 6)):
        (rope,) = {*knobs.recipe_of(settings, Unit(Setting("p-RoPE", share), 0)).make_model().config.ropes}
        assert rope.frequencies == (*usual[:turning], *[0.0] * (8 - turning))
    (rope,) = {*knobs.recipe_of(settings, Unit(Setting("base", 100.0), 0)).make_model().config.ropes}
    assert rope.frequencies == pytest.approx([100 ** (-n / 8) for n in range(8)])


def test_positions_of_the_model():
    """A common offset changes nothing, which is why no knob is one; a stretch does."""
    torch.manual_seed(0)
    model = GPTJ(GPTJConfig(30, layers=2, width=16, mlp_width=16, log_length=2)).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    ids = torch.randint(30, (4, 9))
    usual = model(ids)
    assert torch.equal(model(ids, positions=torch.arange(9)), usual)
    torch.testing.assert_close(model(ids, positions=torch.arange(9) + 100), usual)
    assert (model(ids, positions=3 * torch.arange(9)) - usual).abs().max() > 0.01
    last = model(ids, last_only=True, positions=3 * torch.arange(9))
    torch.testing.assert_close(last, model(ids, positions=3 * torch.arange(9))[:, -1:])


def test_stretched_positions_are_a_random_choice():
    torch.manual_seed(0)
    assert recipe("redundant").positions(9) is None
    how = recipe("redundant", changes=["stretch=2"])
    drawn = torch.stack([how.positions(9) for _ in range(4_000)])
    assert (drawn.diff(dim=1) > 0).all()
    counts = torch.bincount(drawn.flatten(), minlength=18)
    assert len(counts) == 18
    assert (counts - 2_000).abs().max() < 5 * 2_000**0.5 * 0.5**0.5  # each of 18 is in half of the choices


def test_entries_at_their_defaults_are_not_stored():
    names = {"base", "stretch", "log_length"}
    assert not names & set(recipe("number").settings())
    assert names <= set(recipe("number", changes=["base=100", "stretch=2", "log_length=2"]).settings())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("base=1", "base must be a finite number above 1, not 1"),
        ('base="x"', "base must be a finite number above 1, not 'x'"),
        ("stretch=0", "stretch must be at least 1, not 0"),
        ("stretch=1.5", "stretch must be a whole number, not 1.5"),
        ("log_length=1", "log_length must be at least 2, not 1"),
        ('log_length="n"', "log_length must be a whole number, not 'n'"),
    ],
)
def test_entries_that_are_not_allowed_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        recipe("redundant", changes=[change])


def test_stretched_training_resumes_bit_for_bit(tmp_path):
    how = Recipe(
        "redundant", samples=(300, 20, 20), layers=1, width=8, mlp_width=8, batch=8, steps=12, warm_up=2, watch_every=6,
        probe=10, checkpoint_every=4, stretch=3,
    )  # fmt: skip

    def stop(step: int, *_: object) -> None:
        if step == 6:
            raise InterruptedError

    train(how, tmp_path / "whole")
    with pytest.raises(InterruptedError):
        train(how, tmp_path / "parts", on_step=stop)
    train(how, tmp_path / "parts", resume=True)
    one, other = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert one == other


# What models are asked


def test_what_a_model_does_by_slow_loops():
    settings, unit = Settings(**TINY), Unit(Setting("heads", 2.0), 1)
    found = study.run_unit(settings, unit)
    how = knobs.recipe_of(settings, unit)
    task = RedundantTask()
    data = split(task, how.samples, 1)
    torch.manual_seed(1)
    model = study.trained(how, data["train"])
    test = data["test"]

    def answers(tokens: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return np.array([int(model(torch.from_numpy(row[None]))[0, -1].argmax()) for row in tokens])

    def per_hop(samples: Samples) -> list[float]:
        right = answers(samples.tokens) == samples.answer
        return [float(np.mean([r for r, h in zip(right, samples.hops, strict=True) if h == hops])) for hops in (1, 2)]

    conflict = conflicting(task, test, 1)
    said = answers(conflict.tokens)
    assert found["followed"].tolist() == [(said == conflict.by_letters).mean(), (said == conflict.by_integers).mean()]
    expected = [test, *(task.sample(20, 1, extra) for extra in (9, 27))]
    np.testing.assert_allclose(found["accuracy"], [per_hop(samples) for samples in expected], atol=1e-6)
    np.testing.assert_allclose(found["letters_alone"], per_hop(scrambled(task, test, "integers", 1)), atol=1e-6)
    np.testing.assert_allclose(found["integers_alone"], per_hop(scrambled(task, test, "letters", 1)), atol=1e-6)
    assert found["positional"].shape == found["symbolic"].shape == (4, 2)
    again = study.run_unit(settings, unit)
    assert all(np.array_equal(found[name], again[name]) for name in found)
    assert last_logits(model, test).shape == (40, task.vocab_size)


def arrays(letters: float = 0.6, integers: float = 0.2, near: float = 0.95) -> dict[str, np.ndarray]:
    scores = {"positional": np.array([[0.9], [0.1]]), "symbolic": np.array([[0.2], [0.8]])}
    alone = {"letters_alone": np.array([0.5, 0.4]), "integers_alone": np.array([0.2, 0.1])}
    return {"accuracy": np.array([[1.0, near], [0.5, 0.1]]), "followed": np.array([letters, integers]), **alone, **scores}


def test_preference_is_the_share_of_letters_among_followed_cues():
    unit = Unit(Setting("stretch", 8.0), 2)
    row = study.row_of(unit, arrays())
    assert (row["setting"], row["seed"], row["preference"], row["follows_either"]) == ("stretch 8", 2, 0.75, 0.8)
    assert row["lead"] == pytest.approx(0.0)
    assert row["learned"]
    assert not study.row_of(unit, arrays(near=0.89))["learned"]
    assert study.row_of(unit, arrays(0.0, 0.0))["preference"] is None


def test_predictions_are_rank_correlations_over_models_that_learned():
    rng = np.random.default_rng(0)
    rows = [
        {
            "learned": n % 4 > 0,
            "preference": float(rng.random()),
            "lead": float(rng.random()),
            "accuracy": [[1.0], [rng.random()]],
        }
        for n in range(16)
    ]
    rows[5]["preference"] = None
    known = [row for row in rows if row["learned"] and row["preference"] is not None]
    found = study.predictions(rows)
    assert (found["models"], found["of"]) == (11, 16)
    far = rankdata([row["accuracy"][-1][0] for row in known])
    for name in ("lead", "preference"):
        assert found[name] == pytest.approx(np.corrcoef(rankdata([row[name] for row in known]), far)[0, 1], abs=1e-6)
    assert study.predictions(rows[:1])["lead"] is None
    assert study.predictions([row | {"lead": 0.5} for row in rows])["lead"] is None


# The command


@pytest.mark.slow
def test_the_command_runs_adds_and_resumes(tmp_path):
    out = tmp_path / "cues"
    done = command("cues", *FLAGS, "--seeds", "1", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "rank correlation with accuracy at 450 tokens over" in done.stdout
    files = sorted((out / "units").iterdir())
    assert [path.name for path in files] == [f"{name}-0.safetensors" for name in ("default", "p-RoPE-0.5", "stretch-3")]
    before = {path: path.stat().st_mtime_ns for path in files}
    first = read_run(out)
    done = command("cues", *FLAGS, "--seeds", "2", "--out", out)  # more models of the same kind
    assert done.returncode == 0, done.stderr
    assert len(list((out / "units").iterdir())) == 6
    assert {path: path.stat().st_mtime_ns for path in files} == before
    run = read_run(out)
    assert run.results["models"][:3] == first.results["models"]
    assert run.results["lengths"] == [9, 18, 450]
    assert not any(row["learned"] for row in run.results["models"])
    assert list(figures.figures(run)) == ["knobs"]
    assert list(figures.figures(read_run(RESULTS / "cues"))) == ["knobs", "length"]
    found = tables.dataset(run)
    assert found.sizes == {"model": 6, "length": 3, "hops": 2, "layer": 4}
    assert found.accuracy.values.tolist() == [row["accuracy"] for row in run.results["models"]]
    other = command("cues", *FLAGS, "--width", "8", "--out", out)
    assert other.returncode == 2
    assert "holds a run with other settings (width differs)" in other.stderr


def test_presets_are_settings():
    for changes in PRESETS.values():
        assert knobs.units(Settings(**changes))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seeds": 0}, "seeds must be at least 1, not 0"),
        ({"inputs": 1}, "inputs and long_inputs must be at least 2, not 1 and 128"),
        ({"multiples": ()}, "multiples must grow from at least 2, not be empty"),
        ({"multiples": (1, 2)}, "multiples must grow from at least 2, not 1, 2"),
        ({"multiples": (5, 5)}, "multiples must grow from at least 2, not 5, 5"),
        ({"shares": (0.5, 1.5)}, "each of shares must be from 0 to 1, not 0.5, 1.5"),
        ({"bases": (0.5,)}, "base must be a finite number above 1, not 0.5"),
        ({"bases": (float("nan"),)}, "base must be a finite number above 1, not nan"),
        ({"stretches": (0,)}, "stretch must be at least 1, not 0"),
        ({"log_lengths": (1,)}, "log_length must be at least 2, not 1"),
        ({"heads": (3,)}, "width must be a multiple of 2 x heads = 6, not 64"),
        ({"width": 7}, "width must be a multiple of 2 x heads = 2, not 7"),
        ({"steps": 0}, "steps must be at least 1, not 0"),
    ],
)
def test_settings_that_are_not_allowed_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        Settings(**change)


# Claims


def made(folder: Path, changes: dict[str, list[float]] | None = None, **given: object) -> Run:
    """A run of eight models: four settings with two seeds each, with these preferences."""
    preference = {"default": [0.5, 0.6], "p-RoPE 0": [0.95, 0.99], "stretch 8": [0.7, 0.95], "heads 4": [0.1, 0.2]}
    preference |= changes or {}
    rows = []
    for setting, values in preference.items():
        knob, _, value = setting.rpartition(" ")
        for seed, of in enumerate(values):
            row = study.row_of(Unit(Setting(knob or "default", float(value) if knob else 0.0), seed), arrays(of, 1 - of))
            rows.append(row | {"learned": True})
    results = {"settings": list(preference), "lengths": [9, 450], "models": rows, "predicts": study.predictions(rows)}
    results["predicts"] |= {"lead": 0.8, **given}
    return Run(folder, {"command": "cues", "config": {"seeds": 2}, "results": json.loads(json.dumps(results))})


def verdict(run: Run, claim: str) -> str:
    all_cases()
    return CASES[claim].row(Runs([run])).verdict


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "reproduced"),
        ({"p-RoPE 0": [0.95, 0.89]}, "not"),  # not in every seed
        ({"default": [0.5, 0.95]}, "partly"),
        ({"default": [0.95, 0.95]}, "not"),  # nothing is won that was not there
        ({"stretch 8": [0.9, 0.9], "p-RoPE 0": [0.1, 0.1]}, "reproduced"),
    ],
)
def test_some_change_makes_letters_win(tmp_path, changes, expected):
    assert verdict(made(tmp_path, changes), "ours-cues-preference") == expected


@pytest.mark.parametrize(("values", "expected"), [([0.9, 0.99], "reproduced"), ([0.95, 0.5], "partly"), ([0.1, 0.2], "not")])
def test_what_the_default_model_learns(tmp_path, values, expected):
    run = made(tmp_path, {"default": values})
    assert verdict(run, "ours-cues-default") == expected
    run.results["models"][1]["preference"] = None
    assert verdict(run, "ours-cues-default") == "not run"
    run.results["models"][1] |= {"preference": 0.95, "learned": False}
    assert verdict(run, "ours-cues-default") == "not run"


def test_a_setting_that_has_not_learned_wins_nothing(tmp_path):
    run = made(tmp_path)
    run.results["models"][2]["learned"] = False
    assert verdict(run, "ours-cues-preference") == "not"
    run.results["models"][0]["preference"] = run.results["models"][1]["preference"] = None
    assert verdict(run, "ours-cues-preference") == "not run"


def test_one_seed_judges_no_preference(tmp_path):
    run = made(tmp_path)
    run.summary["config"]["seeds"] = 1
    assert verdict(run, "ours-cues-preference") == "not run"
    assert verdict(run, "ours-cues-default") == "not run"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "reproduced"),
        ({"lead": 0.5}, "partly"),
        ({"lead": 0.39}, "not"),
        ({"lead": -0.9}, "not"),
        ({"lead": None}, "not run"),
        ({"models": 7}, "not run"),
    ],
)
def test_scores_predict_long_inputs(tmp_path, given, expected):
    assert verdict(made(tmp_path, **given), "ours-cues-length") == expected


def test_shorter_tests_judge_no_length(tmp_path):
    run = made(tmp_path)
    run.results["lengths"][-1] = 440
    assert verdict(run, "ours-cues-length") == "not run"
