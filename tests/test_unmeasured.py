"""What was not measured is "not run": no rule of a claim takes a missing number for one, and no chart shows it."""

import math
import re
from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest
from profiles import make_profile, write_profile

from ropescope.runs import Run, read_trajectory
from ropescope.studies.by_recipe import BY_OURS
from ropescope.studies.claims import Runs, all_cases
from ropescope.studies.dynamics import trained
from ropescope.studies.measured import Measured, NotRunError
from ropescope.studies.profile.figures import figures
from ropescope.studies.profile.statistics import CLASSICAL

MEANS_SOMETHING = {
    ("trained", "crossing", "of_means"): "the curves do not cross once",
    ("models", "*", "learned_at"): "the model has not learned in the steps it had",
    ("models", "*", "breaks_at"): "accuracy is above half at every length",
    ("crossings", "*", "overall", "measured"): "accuracy does not fall so far",
    ("crossings", "*", "overall", "keys and places / measured"): "accuracy does not fall so far",
    ("scores", "*", "faster_than_rerunning_blocks"): "inputs of this length were not scored by re-running",
}
"""Entries of which None is a finding."""


class Doctored(Mapping):
    """Entries that note which of them are read, and of which one is another, or missing."""

    def __init__(self, values, noted, path=(), at=None, value=None):
        self.entries, self.noted, self.path, self.at, self.value = values, noted, path, at, value

    def __getitem__(self, key):
        path = (*self.path, key)
        if path == self.at:
            if self.value is KeyError:
                raise KeyError(key)
            return self.value
        return self._part(self.entries[key], path)

    def _part(self, value, path):
        if isinstance(value, Mapping):
            return Doctored(value, self.noted, path, self.at, self.value)
        if isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
            return [self._part(item, (*path, n)) for n, item in enumerate(value)]
        self.noted.setdefault(path, False)
        return value

    def __iter__(self):
        # Of entries that a rule goes through one by one, a missing one is no gap but one case less.
        self.noted.update({(*self.path, key): True for key in self.entries})
        return (key for key in self.entries if not ((*self.path, key) == self.at and self.value is KeyError))

    def __len__(self):
        return len(self.entries)

    def __contains__(self, key):
        return key in self.entries and not ((*self.path, key) == self.at and self.value is KeyError)


def doctored(runs, noted, at=None, value=None):
    """Runs whose summaries and files are `Doctored`: `noted` are the entries read, `at` begins with the number of a run."""
    found = []
    for number, run in enumerate(runs):
        entries = Doctored({part: run.summary[part] for part in ("results", "config")}, noted, (number,), at, value)
        found.append(Run(run.folder, {**run.summary, "results": entries["results"], "config": entries["config"]}))
    places = {run.folder: number for number, run in enumerate(runs)}

    def read(run, name):
        content = READ(run, name)
        return None if content is None else Doctored({name: content}, noted, (places[run.folder],), at, value)[name]

    return found, read


READ = cache(Run.read)
"""Files beside summaries, read once."""


def row_of(case, runs, patch, noted=None, at=None, value=None):
    found, read = doctored(runs, {} if noted is None else noted, at, value)
    patch.setattr(Run, "read", read)
    return case.row(Runs(found))


def read_by(case, runs, patch):
    """What a rule reads of each run, and whether one by one; of entries that differ by numbers alone the first."""
    noted, chosen = {}, {}
    row_of(case, runs, patch, noted)
    for path in sorted(noted, key=str):
        run, *names = path
        chosen.setdefault((run, *("*" if isinstance(key, int) or key.isdecimal() else key for key in names)), path)
    return {path: noted[path] for path in chosen.values()}


def meaningful(path):
    return any(
        len(path) >= len(known) and all(a in ("*", b) for a, b in zip(known, path[-len(known) :], strict=True))
        for known in MEANS_SOMETHING
    )


@pytest.fixture(scope="module")
def histories():
    """Reading a history takes a moment, and none changes here."""
    usual, trained.read_trajectory = trained.read_trajectory, cache(read_trajectory)
    usual_milestones, trained.milestones = trained.milestones, _once(trained.milestones)
    yield
    trained.read_trajectory, trained.milestones = usual, usual_milestones


def _once(compute):
    known = {}

    def found(history):
        if history.name not in known:
            known[history.name] = compute(history)
        return known[history.name]

    return found


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.claim)
@pytest.mark.slow
def test_no_rule_takes_what_is_missing_for_a_number(case, runs, histories, monkeypatch):
    """Every entry that the rule reads, missing, None or NaN: not run, or as if it, or its run, had not been given."""
    usual = row_of(case, runs, monkeypatch)
    without = cache(lambda number: row_of(case, [run for n, run in enumerate(runs) if n != number], monkeypatch))
    read = read_by(case, runs, monkeypatch)
    assert read or usual.verdict == "not run"
    for path, one_by_one in read.items():
        for value in (None, math.nan) if one_by_one else (KeyError, None, math.nan):
            row = row_of(case, runs, monkeypatch, None, path, value)
            assert not re.search(r"nan|None|Error|Measured", f"{row.ours} {row.note}".replace("Nanda", "")), row
            if row.verdict != "not run" and not meaningful(path):
                expected = [(found.verdict, found.ours) for found in (usual, without(path[0]))]
                if BY_OURS in usual.ours:  # runs that are told behind those that are judged
                    expected.append((usual.verdict, usual.ours.split(BY_OURS)[0] + f"{BY_OURS}not run"))
                assert (row.verdict, row.ours) in expected, (path, value)


def test_scores_missing_from_a_history_are_not_judged(runs, monkeypatch):
    """A training run of which one head has no score at one step."""
    cases = [case for case in all_cases() if case.folder == "dynamics"]
    usual = {case.claim: case.row(Runs(runs)).verdict for case in cases}

    def with_gap(folder):
        history = read_trajectory(folder)
        history.measures["symbolic"][-1, 3] = np.nan
        return history

    monkeypatch.setattr(trained, "read_trajectory", with_gap)
    found = [case.row(Runs(runs)) for case in cases]
    assert {row.verdict for row in found if usual[row.claim] != "not run"} == {"not run"}
    assert {row.note for row in found} == {f"Released-{task}-0 holds steps without symbolic." for task in ("number", "letter")}


def test_what_is_measured_is_read_as_it_is():
    entries = Measured({"a": {"b": [1, 2.5, {"c": "x"}], "zero": 0, "no": False}}, "run")
    assert entries["a"]["b"][:2] == [1, 2.5]
    assert entries["a"]["b"][2]["c"] == "x"
    assert (entries["a"]["zero"], entries["a"]["no"], len(entries["a"]), "b" in entries["a"]) == (0, False, 3, True)


@pytest.mark.parametrize("value", [None, math.nan, [1, None], [[1.0], [math.nan]]])
def test_what_is_not_measured_cannot_be_read(value):
    entries = Measured({"a": {"b": value}}, "run-1")
    with pytest.raises(NotRunError, match="run-1 holds no a, b"):
        entries["a"]["b"]
    for all_of_them in (entries["a"].values, entries["a"].items):
        with pytest.raises(NotRunError):
            list(all_of_them())
    with pytest.raises(NotRunError, match="run-1 holds no a, c"):
        entries["a"]["c"]
    assert entries["a"].get("c") is None
    assert entries["a"].get("b", 7) == (value if isinstance(value, list) else 7)


# Charts

OF_HEADS, OF_PLANES = {"heads", "heat-maps", "depth"}, {"planes", "planes-of-heads", "norms", "head"}


def blank(dataset, *names):
    """The dataset as if measures whose names begin so had not been taken."""
    chosen = [name for name in dataset.data_vars if str(name).startswith(names)]
    return dataset.assign({name: dataset[name] * np.nan for name in chosen})


UNMEASURED = {
    "planes": (("plane_",), OF_PLANES),
    "other ways": (("positional_by", "symbolic_by", "positional_perm", "symbolic_perm"), set()),
    "classical scores": (CLASSICAL, {"classical"}),
    "anything": (
        ("positional", "symbolic", "plane_", *CLASSICAL),
        OF_HEADS | OF_PLANES | {"classical", "kinds", "sensitivity"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", UNMEASURED)
def test_charts_of_what_was_not_measured_are_left_out(what, tmp_path):
    names, left_out = UNMEASURED[what]
    dataset = make_profile(inputs=8, layers=6, heads=2, planes=4)
    everything = set(figures(write_profile(tmp_path / "all", dataset)))
    assert left_out <= everything
    drawn = figures(write_profile(tmp_path / "some", blank(dataset, *names)))
    assert set(drawn) == everything - left_out
    for figure in drawn.values():
        assert not re.search(r"\bnan\b|None|in no head", str(figure.chart.to_dict()["title"]))


def test_models_with_too_few_planes_for_a_trend_have_none(tmp_path):
    dataset = make_profile(inputs=8, layers=6, heads=2, planes=4).isel(plane=[0, 1])
    drawn = figures(write_profile(tmp_path / "two", dataset))
    titles = {name: drawn[name].chart.to_dict()["title"]["text"] for name in ("planes", "planes-of-heads")}
    assert titles == {"planes": "Scores of single planes", "planes-of-heads": "Plane scores of every head"}


@pytest.mark.slow
def test_few_prompts_have_no_intervals(tmp_path):
    for inputs, text in ((7, "too few for intervals"), (8, "point at a head for its 95 % intervals")):
        drawn = figures(write_profile(tmp_path / str(inputs), make_profile(inputs=inputs, layers=6, heads=2, planes=4)))
        assert text in " ".join(drawn["heads"].chart.to_dict()["title"]["subtitle"])
