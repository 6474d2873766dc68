"""Profiles of ordinary text: what may be given, many queries, and answers instead of arrays."""

import json

import numpy as np
import pytest
import torch
from real import folder

import ropescope as rs
from ropescope.measures.purity import head_kinds
from ropescope.models.load import Loaded
from ropescope.studies.head_scores import over_queries
from ropescope.studies.profile.answers import head_table
from ropescope.studies.profile.inputs import given_prompts, open_model

pytestmark = pytest.mark.weights
QUICK = {"planes": False, "sensitivity": False}
SHORT = {"queries": 5, "longest": 48}


@pytest.fixture(scope="module")
def loaded():
    return rs.load_model(str(folder("stories15M")))


@pytest.fixture(scope="module")
def scores(loaded):
    return rs.profile(loaded, rs.prose(3), **SHORT)


def test_texts_encodings_ids_and_prompts_are_one_and_the_same(loaded):
    """Strings, what a tokenizer returns with padding on either side, tensors and Prompts."""
    texts = ["The cat sat on the mat and looked.", "Once upon a time there was a king."]
    tokenizer = loaded.tokenizer
    opened = open_model(loaded)
    expected = [prompt.ids.tolist() for prompt in given_prompts(texts, opened)]
    assert [rs.text_prompts(tokenizer, text, "token")[0].ids.tolist() for text in texts] == expected
    tokenizer.pad_token = tokenizer.eos_token
    for side in ("left", "right"):
        tokenizer.padding_side = side
        padded = tokenizer(texts, padding=True, return_tensors="pt")
        assert [prompt.ids.tolist() for prompt in given_prompts(padded, opened)] == expected
    for given in (
        tokenizer(texts),
        [tokenizer(text) for text in texts],
        expected,
        [torch.tensor(ids) for ids in expected],
        [np.array(ids) for ids in expected],
        rs.id_prompts(expected),
    ):
        found = given_prompts(given, opened)
        assert [prompt.ids.tolist() for prompt in found] == expected
        assert all(prompt.blocks[0] == (1, 2) for prompt in found)
    for one in (texts[0], expected[0], torch.tensor(expected[0])):
        assert [prompt.ids.tolist() for prompt in given_prompts(one, opened)] == expected[:1]


def test_models_in_any_form_have_the_same_scores(loaded, scores):
    path = rs.profile(folder("stories15M"), rs.prose(3), **SHORT, progress=False)
    adapter = rs.profile(rs.Adapter(loaded.model), rs.prose(3), tokenizer=loaded.tokenizer, **SHORT)
    for other in (path, adapter):
        np.testing.assert_array_equal(other.positional, scores.positional)
    assert scores.attrs["model"] == path.attrs["model"] == "stories15M"
    assert isinstance(loaded, Loaded)


@pytest.mark.parametrize(
    ("prompts", "more", "message"),
    [
        (["The capital of France"], {"tokenizer": None}, "prompt 0 is a text, which needs a tokenizer"),
        ([], {}, "prompts must hold at least one prompt"),
        (5, {}, "prompts must be texts, token ids or Prompts, not 5"),
        ([[1, 2, 3, 4], [0.5, 1, 2, 3]], {}, "prompt 1: token ids of a prompt must be whole numbers"),
        ([[1, 2, 3]], {}, "prompt 0: a prompt must be one sequence of at least 4 token ids"),
        ([[1, 2, 3, 99_999]], {}, "prompt 0 has the token 99,999 but the model has 32,000"),
        ([[1, 2, 3, -4]], {}, "prompt 0: a prompt holds -4, which is no token id"),
        ([list(range(3, 303))], {}, "prompt 0 has 300 tokens but the model reads at most 256"),
        (["One. Two. Three."], {"blocks": "line"}, "text 0 has 0 lines"),
        ([{"ids": [1, 2]}], {}, "holds no input_ids"),
        (["A word, another, a third", " "], {}, "text 1 is empty"),
        (["One two three four five"], {"queries": 0}, "queries must be at least 1, not 0"),
    ],
)
def test_inputs_are_checked_before_any_layer_is_probed(monkeypatch, loaded, prompts, more, message):
    monkeypatch.setattr("ropescope.studies.profile.run.Adapter.__init__", lambda *_: pytest.fail("probed first"))
    model = loaded.model if "tokenizer" in more else loaded
    with pytest.raises(ValueError, match=message):
        rs.profile(model, prompts, **more)


def test_what_is_no_model_is_refused_in_one_sentence():
    with pytest.raises(ValueError, match="model must be a model, a path, a hub id or what load_model returns, not 5"):
        rs.profile(5, ["text"])


def test_queries_are_a_dimension_with_their_positions(scores):
    assert scores.positional.dims == ("input", "layer", "head", "query")
    assert scores.position.dims == ("input", "query")
    assert scores.position[0].values.tolist() == [9, 18, 28, 38, 47]
    assert float(scores.score_error.max()) <= 1e-6
    assert scores.entropy.long_name == "entropy of attention at the query, 0 to 1"
    assert scores.sink.dims == ("input", "layer", "head")


def test_the_last_of_many_queries_has_the_scores_of_the_only_one(loaded, scores):
    one = rs.profile(loaded, rs.prose(3), longest=48, **QUICK)
    for name in ("positional", "symbolic", "contrast", "identifiable", "on_blocks", "entropy", "heaviest", "heaviest_weight"):
        np.testing.assert_allclose(scores[name].isel(query=-1), one[name], atol=2e-6, err_msg=name)


def test_texts_of_unequal_length_have_their_own_positions(loaded):
    found = rs.profile(loaded, ["One two three four five.", rs.prose(1)[0]], queries=6, longest=40)
    assert (found.position[0] == -1).sum() == int(found.positional[0, 0, 0].isnull().sum()) > 0
    assert found.positional[1].notnull().all()
    assert over_queries(found).positional.notnull().all()


@pytest.mark.parametrize("blocks", ["sentence", "line"])
def test_sentences_and_lines_move_at_every_query(loaded, blocks):
    text = "Go on, said he. I am old. You are not. We shall see. It is late. They went home. All was well. He slept."
    found = rs.profile(loaded, text.replace(". ", ".\n") if blocks == "line" else text, queries=4, blocks=blocks)
    assert found.positional.notnull().all()
    assert int(found.blocks[0]) == 7


def test_intervals_are_over_texts_however_many_queries_there_are(scores):
    """The same text scored at more of its queries is no new text."""
    once = over_queries(scores)
    twice = over_queries(scores.isel(query=np.repeat(np.arange(5), 2)))
    for dataset in (once, twice):
        assert dataset.positional.dims == ("input", "layer", "head")
    np.testing.assert_allclose(once.positional, twice.positional, atol=1e-12)
    ours = rs.top_heads(scores.isel(input=np.arange(9) % 3), 1)[0].rows[0]
    more = rs.top_heads(scores.isel(input=np.arange(9) % 3, query=np.repeat(np.arange(5), 2)), 1)[0].rows[0]
    assert ours[1] == more[1]
    assert " to " in ours[1]


def test_the_first_token_stays_unless_asked(loaded):
    stays, moves = (rs.profile(loaded, rs.prose(1), longest=40, move_first=move, **QUICK) for move in (False, True))
    assert int(stays.blocks[0]) == int(moves.blocks[0]) == 38  # BOS is in front, and stays
    ids = list(range(5, 25))
    assert [int(rs.profile(loaded, ids, move_first=move, **QUICK).blocks[0]) for move in (False, True)] == [18, 19]


@pytest.mark.slow
def test_one_text_has_one_count_of_positional_heads():
    """Ids, ids of a file and text of a model without BOS gave 85 or 42 mainly positional heads of 270."""
    loaded = rs.load_model(str(folder("smollm2-135m")))
    adapter, text = rs.Adapter(loaded.model), rs.prose(1)[0]
    ids = loaded.tokenizer(text)["input_ids"][:40]
    given = [ids, rs.id_prompts([ids])[0], rs.text_prompts(loaded.tokenizer, text, "token", longest=40)[0]]
    found = rs.profile(adapter, given, **QUICK)
    kinds = [
        (head_kinds(one.positional.values, one.symbolic.values) == "positional").sum() for _, one in found.groupby("input")
    ]
    assert len(set(map(int, kinds))) == 1
    moved = rs.profile(adapter, [ids], move_first=True, **QUICK)
    assert (head_kinds(moved.positional.values, moved.symbolic.values) == "positional").sum() < kinds[0]


def test_top_heads_are_named_with_where_they_look(scores):
    shown = str(rs.top_heads(scores, 3))
    assert shown == repr(scores.ropescope.top(3))
    assert "most positional" in shown
    unnamed = sum(row["judged"] < 0.5 for row in head_table(scores))
    assert ("heads cannot be judged here" if unnamed else "heads can be judged here") in shown
    rows = sorted((row for row in head_table(scores) if row["judged"] >= 0.5), key=lambda row: -row["lead"])
    assert [line.split("  ")[0] for line in shown.splitlines()[2:5]] == [row["name"] for row in rows[:3]]
    assert "<table>" in rs.top_heads(scores, 3)._repr_html_()
    with pytest.raises(ValueError, match="count must be at least 1"):
        rs.top_heads(scores, 0)


def test_heads_that_cannot_be_judged_are_not_named(scores):
    first = scores.isel(layer=0, head=0)
    assert any(row["name"] == "L0 H0" for row in head_table(scores))
    nowhere = scores.copy(deep=True)
    nowhere["identifiable"][:, 0, 0] = 0
    shown = str(rs.top_heads(nowhere, 100))
    assert "L0 H0 " not in shown
    assert first.positional.notnull().all()


def test_few_texts_have_no_interval(loaded):
    shown = str(rs.top_heads(rs.profile(loaded, rs.prose(2), **SHORT), 2))
    assert " to " not in shown


def test_a_chart_and_a_page_without_the_command(scores, tmp_path):
    for name in ("heads", "heat-maps", "depth"):
        assert rs.plot(scores, name).to_dict()
    assert scores.ropescope.depth().to_dict() == rs.plot(scores, "depth").to_dict()
    with pytest.raises(ValueError, match="name must be one of kinds, heads, heat-maps, depth"):
        rs.plot(scores, "planes")
    page = rs.save_run(scores, tmp_path / "run")
    assert page.stat().st_size > 100_000
    result = rs.open_run(tmp_path / "run")
    assert result.claims() == []
    assert "right on" not in str(result.table())
    assert "3 prompts, 5 queries of each" in str(result.table())
    assert set(result.figures()) == {"kinds", "heads", "heat-maps", "depth", "classical"}
    np.testing.assert_allclose(result.dataset.positional, scores.positional, atol=1e-6)
    assert json.loads(result.dataset.attrs["texts"])[0][1] == "Alice"
