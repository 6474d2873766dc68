"""The notebook in examples/ runs from its first cell to its last and displays results, charts, a playground and verdicts."""

from pathlib import Path

import nbformat
import pytest
from browser import opened, until
from nbclient import NotebookClient

import ropescope as rs

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first_steps.ipynb"
RESULTS = Path(__file__).parents[1] / "results"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What the cells display, in order."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "the notebook is stored without outputs"
    place = {"metadata": {"path": str(tmp_path_factory.mktemp("notebook"))}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=place).execute()
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore:Proactor event loop")
def test_the_notebook_runs(outputs):
    data = [output["data"] for output in outputs if "data" in output]
    assert any("heads are mainly positional" in each.get("text/plain", "") for each in data), "the headline of the profile"
    assert any(each["text/plain"].startswith("<chart: ") and "<iframe" in each["text/html"] for each in data), "a chart"
    assert any(each["text/plain"].startswith("<page: Playground") for each in data), "the playground"
    assert any("<h3>built models" in each.get("text/html", "") for each in data), "a study that shows itself"
    assert any("reproduced" in output.get("text", "") for output in outputs), "a claim with its verdict"


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore:Proactor event loop")
def test_what_the_notebook_displays_works_in_a_browser_without_network(outputs, tmp_path):
    shown = [output["data"]["text/html"] for output in outputs if "<iframe" in output.get("data", {}).get("text/html", "")]
    page = tmp_path / "notebook.html"
    page.write_text("<!doctype html><meta charset=utf-8>" + "".join(f"<div>{html}</div>" for html in shown), encoding="utf-8")
    with opened(page, viewport={"width": 1000, "height": 900}) as (seen, complaints):
        # Charts have been drawn, the playground shows attention, and every frame is as high as what it holds.
        frames = "[...document.querySelectorAll('iframe')]"
        until(seen, f"{frames}.every(f => f.contentDocument?.querySelector('svg, canvas, .stage'))")
        until(seen, f"{frames}.every(f => f.contentDocument.documentElement.scrollHeight <= f.clientHeight + 2)")
        assert seen.locator("iframe").count() == len(shown) >= 2
        marks = f"{frames}.map(f => f.contentDocument.querySelectorAll('svg path').length)"
        assert max(seen.evaluate(marks)) > 12, "points of a chart"
        assert complaints == []


def test_a_chart_of_a_result_needs_no_network_and_escapes_its_text():
    chart = rs.open_run(RESULTS / "theory").plot("planes")
    shown = chart._repr_mimebundle_()
    assert shown["text/plain"] == "<chart: More planes buy length>"
    assert shown["text/html"].count("<iframe") == shown["text/html"].count("</iframe>") == 1
    assert "http-equiv=&#34;Content-Security-Policy&#34;" in shown["text/html"]
    assert "cdn." not in shown["text/html"].split("engine")[0]


def test_the_playground_of_a_run_is_one_call(tmp_path):
    shown = rs.playground(RESULTS / "profile-stories15M")
    assert repr(shown) == "<page: Playground: stories15M>"
    assert shown._repr_html_().startswith("<iframe data-ropescope srcdoc=")
    assert "<h1>Playground: stories15M</h1>" in shown.save(tmp_path / "playground.html").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="holds no playground"):
        rs.playground(RESULTS / "theory")
