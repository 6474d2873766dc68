"""Length generalisation: fronts change nothing but the cost, runs resume, and curves are read rightly."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_cli import check_summary

import ropescope as rs
from ropescope import cli
from ropescope.models.gptj import GPTJ, GPTJConfig, save_gptj
from ropescope.models.gptj_steps import read_front
from ropescope.studies.length import FILLERS, Settings
from ropescope.studies.length import run as study
from ropescope.studies.length.run import KINDS, crossing
from ropescope.tasks import LetterTask, NumberTask

RESULTS = Path(__file__).parents[1] / "results"
TASKS = {"number": NumberTask(), "letter": LetterTask()}
SMALL = Settings(lengths=(17, 33), samples=16, seeds=2, share=3)


def small_model(task, heads: int = 1) -> GPTJ:
    torch.manual_seed(0)
    return GPTJ(GPTJConfig(task.vocab_size, layers=2, heads=heads, width=16, mlp_width=24)).eval()


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_fronts_give_what_plain_runs_give(name):
    task, model, settings = TASKS[name], rs.bundled(name), Settings(lengths=(17, 65), samples=64, seeds=1, share=8)
    right = []
    for group in study.groups(task, settings, 3, extra=48):
        ids = torch.from_numpy(group.tokens)
        logits, _ = study.answers(model, group, read_front(model, ids[0, :48]), task.targets)
        with torch.inference_mode():
            plain = model(ids, last_only=True)[:, 0]
        assert torch.allclose(logits, plain, rtol=1e-4, atol=1e-3)
        assert torch.equal(logits.argmax(-1), plain.argmax(-1))
        right += (plain.argmax(-1).numpy() == group.answer).tolist()
    assert len(right) == 64
    assert study.measure(model, task, settings, 65, 3, "measured")["accuracy"] == np.mean(right)


@pytest.mark.parametrize("name", TASKS)
def test_predictions_start_where_measuring_does(name):
    task = TASKS[name]
    measured, *predicted = (study.measure(small_model(task), task, SMALL, 17, 0, kind) for kind in KINDS)
    assert predicted == [measured] * 3


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.slow
def test_a_front_of_one_window_is_predicted_exactly(kind):
    """Its tokens see what they see in a short input; standing where the window stands they have other keys."""
    task = TASKS["letter"]
    measured, predicted = (study.measure(rs.bundled("letter"), task, SMALL, 25, 0, k)["heads"] for k in (KINDS[0], kind))
    same = np.allclose(measured["front"], predicted["front"], rtol=0, atol=1e-5)
    assert same == (kind == "keys and places")


@pytest.mark.parametrize(("name", "fillers"), [(n, f) for n in TASKS for f in FILLERS if (n, f) != ("number", "one letter")])
def test_fillers_keep_the_path(name, fillers):
    task, seen = TASKS[name], 0
    for group in study.groups(task, replace(SMALL, fillers=fillers), 0, extra=40):
        solved = task.solve(group.tokens)
        np.testing.assert_array_equal(solved.answer, group.answer)
        np.testing.assert_array_equal(solved.path, group.path)
        front, seen = group.tokens[:, :40], seen + len(group)
        assert (front == front[0]).all()
        assert (front < task.answers).all()
        names = set(task.decode(front[0]))
        if fillers == "one token":
            assert len(names) == 1
        elif fillers == "one letter":
            assert len({pair[0] for pair in names}) == 1
            assert len(names) > 3
        else:
            assert len({pair[0] for pair in names}) > 1
    assert seen == SMALL.samples


def test_weights_and_margins_are_those_of_the_model():
    """By hand, from the weights of one layer on one input."""
    weights = torch.tensor([0.05, 0.1, 0.4, 0.2, 0.25]).expand(1, 1, 3, 5)  # two keys of front, two targets, the query
    margin, front, ahead, itself, targets = study.node_weights(weights, torch.tensor([[4, 2]]), 2, 2)[0, 0]
    assert float(margin) == pytest.approx(np.log(0.4 / 0.2))
    assert (float(front), float(ahead)) == pytest.approx((0.15, 0.4))
    assert (float(itself), float(targets)) == pytest.approx((0.25, 0.2))


def test_several_heads_have_names_and_numbers():
    task = TASKS["number"]
    model = small_model(task, heads=2)
    row = study.measure(model, task, SMALL, 33, 0, "measured")
    assert study.head_names(model) == ["L0H0", "L0H1", "L1H0", "L1H1"]
    assert all(len(values) == 4 for values in row["heads"].values())


def test_crossings_on_straight_lines():
    assert crossing([10, 1000], [1.0, 0.0], 0.5) == pytest.approx(100)
    assert crossing([10, 100, 1000], [1.0, 0.95, 0.85], 0.9) == pytest.approx(10**2.5, abs=1e-3)
    assert crossing([17, 33, 65], [1.0, 0.9, 0.5], 0.9) == 33
    assert crossing([17, 33], [0.5, 0.2], 0.5) == 17
    assert crossing([17, 33, 65], [1.0, 0.4, 0.6], 0.5) < 33  # the first time counts
    assert crossing([17, 33], [1.0, 0.91], 0.9) is None
    assert crossing([17, 33], [0.8, 0.7], 0.9) is None


def hand_made(kind: str, length: int, seed: int, accuracy: float) -> dict:
    heads = {key: [0.0] for key in ("margin", "margin_low", "front_high", "ahead", "itself")}
    heads |= {"targets": [0.07], "front": [(length - 17) / (length - 17 + 100)]}
    at = {"task": "letter", "length": length, "seed": seed, "kind": kind}
    return at | {"accuracy": accuracy, "per_hop": [accuracy] * 4, "heads": heads}


def test_summary_of_hand_made_rows():
    curves = {"measured": [1.0, 0.8, 0.2], "keys and places": [1.0, 0.9, 0.3], "keys alone": [1.0, 1.0, 1.0]}
    curves["sharpened"] = [1.0, 1.0, 0.4]
    rows = [
        hand_made(kind, n, seed, value + shift)
        for kind, values in curves.items()
        for n, value in zip((17, 170, 1700), values, strict=True)
        for seed, shift in ((0, 0.01), (1, -0.01))
    ]
    found = study.summary(rows, TASKS["letter"])
    assert found["curves"]["measured"]["overall"]["mean"] == pytest.approx([1.0, 0.8, 0.2])
    assert found["curves"]["measured"]["2-hop"]["sd"] == pytest.approx([0.01 * 2**0.5] * 3, abs=1e-5)
    half = found["crossings"]["0.5"]["overall"]
    assert half["measured"] == pytest.approx(170 * 10**0.5, rel=1e-4)
    assert half["keys and places / measured"] == pytest.approx(10 ** (2 / 3 - 0.5), rel=1e-3)
    assert half["keys alone"] is None
    assert half["keys alone / measured"] is None
    assert found["mean_distance"]["keys and places"] == pytest.approx(0.2 / 3)
    # Seven wrong targets share 0.07, so a hundred keys of front weigh as much as all the rest.
    assert found["closed_form"]["half_predicted"] == [117.0]
    assert 17 < found["closed_form"]["half_measured"][0] < 170
    json.dumps(found, allow_nan=False)
    assert study.summary(rows[::2], TASKS["letter"])["curves"]["measured"]["overall"]["sd"] == [None] * 3


@pytest.mark.slow
def test_an_interrupted_run_is_resumed(tmp_path, monkeypatch):
    models = {"letter": (small_model(TASKS["letter"]), TASKS["letter"])}
    config = {"weights": "of the small model", "lengths": (17, 33)}
    whole = list(study.generalise(models, SMALL, config, tmp_path / "whole"))
    assert len(whole) == 2 * 2 * len(KINDS)

    stopped = study.generalise(models, SMALL, config, tmp_path / "part")
    for _ in range(5):
        next(stopped)
    computed, measure = [], study.measure

    def counting(*arguments):
        computed.append(arguments[3:])
        return measure(*arguments)

    monkeypatch.setattr(study, "measure", counting)
    assert list(study.generalise(models, SMALL, config, tmp_path / "part")) == whole
    assert len(computed) == len(whole) - 5
    assert list(study.generalise(models, SMALL, config, tmp_path / "part")) == whole
    assert len(computed) == len(whole) - 5
    assert (tmp_path / "part" / "rows.json").read_bytes() == (tmp_path / "whole" / "rows.json").read_bytes()


def test_foreign_folders_are_refused(tmp_path):
    assert study.stored_rows(tmp_path, {"seed": 0}) == []
    (tmp_path / "rows.json").write_text('{"config": {"seed": 1}, "rows": []}')
    with pytest.raises(ValueError, match="rows of other settings or weights"):
        study.stored_rows(tmp_path, {"seed": 0})
    (tmp_path / "rows.json").write_text('{"config": {"se')
    with pytest.raises(ValueError, match="damaged"):
        study.stored_rows(tmp_path, {"seed": 0})
    (tmp_path / "rows.json").rename(tmp_path / "other.txt")
    with pytest.raises(ValueError, match="holds other files"):
        study.stored_rows(tmp_path, {"seed": 0})


@pytest.mark.slow
def test_the_command(tmp_path, capsys):
    model, out = tmp_path / "run" / "model", tmp_path / "out"
    save_gptj(small_model(TASKS["letter"]), model)
    sizes = {"lengths": "17,40", "samples": 8, "seeds": 2, "share": 2, "fillers": "one letter"}
    options = [text for name, value in sizes.items() for text in (f"--{name}", str(value))]
    cli.app(["generalise", "letter", "--model", str(model), "--out", str(out), *options], standalone_mode=False)
    shown = capsys.readouterr()
    assert shown.err == ""
    summary = check_summary(out, "generalise")
    assert set(summary["sha256"]) == {"rows.json", "letter.html", "letter.png"}
    assert summary["config"]["fillers"] == "one letter"
    assert summary["config"]["models"] == {"letter": "model run"}
    assert summary["results"]["letter"]["lengths"] == [17, 40]
    assert len(summary["results"]["letter"]["heads"]["measured"]["margin"][1]) == 2
    assert "one letter off the path" in shown.out
    assert "keys and places" in shown.out
    assert (out / "letter.png").read_bytes().startswith(b"\x89PNG")
    assert "<script src=" not in (out / "letter.html").read_text()

    before = (out / "rows.json").stat().st_mtime_ns
    again = rs.run("generalise", task="letter", model=model, out=out, **sizes)
    assert (out / "rows.json").stat().st_mtime_ns == before, "nothing is computed again"
    assert again.summary["results"] == summary["results"]
    with pytest.raises(ValueError, match="rows of other settings or weights"):
        rs.run("generalise", task="letter", model=model, out=out, **sizes, seed=1)


def test_a_recorded_run_as_a_result():
    result = rs.open_run(RESULTS / "generalise-letter")
    curve = result.run.results["letter"]["curves"]["keys alone"]["2-hop"]
    at = {"task": "letter", "curve": "keys alone", "hops": "2-hop"}
    np.testing.assert_array_equal(result.dataset["accuracy"].sel(at), curve["mean"])
    assert result.dataset.sizes == {"task": 1, "curve": 4, "hops": 5, "length": 10, "head": 12}
    assert list(result.figures()) == ["letter"]
    assert {row.claim for row in result.claims()} == {"B-5B-letter-850", "B-5B-letter-3000", "B-5B-letter-5000"}
    assert "half of the answers are right" in result.headline


@pytest.mark.parametrize(
    ("task", "options", "says"),
    [
        ("word", {}, "task must be one of number, letter"),
        ("number", {"lengths": "17,many"}, "each of lengths must be a whole number, not 'many'"),
        ("number", {"lengths": "33,65"}, "lengths must begin with 17"),
        ("number", {"lengths": "17,65,33"}, "lengths must grow"),
        ("number", {"samples": 3}, "samples must be at least 4"),
        ("number", {"seeds": 0}, "seeds must be at least 1"),
        ("all", {"fillers": "one letter"}, "for the letter task alone"),
        ("all", {"fillers": "none"}, "fillers must be one of same, one letter, one token"),
        ("all", {"model": Path("somewhere")}, "choose task number or letter"),
        ("number", {"model": Path("/dev/null")}, "holds no model"),
        ("number", {"out": Path("/dev/null/x")}, "cannot be written to"),
    ],
)
def test_bad_input(task, options, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        rs.run("generalise", task=task, **({"out": tmp_path} | options))
    assert not list(tmp_path.iterdir())


def test_a_model_of_another_task_is_refused(tmp_path):
    models = {"letter": (small_model(TASKS["number"]), TASKS["letter"])}
    with pytest.raises(ValueError, match="vocabulary"):
        next(study.generalise(models, SMALL, {}, tmp_path))
