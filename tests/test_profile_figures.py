"""Figures of a profile: all are written, show every head, say where they come from, and stay small."""

import numpy as np
import pytest
from profiles import geometry_rows, make_profile, path_rows, trace_rows

from ropescope.experiments.profile_statistics import statistics
from ropescope.report.profile import figures, geometry_chart, head_rows, path_chart, trace_chart, write_figures

ABOUT = "made-by-hand, 20 prompts of 24 pairs, seed 0"
NAMES = ["heads", "heat-maps", "depth", "planes", "planes-of-heads", "norms", "sensitivity", "classical"]


@pytest.fixture(scope="module")
def profile():
    dataset = make_profile()
    return dataset, statistics(dataset)


@pytest.fixture(scope="module")
def specs(profile):
    return {name: chart.to_dict() for name, chart in figures(*profile, ABOUT).items()}


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


def test_all_figures_are_written(profile, tmp_path):
    names = write_figures(*profile, ABOUT, tmp_path)
    assert names == [f"{name}.{kind}" for name in NAMES for kind in ("html", "png")]
    for name in names:
        content = (tmp_path / name).read_bytes()
        if name.endswith("png"):
            assert content.startswith(b"\x89PNG")
        else:
            assert ABOUT.encode() in content
            assert len(content) < 5e6


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
def test_odd_profiles_have_figures_too(case):
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
    charts = figures(dataset, statistics(dataset), ABOUT)
    assert [name for name, chart in charts.items() if chart.to_dict()["title"]["subtitle"][-1] == ABOUT] == NAMES


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
