"""The page of one model and the atlas: what they say agrees with the scores, and swaps with keys that are really moved."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from profiles import make_profile, write_profile
from typer.testing import CliRunner

import ropescope as rs
from ropescope.cli import app
from ropescope.heads import Heads
from ropescope.html import render
from ropescope.runs import Run, read_run, write_summary
from ropescope.studies.head_scores import with_queries
from ropescope.studies.playground import READABLE, readable, stored_heads, subject, subject_of_heads
from ropescope.studies.profile import model_page
from ropescope.studies.profile.answers import outcome_of
from ropescope.studies.profile.atlas import overview
from ropescope.studies.profile.head_list import can_be_judged, head_list
from ropescope.studies.profile.swaps import swap_examples
from ropescope.tasks.prompts import Prompt

RESULTS = Path(__file__).parents[1] / "results"
STORIES = "profile-stories15M"


@pytest.fixture(scope="module")
def stories():
    return read_run(RESULTS / STORIES)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_profile(tmp_path_factory.mktemp("runs") / "profile", make_profile())


def written(outcome, folder):
    """A run folder without pictures, which take long to draw."""
    for name, content in outcome.data.items():
        (folder / name).write_bytes(content)
    write_summary(folder, "profile", outcome.config, outcome.results, list(outcome.data))
    return read_run(folder)


def html(view):
    """A view as the page shows it, without charts and playground."""
    placed = {"id": "x", "payload": "", "link": lambda run, chart="": "", "figure": lambda name: "", "playground": lambda: ""}
    return str(render(view.template, **view.data, **placed))


def test_the_title_is_the_model_and_what_is_special_about_the_prompts(stories):
    def called(model, **prompts):
        results = {**stories.results, "model": model}
        return model_page.title(Run(stories.folder, {"config": {"prompts": prompts}, "results": results}))

    assert model_page.title(stories) == "stories15M"
    assert called("HuggingFaceTB/SmolLM2-135M", kind="binding", lengths="equal") == "SmolLM2-135M"
    assert called("SmolLM2-135M", kind="prose") == "SmolLM2-135M on prose"
    assert called("SmolLM2-135M", kind="binding", lengths="unequal") == "SmolLM2-135M, sentences of unequal length"
    assert called(None, kind="given") == "model"


def test_every_head_is_in_the_table_with_its_scores(made):
    rows = {row["head"]: row for row in head_list(made)}
    scores = made.results["heads"]
    assert len(rows) == 270
    assert rows["L7 H3"]["positional"] == pytest.approx(scores["positional"]["mean"][7][3], abs=1e-4)
    assert rows["L7 H3"]["lead"] == pytest.approx(scores["difference"]["mean"][7][3], abs=1e-4)
    assert rows["L3 H4"]["lead"] is None  # has no scores
    assert not can_be_judged(rows["L3 H4"])
    assert rows["L7 H3"]["previous_token"] == pytest.approx(float(make_profile().previous_token[:, 7, 3].mean()), abs=1e-3)
    shown = model_page.tail(made)
    assert shown.payload["length"] == 270
    assert [column["name"] for column in shown.payload["columns"]] == list(shown.payload["values"])
    assert "looks_at" not in shown.payload["values"]  # not measured, so not a column


def test_the_lead_counts_heads_and_names_the_leading_ones(made):
    shown = model_page.lead(made).data
    assert {one["kind"]: one["count"] for one in shown["kinds"]} == {
        kind: made.results["kinds"][kind] for kind in ("positional", "symbolic", "mixed")
    }
    leads = {row["head"]: row["lead"] for row in head_list(made) if row["lead"] is not None}
    for kind, sign in (("positional", 1), ("symbolic", -1)):
        named = [head["name"] for head in shown["examples"][kind]]
        assert len(named) == 10
        assert sorted(leads, key=lambda name: sign * leads[name])[0] == named[0]
    assert "made-by-hand has <strong>270 attention heads</strong> in 30 layers" in html(model_page.lead(made)).replace(
        "\n", " "
    )


def test_heads_that_cannot_be_judged_are_counted_and_not_named(made):
    judged = {row["head"]: 1.0 for row in head_list(made)}
    judged |= {f"L{layer} H0": 0.4 for layer in range(5)}
    run = Run(made.folder, {**made.summary, "results": {**made.results, "judged": judged}})
    shown = model_page.lead(run).data
    assert shown["not_judged"] == 5 + 1  # and the one without scores
    assert "6 of them cannot be judged on these prompts" in html(model_page.lead(run))
    spec = rs.Result(rs.open_run(RESULTS / STORIES).study, run).plot("kinds").to_dict()
    assert "Hollow: 5 heads" in " ".join(spec["title"]["subtitle"])


@pytest.mark.parametrize("case", ["tiny", "statistics alone", "nothing known"])
def test_odd_profiles_have_a_page_too(case, made, tmp_path):
    dataset = make_profile(inputs=2, layers=2, heads=1, planes=2)
    if case == "nothing known":
        dataset = dataset.assign({name: values * np.nan for name, values in dataset.items() if values.dtype == float})
    run = Run(tmp_path, made.summary) if case == "statistics alone" else write_profile(tmp_path, dataset)
    text = html(model_page.lead(run)) + html(model_page.tail(run))
    assert "attention heads</strong>" in text
    assert ("What single heads do" in text) == (case != "nothing known")


def moved_attention(heads, head, order):
    """The slow way: keys in another order, rotated at their new places; only the last query stays what it is."""
    group = head // (heads.queries.shape[1] // heads.keys.shape[1])
    one = replace(
        heads,
        queries=heads.queries[:, head : head + 1],
        keys=heads.keys[:, group : group + 1, order],
        alibi=None if heads.alibi is None else heads.alibi[head : head + 1],
        sinks=None if heads.sinks is None else heads.sinks[head : head + 1],
    )
    return rs.attention_weights(one, torch.tensor([len(order) - 1]))[0, 0, 0]


def test_swaps_are_those_of_keys_that_are_really_moved(stories):
    stored = stories.read("playground.json")["subjects"][0]
    layers = dict(stored_heads(stored))
    wanted = {(layer, head) for layer in layers for head in range(6)}
    found = swap_examples(stored, wanted)
    assert set(found) == wanted
    blocks, tokens = stored["blocks"], stored["tokens"]
    texts = ["".join(tokens[start:stop]).strip(" .\n") for start, stop in blocks]
    for (layer, head), example in found.items():
        before = moved_attention(layers[layer], head, list(range(len(tokens))))
        shares = [float(before[start:stop].sum()) for start, stop in blocks]
        heaviest = int(np.argmax(shares))
        other = texts.index(example["other"])
        assert texts[heaviest] == example["moved"]
        assert abs(other - heaviest) >= 3  # of six: it is the one farthest away
        assert example["weight"] == pytest.approx(shares[heaviest], abs=1e-9)
        parts = [list(range(*block)) for block in blocks]
        parts[heaviest], parts[other] = parts[other], parts[heaviest]
        order = [*range(blocks[0][0]), *(token for part in parts for token in part), *range(blocks[-1][1], len(tokens))]
        after = moved_attention(layers[layer], head, order)
        at = {token: float(after[place]) for place, token in enumerate(order)}
        assert example["on_block"] == pytest.approx(sum(at[token] for token in range(*blocks[heaviest])), abs=1e-9)
        assert example["at_place"] == pytest.approx(sum(at[token] for token in range(*blocks[other])), abs=1e-9)
        assert sum(part["weight"] for part in example["before"]) == pytest.approx(sum(shares) + float(before[-1]), abs=1e-9)


def test_blocks_of_unequal_length_sinks_and_windows_are_swapped_too():
    draws = torch.Generator().manual_seed(0)
    tokens = tuple(f" t{n}" for n in range(40))
    queries, keys = (torch.randn(1, n, 40, 8, generator=draws, dtype=torch.float64) for n in (4, 2))
    heads = Heads(
        queries, keys, rs.Rope(head_dim=8), 0.7, soft_cap=3.0, window=30, sinks=torch.randn(4, generator=draws).double()
    )
    prompt = Prompt(np.arange(40), ((2, 5), (12, 14), (14, 19), (20, 22), (30, 36)), tokens)
    stored = subject_of_heads([(7, replace(heads, queries=queries[:, :, -1:]))], prompt, "made")
    found = swap_examples(stored, {(7, head) for head in range(4)} | {(8, 0)})
    assert set(found) == {(7, head) for head in range(4)}  # layer 8 is not stored
    for example in found.values():
        assert " t2 t3 t4" not in [part["text"] for part in example["before"]]  # outside the window
        assert example["other"] in ("t12 t13", "t30 t31 t32 t33 t34 t35")
    first = next(example for example in found.values() if example["moved"] == "t30 t31 t32 t33 t34 t35")
    order = [*range(12), *range(30, 36), *range(14, 30), 12, 13, *range(36, 40)]
    head = next(head for (_, head), example in found.items() if example is first)
    after = moved_attention(next(stored_heads(stored))[1], head, order)
    assert first["on_block"] == pytest.approx(float(after[12:18].sum()), abs=1e-9)


def test_long_texts_show_what_is_near_the_tokens_that_move():
    model, ids = rs.bundled("number"), np.random.default_rng(0).integers(8, 100, 60)
    prompt = Prompt(ids, tuple((n, n + 1) for n in range(1, 59)), tuple(f"<{n}>" for n in range(60)))
    found = swap_examples(subject(model, prompt, "made"), {(1, 0)})[1, 0]
    for row in (found["before"], found["after"]):
        kinds = [part["what"] for part in row]
        assert len(row) < 30
        assert kinds.count("moved") == kinds.count("other") == 1
        assert kinds[-1] == "query"
        assert sum(part["weight"] for part in row) == pytest.approx(
            1, abs=0.05
        )  # gaps hold the rest; the first token is outside


def test_texts_of_many_queries_are_cut_at_a_query():
    prompt = with_queries(Prompt(np.arange(300), tuple((n, n + 1) for n in range(1, 299)), tuple(map(str, range(300)))), 12)
    short = readable(prompt)
    assert len(short) <= READABLE
    assert len(short) - 1 in prompt.queries
    assert max(stop for _, stop in short.blocks) == len(short) - 1
    alone = replace(prompt, queries=())
    assert readable(alone) is alone


def test_a_text_without_playground_shows_where_heads_look(tmp_path):
    scores = rs.profile(rs.bundled("number"), rs.NumberTask().sample(3, seed=0).tokens, planes=False, sensitivity=False)
    run = written(outcome_of(scores), tmp_path)
    shown = model_page.lead(run).data["examples"]["positional"][0]
    texts = json.loads(scores.attrs["texts"])
    example = shown["example"]
    assert example["after"] == []
    assert [part["what"] for part in example["before"]].count("query") == 1
    assert example["moved"] in texts[0]
    steps = model_page.next_steps(run)
    assert any("rs.intervene(model" in step["how"] for step in steps)


def test_next_steps_name_hub_ids_and_quote_folders(stories):
    def commands(source, folder):
        config = {"model": {"source": source}, "prompts": {"kind": "binding"}}
        return "\n".join(
            step["how"] for step in model_page.next_steps(Run(Path(folder), {**stories.summary, "config": config}))
        )

    assert "ropescope control org/model --heads all" in commands("org/model", "out/x")
    assert "ropescope compare 'out/my run' out/other" in commands("model", "out/my run")
    assert "ropescope control MODEL" in commands("model", "out/x")
    assert "ropescope control 'org/$(rm x)'" in commands("org/$(rm x)", "out/x")


def test_the_atlas_has_a_card_for_each_profile():
    runs = [read_run(folder) for folder in sorted(RESULTS.glob("profile-*"))]
    view = overview(runs)
    cards = {card["name"]: card for card in view.data["cards"]}
    assert len(cards) == len(runs) == 8
    smollm = cards["profile-smollm2-135m"]
    assert smollm["heads"] == 270
    assert smollm["shares"]["symbolic"] == pytest.approx(88 / 270)
    assert smollm["paths"]["symbolic"].count("M") == 88
    assert sum(bar["height"] for bar in smollm["strips"] if bar["x"] == 0) == pytest.approx(100, abs=0.05)
    assert {"Precision", "Prompts", "Weights"} <= set(smollm["facts"])
    assert len(json.dumps(view.payload)) < 60_000
    text = html(view)
    assert text.count('class="at-card"') == 8
    assert overview(runs[:1]) is None


def test_names_from_files_are_escaped(made):
    bad = "<img src=x onerror=alert(1)>"
    config = {"model": {"source": bad, "family": bad, "weights": {bad: bad}}, "prompts": {"kind": bad}}
    results = {**made.results, "model": bad, "prompts": bad, "precision": bad}
    run = Run(made.folder, {**made.summary, "config": config, "results": results})
    text = html(model_page.lead(run)) + html(model_page.tail(run)) + html(overview([run, run]))
    assert "<img" not in text
    assert "&lt;img" in text


def test_pages_are_opened_when_asked(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) is None)
    command = CliRunner().invoke(app, ["report", str(RESULTS / "bench"), "--out", str(tmp_path / "a.html"), "--open"])
    assert command.exit_code == 0
    rs.page([RESULTS / "bench"], tmp_path / "b.html", open=True)
    rs.page([RESULTS / "bench"], tmp_path / "c.html")
    assert opened == [(tmp_path / name).resolve().as_uri() for name in ("a.html", "b.html")]
    with pytest.raises(ValueError, match="open needs out"):
        rs.run("profile", model="weights/none", open=True)
    with pytest.raises(ValueError, match="open: theory has no page of its own"):
        rs.run("theory", out=tmp_path / "theory", open=True)
    assert "--open" in CliRunner().invoke(app, ["profile", "--help"]).output
    assert "--open" not in CliRunner().invoke(app, ["theory", "--help"]).output
