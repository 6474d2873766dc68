"""Figures of a profile: all are written, show every head, say where they come from, and stay small."""

from dataclasses import replace
from pathlib import Path

import altair as alt
import numpy as np
import pytest
from profiles import geometry_rows, make_profile, path_rows, trace_rows, without_planes, write_profile

from ropescope.charts import Figure, Inline, picture, write_chart
from ropescope.runs import Run, read_trajectory
from ropescope.studies.histories.many_heads import loss_chart
from ropescope.studies.profile.figures import figures
from ropescope.studies.profile.figures_details import geometry_chart, path_chart, trace_chart
from ropescope.studies.profile.rows import head_rows, once

pytestmark = pytest.mark.slow

ABOUT = "made-by-hand, float32; 20 made up"
OF_PLANES = ["head", "planes", "planes-of-heads", "norms"]
NAMES = ["kinds", "heads", "head", "depth", "heat-maps", "planes", "planes-of-heads", "norms", "sensitivity", "classical"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_profile(tmp_path_factory.mktemp("runs") / "profile", make_profile())


@pytest.fixture(scope="module")
def profile(run):
    return make_profile(), run.results


@pytest.fixture(scope="module")
def specs(run):
    return {name: figure.chart.to_dict() for name, figure in figures(run).items()}


def data_of(spec):
    """The rows of every part of a chart that has its own."""
    found = []

    def look(part):
        if isinstance(part, dict):
            if "data" in part:
                found.append(spec["datasets"][part["data"]["name"]])
            for name, value in part.items():
                if name != "datasets":
                    look(value)
        elif isinstance(part, list):
            for value in part:
                look(value)

    look(spec)
    return found


def test_all_figures_are_written(run, tmp_path):
    drawn = figures(run)
    assert list(drawn) == NAMES
    for name, figure in drawn.items():
        write_chart(figure.chart, tmp_path, name)
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        content = (tmp_path / f"{name}.html").read_bytes()
        assert ABOUT.encode() in content
        assert len(content) < 5e6


def test_details_of_heads_have_figures_under_either_name_of_their_file(tmp_path):
    details = {"traces": trace_rows(), "path": path_rows(), "geometry": geometry_rows()}
    run = write_profile(tmp_path, make_profile(inputs=2, layers=4, heads=2, planes=8), details)
    drawn = [name for name in figures(run) if name not in NAMES]
    assert drawn == ["traces", "path", "geometry"]
    (tmp_path / "head_details.json").rename(tmp_path / "closer.json")  # as version 0.1 called it
    assert [name for name in figures(run) if name not in NAMES] == drawn


def test_what_was_not_measured_is_not_drawn(tmp_path):
    dataset = make_profile(inputs=4, layers=6, heads=2, planes=8)
    planes = write_profile(tmp_path / "planes", without_planes(dataset))
    assert list(figures(planes)) == [name for name in NAMES if name not in OF_PLANES]
    ways = [name for name in dataset.data_vars if str(name).endswith(("_by_tau", "_by_token", "_permuted"))]
    dataset = dataset.assign({name: dataset[name] * np.nan for name in ways})
    dataset["right"][:] = False
    other_ways = write_profile(tmp_path / "ways", dataset)
    assert list(figures(other_ways)) == [name for name in NAMES if name != "sensitivity"]


def test_statistics_alone_have_figures_too(run, tmp_path):
    assert list(figures(Run(tmp_path, run.summary))) == ["kinds", "heads", "depth", "heat-maps", "planes"]


def test_titles_say_what_is_seen(profile, specs):
    titles = {name: spec["title"] for name, spec in specs.items()}
    assert all(ABOUT in " ".join(title["subtitle"]) for title in titles.values())
    assert titles["heads"]["text"] == "269 heads between places and things: r = \N{MINUS SIGN}0.94"
    depth = profile[1]["depth"]["positional"]
    assert f"positional {depth['first']:.2f} \N{RIGHTWARDS ARROW} {depth['second']:.2f}" in titles["depth"]["text"]


def test_every_head_is_shown(profile, specs):
    dataset, stats = profile
    rows = head_rows(stats)
    assert len(rows) == 269
    third = next(row for row in rows if row["name"] == "L0 H2")
    assert third["positional"] == pytest.approx(dataset["positional"].values[:, 0, 2].mean(), abs=1e-4)
    assert third["symbolic_low"] < third["symbolic"] < third["symbolic_high"]
    assert 269 in map(len, data_of(specs["heads"]))
    assert [len(values) for values in data_of(specs["heat-maps"])] == [269] * 3
    assert 2 * 269 in map(len, data_of(specs["depth"]))
    assert 270 in map(len, data_of(specs["planes-of-heads"]))
    assert 260 in map(len, data_of(specs["norms"]))
    assert [len(values) for values in data_of(specs["sensitivity"])].count(540) == 6
    assert [len(values) for values in data_of(specs["classical"])] == [269] * 3


def test_planes_of_heads_hold_their_scores(profile, specs):
    dataset = profile[0]
    rows = next(values for values in data_of(specs["planes-of-heads"]) if len(values) == 270)
    head = next(row for row in rows if row["name"] == "L7 H3")
    assert head["symbolic"] == pytest.approx(dataset["plane_symbolic"].values[:, 7, 3].mean(0), abs=0.006)
    assert head["why"] == ""
    assert {row["why"] for row in rows if row["row"] == 12} == {"no planes"}
    assert next(row for row in rows if row["name"] == "L3 H4")["why"] == "no scores"


def test_norms_are_sorted_by_kind(specs):
    rows = next(values for values in data_of(specs["norms"]) if len(values) == 260)
    kinds = [row["kind"] for row in sorted(rows, key=lambda row: row["rank"])]
    assert kinds == sorted(kinds, key=["positional", "mixed", "symbolic"].index)
    assert all(max(row["share"]) == 1 for row in rows)


@pytest.mark.parametrize("case", ["tiny", "one input", "nothing known", "layers skipped"])
def test_odd_profiles_have_figures_too(case, tmp_path):
    sizes = {"tiny": (2, 2, 1, 2), "one input": (1, 3, 2, 8), "nothing known": (3, 4, 2, 8), "layers skipped": (4, 6, 2, 8)}
    inputs, layers, heads, planes = sizes[case]
    dataset = make_profile(inputs=inputs, layers=layers, heads=heads, planes=planes)
    if case == "nothing known":
        for name, values in dataset.items():
            if values.dtype == float:
                dataset[name] = values * np.nan
        dataset["right"][:] = False
    if case == "layers skipped":
        dataset = dataset.assign_coords(layer=[3, 7, 11, 15, 19, 23])
        for name in ("plane_norm", "plane_spread", "plane_positional", "plane_symbolic"):
            dataset[name][:, 3:, :, 6:] = np.nan
    drawn = {name: figure.chart.to_dict() for name, figure in figures(write_profile(tmp_path, dataset)).items()}
    assert all(spec["title"]["subtitle"][-1].endswith("made up") for spec in drawn.values())
    assert list(drawn) == ([] if case == "nothing known" else list(NAMES))


def test_traces_compare_with_the_input_as_it_is():
    rows = trace_rows()
    values = data_of(trace_chart(rows, ABOUT).to_dict())
    assert len(values) == 3 * 4  # heads, swaps
    assert all(len(panel) == 24 for panel in values)
    symbolic = {
        row["block"]: row
        for panel in values
        for row in panel
        if row["swap"].startswith("5 and 18") and row["kind"] == "symbolic"
    }
    assert symbolic[18]["weight"] == symbolic[5]["before"] == 0.3
    assert [block for block, row in symbolic.items() if row["moved"]] == [5, 18]


def test_paths_run_in_order_of_planes():
    rows = path_rows()
    chart = path_chart(rows[::-1], ABOUT)
    paths = [values for values in data_of(chart.to_dict()) if len(values) == 32]
    assert len(paths) == 3 * 2  # lines, points
    assert all([row["kept"] for row in path] == list(range(1, 33)) for path in paths)


def test_queries_reach_as_far_as_keys():
    values = data_of(geometry_chart(geometry_rows(), ABOUT).to_dict())
    queries = [row for part in values for row in part if row["what"] == "query"]
    keys = [row for part in values for row in part if row["what"] == "key" and row["head"] == queries[0]["head"]]
    assert np.hypot(queries[0]["x"], queries[0]["y"]) == pytest.approx(max(row["norm"] for row in keys))
    assert queries[0]["norm"] == pytest.approx(np.hypot(14, 9))


def test_charts_without_rows_can_be_drawn():
    rows = Inline(values=[])
    chart = alt.Chart(rows).mark_point().encode(x="x:Q", color=alt.Color("kind:N", title="kind"))
    assert picture(Figure(chart, "").chart).startswith(b"\x89PNG")
    spec = Figure(alt.Chart(Inline(values=[{"x": 1}])).mark_point().encode(x="x:Q"), "").chart.to_dict()
    assert spec["config"]["legend"]["titleOrient"] == "left"


def test_one_head_is_shown_once_though_it_is_an_example_of_two_kinds():
    rows = [{"head": "L0 H0", "kind": kind, "block": block} for kind in ("symbolic", "mixed") for block in (0, 1)]
    assert once({"traces": rows}) == {"traces": rows[:2]}


def test_the_loss_is_drawn_where_it_is_known(tmp_path):
    history = read_trajectory(Path(__file__).parents[1] / "results" / "watch-smollm2")
    loss = np.where(np.arange(len(history.steps)) % 3, np.nan, 1.5)  # logged less often than heads are looked at
    rows = data_of(loss_chart(replace(history, measures={**history.measures, "loss": loss})).to_dict())[0]
    assert [row["step"] for row in rows] == history.steps[::3].tolist()
    assert all(row["loss"] == 1.5 for row in rows)
