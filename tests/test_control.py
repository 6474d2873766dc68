"""Planes and heads as a knob: what is changed is exactly what was asked for, in any family, and nothing else."""

import json
from dataclasses import replace

import numpy as np
import pytest
import real
import torch
import transformers

import ropescope as rs
from ropescope import cli
from ropescope.experiments import control as study
from ropescope.experiments.families import rope_variants, tiny
from ropescope.models import control as knob
from ropescope.models import door as door_room
from ropescope.models.door import read_layers
from ropescope.models.opened import run
from ropescope.tasks import LetterTask, NumberTask
from ropescope.tasks.passage import PASSAGE
from ropescope.tasks.prompts import text_ids

FAMILIES = ["llama", "cohere", "stablelm", "deepseek_v3", "gptj", "falcon", "gemma2", "gpt_oss", "hunyuan_v1_dense"]
TOKENS = 12


def ids() -> torch.Tensor:
    return torch.randint(4, 60, (2, TOKENS), generator=torch.Generator().manual_seed(3))


def opened(family: str) -> rs.Door:
    return rs.Door(tiny(family))


def attended(door: rs.Door | rs.GPTJ, control: knob.Control, layer: int) -> rs.LogitFactors:
    """What the first layer of a controlled model attends with; the door checks it against the model's own weights."""
    found = {}
    with knob.controlled(door, control):
        read_layers(door, ids(), lambda read: found.update({read.layer: read.factors}))
    return found[layer]


@pytest.mark.parametrize("family", FAMILIES)
def test_gains_of_one_change_nothing(family):
    door = opened(family)
    with torch.no_grad():
        before = door.model(input_ids=ids(), use_cache=False).logits
        with knob.controlled(door, knob.scale_planes(door, "fast", 1.0)):
            during = door.model(input_ids=ids(), use_cache=False).logits
        after = door.model(input_ids=ids(), use_cache=False).logits
    torch.testing.assert_close(during, before, atol=1e-9, rtol=0)
    assert torch.equal(after, before)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_plane_alone_gives_its_own_logits(family):
    """The first layer's input does not depend on attention, so its logits are those that M_f foretold."""
    door = opened(family)
    first = door.layers[0]
    whole = attended(door, {}, first)
    planes = len(whole.rope.plane_frequencies)
    for plane in (0, planes // 2, planes - 1):
        alone = attended(door, {first: knob.keep_planes(door, {first: [plane]})[first]}, first)
        expected = whole.only_planes([plane]).diagonal()
        torch.testing.assert_close(alone.diagonal(), expected, atol=1e-9, rtol=0)
        if whole.soft_cap is None:
            torch.testing.assert_close(alone.diagonal(), whole.plane_diagonal()[plane], atol=1e-9, rtol=0)


@pytest.mark.parametrize("family", ["llama", "cohere", "stablelm", "deepseek_v3", "hunyuan_v1_dense"])
def test_weights_are_the_models_own(family):
    """The weights that the controlled model itself shows are those of the planes that are kept."""
    door = opened(family)
    door.model.set_attn_implementation("eager")
    kept = knob.chosen_planes(door, "2/3,still")
    with torch.no_grad(), knob.controlled(door, knob.keep_planes(door, "2/3, still")):
        shown = door.model(input_ids=ids(), use_cache=False, output_attentions=True).attentions[0][:, :, -1]
    first = door.layers[0]
    expected = attended(door, {}, first).only_planes(kept[first]).diagonal().softmax(-1)
    torch.testing.assert_close(shown.double(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("family", ["llama", "cohere", "stablelm", "deepseek_v3", "gptj"])
def test_p_rope_of_all_planes_is_nope(family):
    door, found = opened(family), {}
    first = door.layers[0]
    read_layers(door, ids(), lambda read: found.update({read.layer: read.heads}))
    heads = found[first]
    keys = heads.keys.repeat_interleave(heads.queries.shape[1] // heads.keys.shape[1], 1)
    contents = (heads.queries[:, :, -1:] @ keys.mT)[:, :, 0] * heads.scale
    stopped = attended(door, knob.p_rope(door, 1.0), first)
    torch.testing.assert_close(stopped.diagonal(), contents, atol=1e-9, rtol=0)
    # Then any order of the keys gives the same logits: M has equal columns.
    M = stopped.matrix()
    torch.testing.assert_close(M, M[..., -1:].expand_as(M), atol=1e-9, rtol=0)
    # Of half of them: slow planes give contents, fast ones what they gave.
    half = attended(door, knob.p_rope(door, 0.5), first)
    slow = knob.select_planes(half.rope, "slowest50%")
    whole, by_plane = attended(door, {}, first).plane_diagonal(), half.plane_diagonal()
    for plane in range(len(whole)):
        expected = stopped.plane_diagonal() if plane in slow else whole
        torch.testing.assert_close(by_plane[plane], expected[plane], atol=1e-9, rtol=0)


def test_a_scaled_rotation_keeps_its_factor_when_stopped():
    """YaRN multiplies queries and keys beside turning them; that is no matter of places."""
    door = rs.Door(rope_variants()["yarn"])
    first = door.layers[0]
    stopped = attended(door, knob.p_rope(door, 1.0), first)
    here = attended(door, {}, first)
    torch.testing.assert_close(stopped.diagonal()[..., -1], here.diagonal()[..., -1], atol=1e-6, rtol=0)  # the query's own key


def test_heads_that_are_out_bring_nothing():
    """As if the columns of the output projection that read them were zero."""
    model = tiny("llama")
    door = rs.Door(model)
    with torch.no_grad():
        with knob.controlled(door, knob.heads_out([(0, 1), (0, 3), (1, 0)])):
            shown = model(input_ids=ids(), use_cache=False).logits
        for layer, heads in ((0, (1, 3)), (1, (0,))):
            weight = model.get_submodule(f"model.layers.{layer}.self_attn.o_proj").weight
            for head in heads:
                weight[:, head * 24 : (head + 1) * 24] = 0
        expected = model(input_ids=ids(), use_cache=False).logits
    torch.testing.assert_close(shown, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("family", ["gptj", "falcon"])
def test_all_heads_out_of_older_families(family):
    """Positions no longer matter to the last token: it hears of nobody."""
    door = opened(family)
    out = knob.heads_out((layer, head) for layer, number in knob.heads_of(door).items() for head in range(number))
    other = ids()
    other[:, :-1] = other[:, :-1].flip(-1)
    with torch.no_grad(), knob.controlled(door, out):
        one, two = (door.model(input_ids=each, use_cache=False).logits[:, -1] for each in (ids(), other))
    torch.testing.assert_close(one, two, atol=1e-12, rtol=0)


def test_gains_of_chosen_heads():
    door = opened("llama")
    gains = knob.drop_planes(door, "fast")[0]
    some = attended(door, {0: replace(gains, heads=(1, 2))}, 0).diagonal()
    all_of_them, none = attended(door, {0: gains}, 0).diagonal(), attended(door, {}, 0).diagonal()
    torch.testing.assert_close(some[:, 1:3], all_of_them[:, 1:3], atol=1e-12, rtol=0)
    torch.testing.assert_close(some[:, [0, 3]], none[:, [0, 3]], atol=1e-12, rtol=0)


def test_changes_leave_nothing_behind():
    model = tiny("gemma2")
    implementation = model.config._attn_implementation
    door = rs.Door(model)

    def fail() -> None:
        with knob.controlled(door, knob.drop_planes(door, "fast")):
            model(input_ids=ids(), use_cache=False)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert model.config._attn_implementation == implementation
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert "eager" not in transformers.AttentionInterface._global_mapping
    assert not door_room._hands
    assert not door_room._connected_models


def test_another_model_goes_on_as_it_was():
    one, other = tiny("llama"), tiny("llama", seed=1)
    door = rs.Door(one)
    with torch.no_grad():
        before = other(input_ids=ids(), use_cache=False).logits
        with knob.controlled(door, knob.drop_planes(door, "1-12")):
            rs.Door(other).read(ids(), lambda read: None)
            during = other(input_ids=ids(), use_cache=False).logits
    torch.testing.assert_close(during, before, atol=1e-12, rtol=0)


def test_a_door_opened_meanwhile_finds_the_model_as_it_is():
    model = tiny("llama")
    door = rs.Door(model)
    with knob.controlled(door, knob.p_rope(door, 1.0)):
        inside = rs.Door(model)
        stopped = []
        inside.read(ids(), lambda read: stopped.append(read.factors.diagonal()))
    assert inside.ropes == door.ropes
    torch.testing.assert_close(stopped[0], attended(door, knob.p_rope(door, 1.0), 0).diagonal(), atol=1e-12, rtol=0)


def test_generation_with_a_cache():
    """Gains are the query's alone, so earlier keys may come from a cache; stopped planes need all tokens in one pass."""
    door = opened("llama")
    drop = knob.drop_planes(door, "fast")
    with torch.no_grad(), knob.controlled(door, drop):
        written = door.model.generate(ids(), max_new_tokens=3, do_sample=False)
        again = door.model(input_ids=written[:, :-1], use_cache=False).logits[:, -1].argmax(-1)
    assert torch.equal(again, written[:, -1])
    with pytest.raises(rs.RefusedError, match="use_cache=False"), knob.controlled(door, knob.p_rope(door, 0.5)):
        door.model.generate(ids(), max_new_tokens=3, do_sample=False)


# Our own GPT-J


def own() -> rs.GPTJ:
    torch.manual_seed(0)
    config = rs.GPTJConfig(
        60, layers=2, heads=2, width=32, mlp_width=32, rope=rs.Rope(16, rotary_dim=12, pairing="interleaved")
    )
    return rs.GPTJ(config).double().eval()


def test_our_own_model_one_plane_alone():
    model = own()
    whole = attended(model, {}, 0)
    for plane in range(7):
        alone = attended(model, knob.keep_planes(model, {0: [plane], 1: range(7)}), 0)
        torch.testing.assert_close(alone.diagonal(), whole.plane_diagonal()[plane], atol=1e-12, rtol=0)


def test_our_own_model_is_as_it_was():
    model = own()
    before = model(ids())
    with knob.controlled(model, knob.scale_planes(model, "fast", 1.0)):
        assert torch.equal(model(ids()), before)
    with (
        knob.controlled(model, knob.together(knob.p_rope(model, 0.5), knob.drop_planes(model, "fast"))),
        knob.controlled(model, knob.heads_out([(0, 1)])),
    ):
        assert not torch.equal(model(ids()), before)
        torch.testing.assert_close(run(model, ids()), model(ids())[:, -1], atol=1e-12, rtol=0)
    assert torch.equal(model(ids()), before)
    assert not any("project" in vars(block) for block in model.blocks)
    assert [block.rope for block in model.blocks] == list(model.config.ropes)


def test_our_own_model_and_that_of_transformers_agree(tmp_path):
    """Saved and opened by the door, the same changes give the same logits."""
    torch.manual_seed(0)
    model = rs.GPTJ(rs.GPTJConfig(60, layers=2, heads=2, width=32, mlp_width=32)).double().eval()
    rs.save_gptj(model, tmp_path)
    door = rs.Door(transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64))
    changes = [
        lambda m: knob.scale_planes(m, "fast", 0.3, 1.5),
        lambda m: knob.p_rope(m, 0.5),
        lambda _: knob.heads_out([(1, 0)]),
    ]
    for change in changes:
        with torch.no_grad(), knob.controlled(door, change(door)), knob.controlled(model, change(model)):
            theirs, ours = door.model(input_ids=ids(), use_cache=False).logits, model(ids())
        torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=0)  # their angles are in single precision


# Choosing planes


@pytest.mark.parametrize(
    ("text", "planes"),
    [
        ("1-3,5", [0, 1, 2, 4]),
        ("fast", [0, 1]),
        ("middle", [2, 3]),
        ("slow", [4, 5]),
        ("still", [6]),
        ("2/6, 6/6", [1, 5]),
        ("fastest50%", [0, 1, 2]),
        ("slowest33.3%,1", [0, 4, 5]),
        ("6-99", [5, 6]),
    ],
)
def test_planes_by_name(text, planes):
    assert knob.select_planes(rs.Rope(16, rotary_dim=12), text) == tuple(planes)
    backwards = rs.Rope(16, frequencies=rs.Rope(16, rotary_dim=12).frequencies[::-1])
    if not text[0].isdigit() or "/" in text:  # bands go by frequency, whatever the order of planes
        assert set(knob.select_planes(backwards, text)) == {5 - n if n < 6 else n for n in planes} or "," in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("quick", "planes 'quick' is not understood"),
        ("0-3", "planes count from 1"),
        ("5-3", "is no range"),
        ("3/2", "is not understood"),
        ("fastest101%", "from 0 to 1"),
        ("99", "in no layer of the model, which has at most 7"),
        ("", "is not understood"),
    ],
)
def test_planes_that_are_not_there_are_refused(text, says):
    with pytest.raises(ValueError, match=says):
        knob.drop_planes(own(), text)


@pytest.mark.parametrize(
    ("control", "says"),
    [
        ({5: knob.LayerChange()}, "layer 5 does not attend: the model's attention layers are 0, 1"),
        ({0: knob.LayerChange(gains=(1.0,))}, "gains of layer 0 must be 7 finite numbers"),
        ({0: knob.LayerChange(gains=(float("nan"),) * 7)}, "must be 7 finite numbers"),
        ({0: knob.LayerChange(stopped=(6,))}, "stopped planes of layer 0 must be from 0 to 5"),
        ({0: knob.LayerChange(out=(2,))}, "out of layer 0 must be from 0 to 1"),
        ({0: knob.LayerChange(gains=(1.0,) * 7, heads=(-1,))}, "heads of layer 0 must be from 0 to 1"),
    ],
)
def test_changes_that_cannot_be_are_refused(control, says):
    with pytest.raises(ValueError, match=says), knob.controlled(own(), control):
        pass


def test_changes_as_a_user_writes_them():
    model = own()
    asked = knob.asked_for(model, drop="1", scale="slow=0.5", stop="2", p_rope=1 / 6)
    assert asked[0].gains == (0, 1, 1, 1, 0.5, 0.5, 1)
    assert asked[0].stopped == (1, 5)
    assert knob.asked_for(model, keep="1-6")[0].gains == (1, 1, 1, 1, 1, 1, 0)
    for options, says in (
        ({"scale": "fast"}, "scale must be planes and a number"),
        ({"scale": "fast=nan"}, "scale must be planes and a number"),
        ({"p_rope": float("nan")}, "a share of planes must be from 0 to 1"),
    ):
        with pytest.raises(ValueError, match=says):
            knob.asked_for(model, **options)


def test_changes_together():
    model = own()
    both = knob.together(knob.scale_planes(model, "fast", 0.5), knob.scale_planes(model, "1", 0.5), knob.heads_out([(1, 0)]))
    assert both[0].gains == (0.25, 0.5, 1, 1, 1, 1, 1)
    assert both[1].out == (0,)
    with pytest.raises(ValueError, match="give them for the same"):
        knob.together(both, {0: knob.LayerChange((1.0,) * 7, heads=(1,))})
    with pytest.raises(ValueError, match="a share of planes must be from 0 to 1"):
        knob.p_rope(model, 1.5)
    assert knob.p_rope(model, 0) == {}
    door = opened("llama")
    with (
        pytest.raises(ValueError, match="is controlled already"),
        knob.controlled(door, knob.drop_planes(door, "fast")),
        knob.controlled(door, knob.drop_planes(door, "slow")),
    ):
        pass


# What changes do


def test_random_planes_are_as_many_and_the_same_in_all_layers():
    model = own()
    like = study.random_like(model, knob.together(knob.drop_planes(model, "fast,still"), knob.stop_planes(model, "slow")), 4)
    assert like[0] == like[1]
    assert sorted(like[0].gains[:6]) == [0, 0, 1, 1, 1, 1]
    assert like[0].gains[6] == 0  # what never turns is no plane to deal
    assert len(like[0].stopped) == 2
    assert not {n for n in range(6) if like[0].gains[n] == 0} & set(like[0].stopped)
    draws = [study.random_like(model, knob.drop_planes(model, "fast"), seed)[0].gains for seed in range(20)]
    assert len(set(draws)) > 5


def test_heads_by_kind():
    model = own()
    scores = {"positional": np.array([[0.9, 0.5], [0.1, 0.7]]), "symbolic": np.array([[0.1, 0.55], [1.0, 0.2]])}
    assert study.classes(model, scores) == {"positional": [(0, 0), (1, 1)], "symbolic": [(1, 0)], "mixed": [(0, 1)]}
    assert study.classes(model, scores, 0.25)["positional"] == [(0, 0)]
    assert study.kinds_found(model, scores) == {"positional": 2, "symbolic": 1, "mixed": 1}
    assert set(study.random_heads(model, [(0, 0), (0, 1)], 1)) == {(0, 0), (0, 1)}
    assert {study.random_heads(model, [(1, 0)], seed)[0] for seed in range(20)} == {(1, 0), (1, 1)}
    layers = rs.GPTJ(rs.GPTJConfig(60, layers=3, width=16, mlp_width=16))
    assert {study.random_heads(layers, [(1, 0)], seed)[0] for seed in range(20)} == {(0, 0), (1, 0), (2, 0)}
    (unit,) = study.head_units(layers, {"symbolic": [(0, 0), (1, 0), (2, 0)]}, draws=3, seed=0)
    assert unit.against is None  # all are out: none to compare with


@pytest.mark.parametrize(("task", "names"), [(NumberTask(), "number"), (LetterTask(), "letter")])
def test_fast_planes_are_all_that_the_number_task_hangs_on(task, names):
    """And the letter task on none: it is solved even if no plane turns."""
    model = rs.bundled(names)
    subject = study.TaskSubject(model, task.sample(80, seed=5), probe=16)
    for change, number_solves in (("fast", False), ("slow", True)):
        with knob.controlled(model, knob.drop_planes(model, change)):
            accuracy = subject.measures()["accuracy"]
            scores = subject.scores()
        assert (accuracy > 0.95) == (number_solves or names == "letter")
        assert accuracy > 0.95 or accuracy < 0.3
        if names == "number":  # without fast planes positional heads cannot be
            assert (scores["positional"][1:4] > 0.9).all() == number_solves
    with knob.controlled(model, knob.p_rope(model, 1.0)):
        assert (subject.measures()["accuracy"] > 0.95) == (names == "letter")


def test_pieces_of_a_text():
    ids = np.arange(12, dtype=np.int64)
    assert [piece.tolist() for piece in study.text_pieces(ids, 1, 6)] == [[0, 1, 2, 3, 4, 5], [0, 6, 7, 8, 9, 10]]
    with pytest.raises(ValueError, match="fewer than two tokens"):
        study.text_pieces(ids[:2], 1)


def test_a_study_goes_on_where_it_was(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "study"
    asked = {"drop": "fast", "heads": "positional", "inputs": 40, "draws": 1, "out": folder}
    cli.control("number", **asked)
    summary = json.loads((folder / "summary.json").read_text())
    changes = summary["results"]["changes"]
    assert list(changes) == ["nothing", "drop fast", "positional heads out"]
    assert changes["drop fast"]["measures"]["accuracy"] < 0.3 < changes["drop fast"]["random"]["accuracy"]["least"]
    assert changes["drop fast"]["changed"]["planes"] == list(range(1, 22))
    assert changes["positional heads out"]["changed"]["heads"] == [[1, 0], [2, 0], [3, 0], [4, 0]]
    assert len(changes["nothing"]["positional"]) == 12
    assert "drop fast" in capsys.readouterr().out
    for name in ("effects.png", "scores.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    units = sorted((folder / "units").iterdir())
    assert len(units) == 5
    before = [path.stat().st_mtime_ns for path in units]
    units[3].write_text("{")  # cut short
    monkeypatch.setattr("ropescope.report.control.write_chart", lambda *_: [])  # which takes longest
    cli.control("number", **asked)
    after = [path.stat().st_mtime_ns for path in units]
    assert [a == b for a, b in zip(before, after, strict=True)] == [n != 3 for n in range(5)]
    assert json.loads((folder / "summary.json").read_text())["results"] == summary["results"]


def test_a_folder_of_something_else_is_refused(tmp_path):
    subject = study.TaskSubject(rs.bundled("number"), NumberTask().sample(8, seed=0), probe=4)
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="holds other files but no study"):
        list(study.control(subject, lambda scores: [], {}, tmp_path / "else"))
    assert [row["name"] for row in study.control(subject, lambda scores: [], {}, tmp_path / "new")] == ["nothing"]
    with pytest.raises(ValueError, match="another model or other settings"):
        list(study.control(subject, lambda scores: [], {"seed": 1}, tmp_path / "new"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"drop": "quick"}, "planes 'quick' is not understood"),
        ({"heads": "some"}, "--heads must be positional, symbolic, mixed or all"),
        ({"draws": -1}, "--draws must be at least 0"),
        ({"inputs": 1}, "--inputs must be from 40"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(options, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        cli.control("number", **options, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_language_model():
    """Answers and perplexity are those of the model asked one prompt at a time."""
    loaded = rs.load_model(str(real.folder("smollm2-135m")))
    door = rs.Door(loaded.model)
    prompts = rs.binding_prompts(loaded.tokenizer, 2, 4)
    pieces = study.text_pieces(*text_ids(loaded.tokenizer, PASSAGE[:130]))
    subject = study.TextSubject(door, {"4 pairs": prompts}, pieces, profiled=1)
    as_it_is = subject.measures()
    right, nats = 0, 0.0
    with torch.no_grad():
        for prompt in prompts:
            logits = loaded.model(torch.from_numpy(prompt.ids)[None]).logits[0, -1].double()
            right += int(logits.argmax()) == prompt.answer
            nats += float(logits[prompt.answer] - logits[list(prompt.choices)].logsumexp(0)) / len(prompts)
        loss = loaded.model(pieces[0][None], labels=pieces[0][None]).loss
    assert as_it_is["4 pairs: right"] == right / len(prompts)
    assert as_it_is["4 pairs: log probability"] == pytest.approx(nats, abs=1e-3)
    assert as_it_is["perplexity"] == pytest.approx(float(loss.exp()), rel=1e-3)
    with knob.controlled(door, knob.p_rope(door, 1.0)):
        without = subject.measures()
        scores = subject.scores()
    assert without["perplexity"] > as_it_is["perplexity"]
    assert scores["symbolic"].min() > 0.99  # nothing knows of places
