"""Figures in the papers' layout: all that recorded runs allow, with their panels; what cannot be drawn is named."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import ropescope as rs
from ropescope.runs import Run, find_runs
from ropescope.studies.claims import Runs
from ropescope.studies.mechanisms.flow import example
from ropescope.studies.reproduce import papers
from ropescope.tasks import LetterTask, NumberTask

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[1] / "results"
NAMES = [layout.name for layout in papers.LAYOUTS]


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return find_runs([RESULTS])


def only(monkeypatch, *names: str) -> None:
    monkeypatch.setattr(papers, "LAYOUTS", tuple(layout for layout in papers.LAYOUTS if layout.name in names))


def titles(part: dict) -> list[str]:
    """All titles in a chart, outermost first."""
    found = [part["title"]["text"] if isinstance(part.get("title"), dict) else part.get("title")]
    for key in ("vconcat", "hconcat", "concat"):
        found += [title for inner in part.get(key, ()) for title in titles(inner)]
    return [str(title) for title in found if title]


@pytest.mark.parametrize("layout", papers.LAYOUTS, ids=NAMES)
def test_every_figure_is_drawn_with_its_panels(layout, runs, with_example, monkeypatch):
    only(monkeypatch, layout.name)
    drawn = papers.figures(Runs([with_example if run.name == "mechanisms" else run for run in runs]))
    assert not drawn.left_out
    found = titles(drawn.charts[layout.name].to_dict(validate=False))
    assert found[0] == layout.title
    for panel in layout.panels:
        assert f"{panel.letter}\N{EN SPACE}{panel.title}".strip("\N{EN SPACE}") in found


@pytest.fixture(scope="module")
def with_example(runs, tmp_path_factory) -> Run:
    """The recorded run of mechanisms with an example beside it, as the command writes it."""
    run = next(run for run in runs if run.name == "mechanisms")
    folder, details = tmp_path_factory.mktemp("runs") / "mechanisms", {}
    folder.mkdir()
    for name, task in (("number", NumberTask()), ("letter", LetterTask())):
        samples = task.sample(40, seed=0)
        with torch.inference_mode():
            details[name] = {"example": example(rs.bundled(name), task, samples[np.flatnonzero(samples.hops == 4)[:1]])}
    (folder / "head_details.json").write_text(json.dumps(details))
    return Run(folder, run.summary)


def test_files_are_pictures(runs, tmp_path, monkeypatch):
    only(monkeypatch, "A-figure-2", "B-table-1")
    files = papers.paper_figures([RESULTS / "canonical", RESULTS / "mechanisms"], tmp_path)
    assert files == ["A-figure-2.svg", "A-figure-2.png", "B-table-1.svg", "B-table-1.png"]
    assert sorted(files) == sorted(path.name for path in tmp_path.iterdir())
    for name in ("A-figure-2", "B-table-1"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / "A-figure-2.svg").read_text()
    assert drawn.startswith("<svg")
    assert "Tension between places and things" in drawn
    table = (tmp_path / "B-table-1.svg").read_text()
    planes = next(run for run in runs if run.name == "mechanisms").results["number"]["planes"]
    for value in planes["mean_plane_by_largest"]:
        assert f">{value:.1f}<" in table


def test_what_has_no_run_is_left_out_and_named(tmp_path, monkeypatch):
    only(monkeypatch, "A-figure-3", "B-table-1")
    files = papers.paper_figures([RESULTS / "canonical"], tmp_path)
    assert files == ["A-figure-3.svg", "A-figure-3.png", "left-out.txt"]
    left_out = (tmp_path / "left-out.txt").read_text().splitlines()
    assert [line.split(":")[0] for line in left_out] == ["A-figure-3, panel C", "B-table-1"]


def test_without_runs_every_figure_is_named():
    drawn = papers.figures(Runs([]))
    assert not drawn.charts
    assert list(drawn.left_out) == NAMES
    assert all(drawn.left_out.values())


def test_an_older_run_of_mechanisms_has_no_example(runs, monkeypatch, tmp_path):
    only(monkeypatch, "B-figure-3")
    older = [Run(tmp_path, run.summary) for run in runs if run.name == "mechanisms"]
    assert "stored no example" in papers.figures(Runs(older)).left_out["B-figure-3"]
