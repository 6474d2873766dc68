"""Figures, tables and headlines of every study show nothing of what was not measured.

What they read by its name is there, or a ValueError in one sentence says that the run is incomplete (`studies/measured.py`).
What they ask for by `get` may be missing: each such entry is made None, and is removed, in a run of every type.
"""

import copy
import json
import re
from collections import defaultdict

import numpy as np
import pytest
from altair.utils.schemapi import debug_mode
from hostile_fields import recorded_runs
from made_runs import make_missing

from ropescope.runs import Run, read_run
from ropescope.studies import studies, study_of
from ropescope.studies.measured import Measured, shown

PARTS = ("headline", "tables", "figures")
UNKNOWN = re.compile(r"\b(nan|NaN|None|Measured)\b")
OPTIONAL = {"sd", "std", "low", "high", "lower", "upper", "positional_low", "positional_high", "symbolic_low", "symbolic_high"}
OPTIONAL |= {"difference_low", "difference_high"}
"""Columns of intervals: charts draw none of those that are not known."""
COMPARED = {"control": {"least", "mean", "most"}}
"""Columns of what a study sets beside its results, if it was measured."""


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """The smallest run of every type."""
    recorded = {command: min(folders, key=_size) for command, folders in recorded_runs().items()}
    made = make_missing(tmp_path_factory.mktemp("made"), set(recorded))
    return recorded | {read_run(folder).command: folder for folder in made[1:]}


def _size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def described(run):
    """Text and figures of a run; of what a run is too incomplete for, nothing."""
    found, study = {}, study_of(run)
    for part in PARTS:
        try:
            with debug_mode(False):
                found[part] = getattr(study, part)(run)
                if part == "figures":
                    found[part] = {name: (figure, figure.chart.to_dict(validate=False)) for name, figure in found[part].items()}
        except ValueError as error:
            if str(run.folder) not in str(error) or "\n" in str(error):
                raise
    return found


def text_of(found):
    parts = [found.get("headline", ""), repr(found.get("tables"))]
    parts += [f"{figure.title} {figure.reading} {spec.get('title')}" for figure, spec in found.get("figures", {}).values()]
    return " ".join(parts)


def columns(spec):
    """Columns of a chart that hold numbers, by dataset."""
    return [
        {key for row in rows for key, value in row.items() if isinstance(value, int | float | list)}
        for rows in spec.get("datasets", {}).values()
        if all(isinstance(row, dict) for row in rows)
    ]


def changed(content, names, value):
    """JSON without an entry, or with another value; numbers of items in lists are no part of its name."""
    if isinstance(content, list):
        return [changed(item, names, value) for item in content]
    if not isinstance(content, dict) or names[0] not in content:
        return content
    name, *rest = names
    if rest:
        return content | {name: changed(content[name], rest, value)}
    return {key: item for key, item in content.items() if key != name} | ({} if value is KeyError else {name: value})


def asked_for(run, monkeypatch):
    """Entries that are asked for by `get`, those that differ in the middle of their names together."""
    noted, usual = set(), Measured.get

    def get(self, key, default=None):
        noted.add((*self._path, str(key)))
        return usual(self, key, default)

    monkeypatch.setattr(Measured, "get", get)
    found = described(run)
    monkeypatch.setattr(Measured, "get", usual)
    alike = defaultdict(set)
    for names in noted:
        alike[names[0], len(names), names[-1]].add(names)
    return found, list(alike.values())


def without(run, paths, value):
    """The run, and what its files hold, without some entries."""
    results, files = copy.deepcopy(run.results), {}
    for names in paths:
        if names[0].endswith(".json"):
            content = files.get(names[0], READ(run, names[0]))
            files[names[0]] = changed(content, names[1:], value) if names[1:] else None
        else:
            results = changed(results, names, value)
    return Run(run.folder, {**run.summary, "results": results}), files


READ = Run.read


@pytest.mark.slow
@pytest.mark.parametrize("command", list(studies()))
def test_nothing_unmeasured_is_shown(command, examples, monkeypatch):
    run = read_run(examples[command])
    usual, asked = asked_for(run, monkeypatch)
    assert set(usual) == set(PARTS)
    before = {name: columns(spec) for name, (_, spec) in usual["figures"].items()}
    known = set(UNKNOWN.findall(text_of(usual)))  # of an error message that a run recorded
    for paths in asked:
        for value in (None, KeyError):
            other, files = without(run, paths, value)
            monkeypatch.setattr(Run, "read", lambda run, name, files=files: files[name] if name in files else READ(run, name))
            found = described(other)
            assert set(UNKNOWN.findall(text_of(found))) <= known, (paths, text_of(found))
            for name, (_, spec) in found.get("figures", {}).items():
                assert "NaN" not in json.dumps(spec)
                left = columns(spec)
                assert all(left) or not all(before[name]), (name, paths, "is empty")
                if len(left) == len(before[name]):  # otherwise some part of the figure is left out
                    for now, then in zip(left, before[name], strict=True):
                        assert then - now <= OPTIONAL | COMPARED.get(command, set()), (name, paths)
            monkeypatch.setattr(Run, "read", READ)


@pytest.mark.parametrize("value", [None, KeyError, [1.0, None]])
def test_what_is_read_by_its_name_must_be_there(value, tmp_path):
    results = changed({"a": [{"b": 1.0}]}, ("a", "b"), value)
    run = Run(tmp_path, {"command": "demo", "config": {"none": None}, "results": results, "sha256": {}})
    with pytest.raises(ValueError, match=r"is incomplete \(.* holds no a, b\): run it again"):
        shown(lambda run: f"{run.results['a'][0]['b']:.2f}")(run)
    assert shown(lambda run: (run.config["none"], run.results["a"][0].get("c")))(run) == (None, None)
    with pytest.raises(ValueError, match="cannot be shown, as it lacks what a run of demo holds"):
        shown(lambda run: run.config["more"])(run)


def test_rows_of_charts_hold_no_unmeasured_entries(tmp_path):
    from ropescope.charts import Inline  # noqa: PLC0415
    from ropescope.studies.measured import NotRunError  # noqa: PLC0415

    assert Inline(values=[Measured({"a": 1}, "run")]).to_dict() == {"values": [{"a": 1}]}
    with pytest.raises(NotRunError):
        Inline(values=[Measured({"a": None}, "run")])
    assert np.isfinite(Inline(values=[{"a": 1.5}]).to_dict()["values"][0]["a"])
