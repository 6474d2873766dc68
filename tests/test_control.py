"""The study of interventions: what models can still do without planes and heads."""

import numpy as np
import pytest
import real
import torch

import ropescope as rs
from ropescope.models.adapter import interventions
from ropescope.studies.control import changes as trials
from ropescope.studies.control import run as study
from ropescope.studies.control.subjects import TaskSubject, TextSubject, text_pieces
from ropescope.tasks import LetterTask, NumberTask
from ropescope.tasks.passage import PASSAGE
from ropescope.tasks.texts import text_ids


def own() -> rs.GPTJ:
    torch.manual_seed(0)
    config = rs.GPTJConfig(
        60, layers=2, heads=2, width=32, mlp_width=32, rope=rs.Rope(16, rotary_dim=12, pairing="interleaved")
    )
    return rs.GPTJ(config).double().eval()


def test_random_planes_are_as_many_and_the_same_in_all_layers():
    model = own()
    like = trials.random_like(
        model, interventions.combine(rs.drop_planes(model, "fast,still"), rs.stop_planes(model, "slow")), 4
    )
    assert like[0] == like[1]
    assert sorted(like[0].gains[:6]) == [0, 0, 1, 1, 1, 1]
    assert like[0].gains[6] == 0  # what never turns is no plane to deal
    assert len(like[0].stopped) == 2
    assert not {n for n in range(6) if like[0].gains[n] == 0} & set(like[0].stopped)
    draws = [trials.random_like(model, rs.drop_planes(model, "fast"), seed)[0].gains for seed in range(20)]
    assert len(set(draws)) > 5


def test_heads_by_kind():
    model = own()
    scores = {"positional": np.array([[0.9, 0.5], [0.1, 0.7]]), "symbolic": np.array([[0.1, 0.55], [1.0, 0.2]])}
    assert trials.classes(model, scores) == {"positional": [(0, 0), (1, 1)], "symbolic": [(1, 0)], "mixed": [(0, 1)]}
    assert trials.classes(model, scores, 0.25)["positional"] == [(0, 0)]
    assert study.kinds_found(model, scores) == {"positional": 2, "symbolic": 1, "mixed": 1}
    assert set(trials.random_heads(model, [(0, 0), (0, 1)], 1)) == {(0, 0), (0, 1)}
    assert {trials.random_heads(model, [(1, 0)], seed)[0] for seed in range(20)} == {(1, 0), (1, 1)}
    layers = rs.GPTJ(rs.GPTJConfig(60, layers=3, width=16, mlp_width=16))
    assert {trials.random_heads(layers, [(1, 0)], seed)[0] for seed in range(20)} == {(0, 0), (1, 0), (2, 0)}
    (unit,) = trials.head_units(layers, {"symbolic": [(0, 0), (1, 0), (2, 0)]}, draws=3, seed=0)
    assert unit.against is None  # all are out: none to compare with


@pytest.mark.parametrize(("task", "names"), [(NumberTask(), "number"), (LetterTask(), "letter")])
@pytest.mark.slow
def test_the_number_task_depends_on_fast_planes_alone(task, names):
    """And the letter task on none: it is solved even if no plane turns."""
    model = rs.bundled(names)
    subject = TaskSubject(model, task.sample(80, seed=5), probe=16)
    for change, number_solves in (("fast", False), ("slow", True)):
        with rs.intervene(model, rs.drop_planes(model, change)):
            accuracy = subject.measures()["accuracy"]
            scores = subject.scores()
        assert (accuracy > 0.95) == (number_solves or names == "letter")
        assert accuracy > 0.95 or accuracy < 0.3
        if names == "number":  # without fast planes positional heads cannot be
            assert (scores["positional"][1:4] > 0.9).all() == number_solves
    with rs.intervene(model, rs.p_rope(model, 1.0)):
        assert (subject.measures()["accuracy"] > 0.95) == (names == "letter")


def test_pieces_of_a_text():
    ids = np.arange(12, dtype=np.int64)
    assert [piece.tolist() for piece in text_pieces(ids, 1, 6)] == [[0, 1, 2, 3, 4, 5], [0, 6, 7, 8, 9, 10]]
    with pytest.raises(ValueError, match="fewer than two tokens"):
        text_pieces(ids[:2], 1)


ASKED = {"model": "number", "drop": "fast", "heads": "positional", "inputs": 40, "draws": 1}


@pytest.mark.slow
def test_a_study_is_resumed(tmp_path, monkeypatch):
    folder = tmp_path / "study"
    result = rs.run("control", out=folder, **ASKED)
    changes = result.run.results["changes"]
    assert list(changes) == ["nothing", "drop fast", "positional heads out"]
    assert changes["drop fast"]["measures"]["accuracy"] < 0.3 < changes["drop fast"]["random"]["accuracy"]["least"]
    assert changes["drop fast"]["changed"]["planes"] == list(range(1, 22))
    assert changes["positional heads out"]["changed"]["heads"] == [[1, 0], [2, 0], [3, 0], [4, 0]]
    assert len(changes["nothing"]["positional"]) == 12
    assert "drop fast" in str(result.table())
    assert result.headline == "bundled number model, 40 test sequences: 2 changes"
    data = result.dataset
    assert data["value"].sel(change="drop fast", measure="accuracy") == changes["drop fast"]["measures"]["accuracy"]
    assert data["random_least"].sel(change="nothing").isnull().all()
    assert data["positional"].dims == ("change", "layer")
    for name in ("effects.png", "scores.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    units = sorted((folder / "units").iterdir())
    assert len(units) == 5
    before = [path.stat().st_mtime_ns for path in units]
    units[3].write_text("{")  # cut short
    monkeypatch.setattr("ropescope.studies.runner.write_chart", lambda *_: [])  # which takes longest
    again = rs.run("control", out=folder, **ASKED)
    after = [path.stat().st_mtime_ns for path in units]
    assert [a == b for a, b in zip(before, after, strict=True)] == [n != 3 for n in range(5)]
    assert again.run.results == result.run.results
    with pytest.raises(ValueError, match="another model or other settings"):
        rs.run("control", out=folder, **ASKED, seed=1)


@pytest.mark.slow
def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="holds other files but no study"):
        rs.run("control", out=tmp_path, **ASKED)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"drop": "quick"}, "planes 'quick' is not understood"),
        ({"heads": "some"}, "heads must be positional, symbolic, mixed or all"),
        ({"draws": -1}, "draws must be at least 0"),
        ({"head_share": 0.0}, "head_share must be above 0 and at most 1"),
        ({"inputs": 1}, "inputs must be from 40"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(options, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        rs.run("control", out=tmp_path / "out", **ASKED | options)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_language_model():
    """Answers and perplexity are those of the model asked one prompt at a time."""
    loaded = rs.load_model(str(real.folder("smollm2-135m")))
    adapter = rs.Adapter(loaded.model)
    prompts = rs.binding_prompts(loaded.tokenizer, 2, 4)
    pieces = text_pieces(*text_ids(loaded.tokenizer, PASSAGE[:130]))
    subject = TextSubject(adapter, {"4 pairs": prompts}, pieces, profiled=1)
    as_it_is = subject.measures()
    right, nats = 0, 0.0
    with torch.no_grad():
        for prompt in prompts:
            logits = loaded.model(torch.from_numpy(prompt.ids)[None]).logits[0, -1].double()
            right += int(logits.argmax()) == prompt.answer
            nats += float(logits[prompt.answer] - logits[list(prompt.choices)].logsumexp(0)) / len(prompts)
        loss = loaded.model(pieces[0][None], labels=pieces[0][None]).loss
    assert as_it_is["4 pairs: right"] == right / len(prompts)
    assert as_it_is["4 pairs: log probability"] == pytest.approx(nats, abs=1e-3)
    assert as_it_is["perplexity"] == pytest.approx(float(loss.exp()), rel=1e-3)
    with rs.intervene(adapter, rs.p_rope(adapter, 1.0)):
        without = subject.measures()
        scores = subject.scores()
    assert without["perplexity"] > as_it_is["perplexity"]
    assert scores["symbolic"].min() > 0.99  # nothing knows of places
