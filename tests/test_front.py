"""The front of a page: findings and stories come from runs, the live picture shows exact attention, words are explained."""

import base64
import gzip
import json
import re
from functools import cache

import numpy as np
import pytest
import torch
from altair.utils.schemapi import debug_mode
from doctored import RESULTS

from ropescope.html.glossary import GLOSSARY, explained
from ropescope.logits import layer_factors
from ropescope.report.duet import clearest, duet, logits
from ropescope.report.playground import fragment
from ropescope.report.scoreboard import not_reproduced, scoreboard_html
from ropescope.runs import Run, find_runs
from ropescope.studies import study_of
from ropescope.studies.claims import Claim
from ropescope.studies.playground import stored_heads
from ropescope.studies.story import FINDINGS, QUESTIONS, findings, stories

PLAYED = "profile-smollm2-135m"


@cache
def recorded():
    return find_runs([RESULTS])


@cache
def played():
    return json.loads((RESULTS / PLAYED / "playground.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_recorded_runs_show_every_finding_and_answer_every_question():
    found = findings(recorded())
    assert len(found) == len(FINDINGS) == 6
    told = stories(recorded())
    assert list(told) == list(QUESTIONS)
    shown = [*found, *(story for part in told.values() for story in part)]
    used = {one.run.folder for one in shown}
    with debug_mode(False):
        figures = {run.folder: set(study_of(run).figures(run)) for run in recorded() if run.folder in used}
    for one in shown:
        assert one.chart in figures[one.run.folder], one
    for one in found:
        assert one.claim.endswith(".")
        assert one.figure.reading.endswith(".")
        assert re.search(r"\d", one.number)


def test_without_runs_nothing_is_told():
    assert findings([]) == []
    assert stories([]) == {}


def changed(name, change):
    """All recorded runs, of which one has other results."""
    (one,) = (run for run in recorded() if run.name == name)
    summary = json.loads(json.dumps(one.summary))
    change(summary["results"])
    return [Run(run.folder, summary) if run is one else run for run in recorded()]


def test_numbers_of_findings_are_those_of_the_runs():
    kinds, _, frequencies, _, reach, repaired = (one.number for one in findings(recorded()))
    profiles = [run for run in recorded() if run.command == "profile" and not run.name.endswith("unequal")]
    counted = [run.results["kinds"] for run in profiles]
    mixed, total = sum(each["mixed"] for each in counted), sum(sum(each.values()) for each in counted)
    assert abs(float(kinds.rstrip("%")) - 100 * (1 - mixed / total)) < 0.6
    assert repaired == "25 → 0"

    def swap(results):
        results["letter"]["crossings"]["0.5"]["overall"]["measured"] = 777.0

    other = findings(changed("generalise-letter", swap))
    assert other[4].number == reach.replace("1,145", "777")
    assert other[2].number == frequencies


@pytest.mark.parametrize(
    ("name", "change", "lost"),
    [
        ("theory", lambda results: results["bounds"].update(index_corrected_violated=3), "Theorem 3.2"),
        ("canonical", lambda results: results["trained"]["sweeps"]["index"].update(mean=[0.1] * 19), "frequencies"),
        ("generalise-letter", lambda results: results["letter"].pop("curves"), "Trained on 17"),
    ],
)
def test_what_runs_do_not_show_is_not_claimed(name, change, lost):
    before, after = findings(recorded()), findings(changed(name, change))
    assert len(after) == len(before) - 1
    assert any(lost in one.claim for one in before)
    assert not any(lost in one.claim for one in after)


def test_every_recorded_run_has_a_title_in_words():
    for run in recorded():
        title = study_of(run).title(run)
        assert title != run.name
        assert title


def test_the_live_picture_computes_the_logits_of_the_model():
    subject = played()["subjects"][0]
    for n, (_, heads) in enumerate(stored_heads(subject)):
        if n % 7 == 0:
            np.testing.assert_allclose(np.stack(list(logits(subject, n))), layer_factors(heads).matrix()[0], atol=1e-12)


def test_the_live_picture_has_the_two_heads_alone():
    pair = duet({PLAYED: played()}, {})
    subject = played()["subjects"][0]
    found = clearest(subject, {})
    assert pair["run"] == PLAYED
    assert pair["heads_of_model"] == 270
    assert len(json.dumps(pair)) < 100_000
    for layer, one, (n, head, clarity) in zip((0, 1), pair["layers"], (found["positional"], found["symbolic"]), strict=True):
        assert (one["layer"], one["head"]) == (subject["layers"][n]["layer"], head)
        assert clarity > 0.1
        (cut,) = logits(pair, layer)
        np.testing.assert_allclose(cut, list(logits(subject, n))[head], atol=1e-12)


def made(contents, places):
    """A stored layer of heads with logits contents[c] + places[p], in two planes: one stands still, one turns."""
    tokens = len(contents[0])
    turns = torch.polar(torch.ones(tokens, 2), torch.arange(tokens)[:, None] * torch.tensor([0.0, 0.3]))
    keys = [[[c, 0.0, p, 0.0] for c in content] for content, p in zip(contents, places, strict=True)]

    def packed(values):
        return {"type": "float64", "base64": base64.b64encode(np.asarray(values, "<f8").tobytes()).decode()}

    layer = {
        "layer": 3,
        "heads": len(contents),
        "key_heads": len(contents),
        "head_dim": 4,
        "table": 0,
        "scale": 1.0,
        "turned": False,
    }
    layer |= dict.fromkeys(("soft_cap", "window", "alibi", "sinks"))
    layer |= {"queries": packed([[1.0, 0, 1.0, 0]] * len(contents)), "keys": packed(keys)}
    table = {"frequencies": [0.0, 0.3], "turns": packed(torch.view_as_real(turns))}
    return {
        "name": "made",
        "about": {},
        "tokens": ["<s>", "A", "B", "C", "D", "?"],
        "blocks": [[1, 2], [2, 3], [3, 4], [4, 5]],
        "tables": [table],
        "layers": [layer],
        "layers_of_model": [3],
    }


def test_a_head_that_stays_and_one_that_follows_are_told_apart():
    subject = made([[0, 0, 0, 0, 0, -20.0], [0, 0, 4.0, 0, 0, 0]], [20.0, 0.0])
    found = clearest(subject, {})
    assert {kind: head for kind, (_, head, _) in found.items()} == {"positional": 0, "symbolic": 1}
    assert duet({"made": {"subjects": [subject]}}, {})["run"] == "made"
    assert clearest(made([[0, 0, 4.0, 0, 0, 0]], [0.0]), {}) == {}  # one kind alone shows nothing
    assert clearest(subject, {"L3 H0": "positional", "L3 H1": "mixed"}) == {}  # on other prompts it does something else
    assert duet({"made": {"subjects": [subject | {"blocks": []}]}}, {}) is None
    assert duet({"made": {"subjects": [subject | {"layers": [{}]}]}, "other": {}}, {}) is None


def test_arrays_of_a_playground_are_all_in_the_page():
    texts = re.findall(r"<script[^>]*>(.*?)</script>", fragment(played(), "a run"))
    told, raw = json.loads(texts[0]), gzip.decompress(base64.b64decode(texts[1]))
    count = told["counts"][0]
    numbers = np.frombuffer(raw[: 4 * count], np.uint8).reshape(4, count).T.copy().view("<f4")[:, 0]
    layer, theirs = told["data"]["subjects"][0]["layers"][5], played()["subjects"][0]["layers"][5]
    for name in ("queries", "keys"):
        at, length = layer[name]["at"], layer[name]["length"]
        assert numbers[at : at + length].tobytes() == base64.b64decode(theirs[name]["base64"])
    assert len(fragment(played(), "a run")) < 0.9 * (RESULTS / PLAYED / "playground.json").stat().st_size


def test_words_are_explained_once():
    pieces = explained("Symbolic? A symbolic head, no asymbolic one, is symbolic; RoPE planes turn.")
    assert [word for word, known in pieces if known] == ["symbolic", "RoPE planes"]
    assert "".join(word for word, _ in pieces) == "Symbolic? A symbolic head, no asymbolic one, is symbolic; RoPE planes turn."
    assert all(about.endswith(".") for about in GLOSSARY.values())


def test_the_tally_counts_verdicts_by_section():
    names = dict.fromkeys(("claim", "where", "statement", "paper_value", "ours", "note", "run", "chart"), "x")
    rows = [
        Claim(**names, paper="A", verdict=verdict, section="Chat models") for verdict in ("not", "not", "reproduced", "not run")
    ]
    html = scoreboard_html(rows, lambda *_: "")
    assert re.findall(r'<i class="([\w-]+)" style="flex-grow: (\d)">', html) == [
        ("reproduced", "1"),
        ("not", "2"),
        ("not-run", "1"),
    ]
    assert "href" not in html
    last = not_reproduced(rows)
    assert (last.number, last.run) == ("2", None)
    assert "of 3 claims" in last.claim
    assert not_reproduced(rows[3:]) is None
