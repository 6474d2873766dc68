"""The study of sharpened heads: its choices, what it computes of losses, a larger base, and the command on a tiny model."""

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from typer.testing import CliRunner

import ropescope as rs
from ropescope.cli import app
from ropescope.measures.intervals import LEAST_INPUTS
from ropescope.studies.conformance.families import rope_variants, tiny
from ropescope.studies.sharpen import Settings
from ropescope.studies.sharpen.choices import (
    Choice,
    can_rebase,
    choices,
    heads_by_kind,
    larger_base,
    most_positional,
    random_heads,
    rebased,
)
from ropescope.studies.sharpen.names import ALL, BASE, FEW, NONE, POSITIONAL, SYMBOLIC, with_base
from ropescope.studies.sharpen.run import bands, summary, trained_length
from ropescope.studies.text_losses import text_losses

KINDS = {SYMBOLIC: [(1, 0), (1, 2), (3, 1)], POSITIONAL: [(0, 0), (0, 1), (2, 2), (2, 3)], "mixed": [(3, 3)], "unscored": []}
TRAINED, TOKENS = 24, 60


def ids(tokens: int = 40) -> torch.Tensor:
    return torch.randint(4, 60, (tokens,), generator=torch.Generator().manual_seed(3))


def test_heads_by_kind_are_those_of_the_profile():
    positional = np.array([[0.9, 0.1, 0.5], [np.nan, 0.4, 0.6]])
    symbolic = np.array([[0.2, 0.9, 0.6], [0.5, 0.65, 0.3]])
    found = heads_by_kind([2, 5], positional, symbolic)
    assert found == {POSITIONAL: [(2, 0), (5, 2)], SYMBOLIC: [(2, 1), (5, 1)], "mixed": [(2, 2)], "unscored": [(5, 0)]}


def test_choices():
    found = choices(KINDS, KINDS[POSITIONAL][1:], 4.0, draws=5, seed=0)
    assert len({choice.name for choice in found}) == len(found)
    by_name = {choice.name: choice for choice in found}
    every = {head for own in KINDS.values() for head in own}
    assert by_name[NONE].heads == ()
    assert by_name[SYMBOLIC].heads == tuple(KINDS[SYMBOLIC])
    assert by_name[FEW].heads == tuple(KINDS[POSITIONAL][1:])
    assert set(by_name[ALL].heads) == every
    for name in (SYMBOLIC, POSITIONAL, FEW, ALL):
        both = by_name[with_base(name)]
        assert (both.heads, both.base, both.without) == (by_name[name].heads, 4.0, BASE)
        assert (by_name[name].base, by_name[name].without) == (1.0, NONE)
    assert (by_name[BASE].heads, by_name[BASE].base, by_name[BASE].without) == ((), 4.0, NONE)
    assert [choice.stopped for choice in found if choice.stopped] == [0.25, 0.5]
    for base in (1.0, 4.0):
        drawn = [choice for choice in found if choice.drawn and choice.base == base]
        assert len(drawn) == 5
        assert len({choice.heads for choice in drawn}) > 1
        for choice in drawn:
            assert len(set(choice.heads)) == 3
            assert set(choice.heads) <= every
    assert found == choices(KINDS, KINDS[POSITIONAL][1:], 4.0, draws=5, seed=0)
    assert found != choices(KINDS, KINDS[POSITIONAL][1:], 4.0, draws=5, seed=1)


def test_as_many_positional_heads_are_the_clearest():
    lead = np.array([[-0.5, -0.3, 0, 0], [0.9, 0, 0.9, 0], [0, 0, -0.9, -0.4], [0, 0.9, 0, 0]])
    assert most_positional(KINDS, range(4), lead) == ((0, 0), (2, 2), (2, 3))
    assert most_positional(KINDS | {POSITIONAL: [(0, 0)]}, range(4), lead) == ()  # fewer than symbolic ones


def test_kinds_and_bases_that_are_not_there_are_left_out():
    found = choices(KINDS | {SYMBOLIC: []}, (), 4.0, draws=3, seed=0, larger_base=False)
    names = {choice.name for choice in found}
    assert not {SYMBOLIC, FEW} & names
    assert not any(BASE in name for name in names)
    assert not any(choice.drawn for choice in found)


def test_every_head_is_drawn_equally_often():
    every = [(layer, head) for layer in range(3) for head in range(4)]
    drawn = [random_heads(every, 3, [0, n]) for n in range(2000)]
    counts = np.array([sum(head in own for own in drawn) for head in every])
    assert abs(counts - 500).max() < 100  # five standard deviations


def made(losses: dict[Choice, list[float]], passages: int = 2) -> dict:
    """What is computed of losses that are the same at every position past the trained length, and 1 within it."""
    tables = []
    for past in losses.values():
        table = np.ones((passages, TOKENS - 1))
        table[:, TRAINED:] = np.resize(past, passages)[:, None]
        tables.append(table)
    return summary(list(losses), tables, TRAINED)


def test_gains_and_ranks_by_hand():
    symbolic, positional = Choice(SYMBOLIC, ((0, 0),)), Choice(POSITIONAL, ((0, 1),))
    base, both = Choice(BASE, base=2.0), Choice(with_base(SYMBOLIC), ((0, 0),), base=2.0)
    few = Choice(FEW, ((0, 1),))
    drawn = [Choice(f"random {n}", ((0, n),), drawn=True) for n in range(3)]
    with_larger = Choice(with_base("random 0"), ((0, 0),), base=2.0, drawn=True)
    losses = {Choice(NONE): [5, 7], symbolic: [4, 5], positional: [6, 8], few: [6, 8], base: [3, 4], both: [3, 3]}
    losses |= {drawn[0]: [3, 4], drawn[1]: [4.5, 6.5], drawn[2]: [5, 7], with_larger: [2, 2]}
    found = made(losses)
    entries = found["choices"]
    assert entries[NONE]["past"] == [5, 7]
    assert entries[NONE]["loss"] == [[1, 1], [5, 7], [5, 7]]  # by band, then by passage
    assert entries[SYMBOLIC]["gain"] == {"by_passage": [1, 2], "mean": 1.5, "low": None, "high": None}
    assert entries[POSITIONAL]["gain"]["mean"] == -1
    assert entries[BASE]["gain"]["mean"] == 2.5
    assert entries[with_base(SYMBOLIC)]["gain"]["by_passage"] == [0, 1]  # against the larger base without sharpening
    own, larger = found["random"][NONE], found["random"][BASE]
    assert own["gains"] == [2.5, 0.5, 0]
    assert set(own["beside"]) == {SYMBOLIC, FEW}
    beside = own["beside"][SYMBOLIC]
    assert (beside["as_good"], beside["as_bad"]) == (1, 2)
    assert beside["lead"]["by_passage"] == pytest.approx([1 - 2.5 / 3, 2 - 3.5 / 3], abs=1e-5)
    assert (own["beside"][FEW]["as_good"], own["beside"][FEW]["as_bad"]) == (3, 0)
    assert larger["gains"] == [1.5]
    assert larger["beside"][with_base(SYMBOLIC)]["lead"]["by_passage"] == [-1, -1]


def test_intervals_need_passages():
    choice = Choice(SYMBOLIC, ((0, 0),))
    for passages in (LEAST_INPUTS - 1, LEAST_INPUTS):
        draws = np.random.default_rng(0).normal(4, 1, passages).tolist()
        gain = made({Choice(NONE): [5.0], choice: draws}, passages)["choices"][SYMBOLIC]["gain"]
        if passages < LEAST_INPUTS:
            assert (gain["low"], gain["high"]) == (None, None)
        else:
            assert gain["low"] < gain["mean"] < gain["high"]


@pytest.mark.parametrize(
    ("tokens", "trained", "expected"),
    [
        (1024, 256, [(1, 256), (257, 512), (513, 768), (769, 1023)]),
        (257, 256, [(1, 256)]),
        (300, 256, [(1, 256), (257, 299)]),
    ],
)
def test_bands_hold_every_query_once(tokens, trained, expected):
    assert bands(tokens, trained) == expected


def test_losses_are_those_of_every_prefix():
    """One pass over the text, against one pass for each of its tokens."""
    model = tiny("llama")
    text = ids(12)
    with torch.no_grad():
        logits = [model(input_ids=text[None, : n + 1], use_cache=False).logits[0, -1].double() for n in range(11)]
    expected = [float(-row.log_softmax(-1)[token]) for row, token in zip(logits, text[1:], strict=True)]
    np.testing.assert_allclose(text_losses(model, text), expected, atol=1e-5)


def test_a_larger_base_is_that_of_a_model_built_with_it():
    model = tiny("llama")
    adapter = rs.Adapter(model)
    before = text_losses(model, ids())
    config = type(model.config)(**model.config.to_dict())
    base = larger_base(config.rope_parameters["rope_theta"], 24, 2.5)
    config.rope_parameters = {**config.rope_parameters, "rope_theta": base}
    other = type(model)(config).double().eval()
    other.load_state_dict(model.state_dict())
    assert can_rebase(adapter)
    with rebased(adapter, 2.5):
        shown = text_losses(model, ids())
    np.testing.assert_allclose(shown, text_losses(other, ids()), atol=1e-6)
    assert abs(shown - before).max() > 1e-3
    np.testing.assert_array_equal(text_losses(model, ids()), before)
    with rebased(adapter, 1.0):
        np.testing.assert_array_equal(text_losses(model, ids()), before)


def test_a_scaled_rotation_has_no_larger_base():
    assert not can_rebase(rs.Adapter(rope_variants()["yarn"]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model of words, trained on nothing, whose context is 24 tokens."""
    torch.manual_seed(0)
    words = sorted({word for text in rs.prose() for word, _ in pre_tokenizers.Whitespace().pre_tokenize_str(text)})
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(["<s>", "?", *words])}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(
        vocab_size=len(words) + 2, **sizes, max_position_embeddings=TRAINED, initializer_range=0.5, attention_bias=True
    )
    model, path = transformers.LlamaForCausalLM(config), tmp_path_factory.mktemp("model")
    with torch.no_grad():  # half of the heads of the first layer hardly read what stands there
        for part in (model.model.layers[0].self_attn.q_proj, model.model.layers[0].self_attn.k_proj):
            part.weight[:16] *= 0.01
            part.bias[:16] = torch.randn(16)
    model.save_pretrained(path)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(path)
    return path


@pytest.mark.slow
def test_the_command(folder, tmp_path):
    out = tmp_path / "out"
    arguments = ["sharpen", str(folder), "--tokens", str(TOKENS), "--passages", "9", "--draws", "2", "--out", str(out)]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    result = rs.open_run(out)
    assert "gained by sharpening: symbolic heads" in result.headline
    found, config = result.summary["results"], result.summary["config"]
    assert (config["trained"], config["start"], config["passages"]) == (TRAINED, TRAINED, 9)
    assert found["kinds"][SYMBOLIC]
    assert found["kinds"][POSITIONAL]
    assert list(found["random"]) == [NONE, BASE]
    entries = found["choices"]
    # Within the trained length sharpening changes nothing.
    for name in (SYMBOLIC, POSITIONAL, ALL):
        assert entries[name]["loss"][0] == entries[NONE]["loss"][0]
        assert entries[name]["loss"][1] != entries[NONE]["loss"][1]
        assert entries[name]["gain"]["low"] is not None
    # The numbers are those of the model with the changes, passage by passage.
    loaded = rs.load_model(str(folder), "float32")
    adapter = rs.Adapter(loaded.model)
    text = torch.from_numpy(np.array(loaded.tokenizer(" ".join(rs.prose()))["input_ids"]))
    second = text[TOKENS : 2 * TOKENS]
    heads = [tuple(head) for head in found["kinds"][SYMBOLIC]]
    with rs.intervene(adapter, rs.sharpen_heads(heads, TRAINED)):
        losses = text_losses(adapter.model, second)
    assert entries[SYMBOLIC]["past"][1] == pytest.approx(losses[TRAINED:].mean(), abs=2e-5)
    with rs.intervene(adapter, rs.p_rope(adapter, 0.25)):
        losses = text_losses(adapter.model, second)
    assert entries["p-RoPE, slowest 25% stopped"]["past"][1] == pytest.approx(losses[TRAINED:].mean(), abs=2e-5)
    scores = rs.profile(adapter, rs.prose(), tokenizer=loaded.tokenizer, queries=16, longest=TRAINED, planes=False)
    means = scores.symbolic.mean("query").mean("input")
    np.testing.assert_allclose(np.array(found["symbolic"], dtype=float), means, atol=1e-5)
    assert result.dataset["loss"].dims == ("choice", "passage", "band")
    assert result.dataset["loss"].sel(choice=NONE).shape == (9, 3)
    assert set(result.figures()) == {"loss"}
    # Again, with more draws: what was measured is not measured again.
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    rs.run("sharpen", model=str(folder), tokens=TOKENS, passages=9, draws=3, out=out)
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    with pytest.raises(ValueError, match="a study of another model, text or length"):
        rs.run("sharpen", model=str(folder), tokens=TOKENS, start=5, draws=3, out=out)


def test_what_cannot_be_read_is_refused(folder, tmp_path):
    (tmp_path / "short.txt").write_text("Alice was beginning")
    for given, message in (
        ({"tokens": TRAINED}, f"tokens must be above {TRAINED}, the trained length, not {TRAINED}"),
        ({"text": tmp_path / "short.txt"}, "the text has 3 tokens, too few for a passage of 1024"),
        ({"text": tmp_path / "none.txt"}, "cannot be read"),
        ({"tokens": 3}, "tokens must be at least 4, not 3"),
        ({"trained": 1}, "trained must be at least 2, not 1"),
        ({"start": 1}, "start must be at least 2, not 1"),
        ({"passages": 0}, "passages must be at least 1, not 0"),
        ({"draws": -1}, "draws must be at least 0, not -1"),
    ):
        with pytest.raises(ValueError, match=message):
            rs.run("sharpen", model=str(folder), **given)
    loaded = rs.load_model(str(folder), "float32")
    unknown = type(loaded)(loaded.model, loaded.tokenizer, None, loaded.vocabulary, loaded.about)
    with pytest.raises(ValueError, match="give trained"):
        trained_length(Settings("some"), unknown)
    assert trained_length(Settings("some", trained=5), unknown) == 5
