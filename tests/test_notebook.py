"""The notebook in examples/ runs from its first cell to its last and displays results, charts and verdicts."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first_steps.ipynb"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore:Proactor event loop")
def test_the_notebook_runs(tmp_path):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "the notebook is stored without outputs"
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    data = [output["data"] for output in shown if "data" in output]
    assert any("heads are mainly positional" in each.get("text/plain", "") for each in data), "the headline of the profile"
    assert any(each["text/plain"].startswith("alt.") and "vega-embed" in each["text/html"] for each in data), "a chart"
    assert any("<h3>built models" in each.get("text/html", "") for each in data), "a study that shows itself"
    assert any("reproduced" in output.get("text", "") for output in shown), "a claim with its verdict"
