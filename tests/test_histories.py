"""Histories of models that `ropescope train` did not train: many heads, chosen layers, no accuracy, looks that failed."""

import json

import numpy as np
import pytest
from browser import opened, until
from playwright.sync_api import expect
from typer.testing import CliRunner

from ropescope.cli import app
from ropescope.report.page import write_page
from ropescope.runs import History, HistoryFolder, find_runs, read_trajectory
from ropescope.studies.dynamics.figures import milestones_chart
from ropescope.studies.histories.figures import history_charts
from ropescope.studies.histories.milestones import heads_of, milestones

pytestmark = pytest.mark.slow

CONFIG = {"command": "watch", "model": {"name": "tiny"}}
MEASURES = ("positional", "symbolic", "symbol_share", "position_share", "binding_share", "entropy")
MIXED, PLACE, THING = (0.6, 0.5), (0.97, 0.02), (0.03, 0.96)


def look(*scores, **more):
    """A row of two layers with two heads each, from their scores."""
    positional, symbolic = np.array(scores, dtype=np.float32).reshape(2, 2, 2).transpose(2, 0, 1)
    row = {name: np.full((2, 2), 0.3, dtype=np.float32) for name in MEASURES}
    return row | {"positional": positional, "symbolic": symbolic, **{k: np.array(v, np.float32) for k, v in more.items()}}


FAILED = {name: np.full((2, 2), np.nan, dtype=np.float32) for name in MEASURES}


@pytest.fixture
def folder(tmp_path):
    """Layers 1 and 3: of the first, one head turns to places at 20 and one to things at 30; a look at 10 failed."""
    kept = HistoryFolder(tmp_path / "watched", CONFIG, "ropescope.training.head_watcher", layers=[1, 3])
    kept.add(0, look(MIXED, MIXED, MIXED, MIXED, loss=3.0))
    kept.add(10, FAILED)
    kept.add(20, look(PLACE, MIXED, MIXED, MIXED, loss=2.0))
    kept.add(30, look(PLACE, THING, MIXED, (np.nan, np.nan), loss=1.5))
    return kept.folder


def test_a_history_comes_back_as_it_was(folder):
    run = read_trajectory(folder)
    assert (run.command, run.task, run.seed, run.accuracy) == ("watch", "", None, None)
    assert run.steps.tolist() == [0, 10, 20, 30]
    assert run.layers.tolist() == [1, 3]
    assert run.loss[[0, 2, 3]].tolist() == [3.0, 2.0, 1.5]
    assert np.isnan(run.loss[1])  # a failed look had none
    assert run.head_names() == ["L1 H0", "L1 H1", "L3 H0", "L3 H1"]
    assert run.looks().steps.tolist() == [0, 20, 30]


def test_heads_are_named_by_layer_and_number(folder):
    result = milestones(read_trajectory(folder))
    pure = result["purity"]["0.1"]
    names = heads_of(result)
    assert [names[n] for n in pure["final_positional"]] == ["L1 H0"]
    assert [names[n] for n in pure["final_symbolic"]] == ["L1 H1"]
    assert pure["since_positional"] == [20, None, None, None]
    assert pure["since_symbolic"] == [None, 30, None, None]
    assert result["failed_looks"] == [10]
    assert result["loss"] == {"first": 3.0, "last": 1.5}
    assert result["kinds"]["first"] == {"positional": 0, "symbolic": 0, "mixed": 4}
    assert result["kinds"]["last"] == {"positional": 1, "symbolic": 1, "mixed": 1}
    assert (result["learned_at"], result["best_accuracy"], result["purity_and_accuracy"]) == ([], None, None)
    json.dumps(result, allow_nan=False)


def test_twelve_heads_of_few_layers_are_not_taken_for_twelve_layers(tmp_path):
    kept = HistoryFolder(tmp_path, CONFIG | {"task": "letter"}, "ropescope.training.head_watcher")
    wide = {name: np.full((3, 4), 0.5, dtype=np.float32) for name in MEASURES}
    kept.add(0, wide | {"accuracy": np.zeros(4, dtype=np.float32)})
    kept.add(1, wide | {"accuracy": np.ones(4, dtype=np.float32)})
    result = milestones(read_trajectory(tmp_path))
    assert result["learned_at"] == [1, 1, 1, 1]


def test_dynamics_of_it_from_the_shell(folder, tmp_path):
    out = tmp_path / "dynamics"
    done = CliRunner().invoke(app, ["dynamics", str(folder), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "L1 H0" in done.output
    assert {path.name for path in out.glob("*.png")} == {
        "milestones.png",
        *(f"watched-{name}.png" for name in ("learning", "heads", "layers")),
    }
    summary = json.loads((out / "summary.json").read_text())
    marks = milestones_chart(summary["results"]).to_dict()["datasets"]
    assert {row["of"] for rows in marks.values() for row in rows} == {"L1 H0", "L1 H1"}
    done = CliRunner().invoke(app, ["dynamics", str(folder), "--out", str(out), "--layers", "2"])
    assert "layer 2 is not one of the layers of watched: 1, 3" in str(done.exception)


def test_figures_hold_every_head_and_no_nan(folder):
    run = read_trajectory(folder)
    drawn = history_charts(run, milestones(run), [3])
    for chart in drawn.values():
        json.dumps(chart.to_dict(), allow_nan=False)
    rows = [row for rows in drawn["learning"].to_dict()["datasets"].values() for row in rows]
    tiles = {row["name"]: row for row in rows if "difference" in row}
    assert list(tiles) == ["L1 H0", "L1 H1", "L3 H0", "L3 H1"]
    assert tiles["L1 H0"]["step"] == [0, 20, 30]
    assert tiles["L1 H0"]["difference"] == [-0.1, -0.95, -0.95]
    assert tiles["L3 H1"]["difference"][-1] is None
    counted = [row for row in rows if row.get("how") == "pure" and row["step"] == 30]
    assert {row["kind"]: row["heads"] for row in counted} == {"positional": 1, "symbolic": 1}
    panels = {row["of"] for rows in drawn["heads"].to_dict()["datasets"].values() for row in rows}
    assert panels == {"L3 H0", "L3 H1"}  # of the layer that was asked for


def test_a_page_opens_it_at_any_moment(folder, tmp_path):
    (run,) = find_runs([folder])
    assert (run.command, run.results) == ("watch", {})
    page = write_page([folder], tmp_path / "page.html").read_text()
    assert "tiny, measured 3 times up to step 30, not ended yet: 1 pure positional, 1 pure symbolic of 3 heads" in page
    assert "measuring failed at 1 step" in page
    kept = HistoryFolder(folder, CONFIG, "ropescope.training.head_watcher")
    assert kept.history.layers == [1, 3]
    kept.finish({"looks": 3})
    assert find_runs([folder])[0].results == {"looks": 3}
    kept.add(40, look(MIXED, MIXED, MIXED, MIXED))  # it has not ended after all
    assert find_runs([folder])[0].results == {}
    write_page([folder], tmp_path / "page.html")


@pytest.mark.parametrize("rows", [[look(MIXED, THING, PLACE, MIXED)], [FAILED]])
def test_a_page_of_a_single_look(rows, tmp_path):
    kept = HistoryFolder(tmp_path / "run", CONFIG, "ropescope.training.head_watcher")
    for step, row in enumerate(rows):
        kept.add(step, row)
    page = write_page([kept.folder], tmp_path / "page.html").read_text()
    assert ("no step has scores" in page) == np.isnan(rows[0]["positional"]).all()


def test_rows_of_a_way_not_taken_are_dropped(folder):
    kept = HistoryFolder(folder, CONFIG, "ropescope.training.head_watcher")
    kept.drop_after(20)
    assert read_trajectory(folder).steps.tolist() == [0, 10, 20]
    kept.add(15, look(MIXED, MIXED, MIXED, THING))
    assert read_trajectory(folder).steps.tolist() == [0, 10, 15]
    kept.drop_after(-1)
    assert not (folder / "history.safetensors").exists()


def test_a_folder_of_another_model_is_refused(folder):
    with pytest.raises(ValueError, match="holds the history of another model"):
        HistoryFolder(folder, CONFIG | {"model": {"name": "other"}}, "ropescope.training.head_watcher")
    (folder / "history.safetensors").write_bytes(b"cut")
    with pytest.raises(ValueError, match="is damaged"):
        HistoryFolder(folder, CONFIG, "ropescope.training.head_watcher")


def test_what_some_rows_lack_is_nan_in_them():
    history = History()
    history.add(0, {"positional": np.zeros((1, 1), dtype=np.float32)})
    history.add(1, {"positional": np.ones((1, 1), dtype=np.float32), "accuracy": np.ones(3, dtype=np.float32)})
    accuracy = history.arrays()["accuracy"]
    assert np.isnan(accuracy[0]).all()
    assert accuracy[1].tolist() == [1, 1, 1]


@pytest.mark.browser
def test_every_chart_is_drawn_in_a_browser(folder, tmp_path):
    page = write_page([folder], tmp_path / "page.html")
    with opened(page, viewport={"width": 1280, "height": 900}) as (browser, complaints):
        for figure in browser.locator(".run figure[data-chart]").all():
            figure.evaluate("part => part.scrollIntoView({ behavior: 'instant' })")
            figure.locator(".plot.drawn").wait_for()
        names = ("film", "head", "learning", "heads", "layers")
        found = [one.get_attribute("id") for one in browser.locator(".run figure[data-chart]").all()]
        assert found == [f"watched-{name}" for name in names]
        tiles = browser.locator("#watched-learning svg .mark-rect path")
        assert tiles.count() >= 12
        slider = browser.locator("#watched--at")
        assert slider.get_attribute("max") == "2"  # the look that failed is not among them
        slider.fill("1")
        until(browser, "document.getElementById('watched-film').view.signal('at') === 1")
        expect(browser.locator("#watched .film output")).to_have_text("step 20")
        browser.select_option("#watched--layer", "1")
        browser.select_option("#watched--head", "1")
        expect(browser.locator("#watched .picker output")).to_contain_text("positional 0.030, symbolic 0.960")
        assert complaints == []
