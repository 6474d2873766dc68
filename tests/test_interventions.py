"""Interventions on planes and heads: what is changed is exactly what was asked for, in any family, and nothing else."""

from dataclasses import replace

import pytest
import torch
import transformers

import ropescope as rs
from ropescope.models.adapter import hooks, interventions, read_layers
from ropescope.models.adapter.edits import Changes
from ropescope.models.adapter.planes import chosen_planes, heads_of, select_planes
from ropescope.models.gptj_steps import run
from ropescope.studies.conformance.families import rope_variants, tiny

FAMILIES = ["llama", "cohere", "stablelm", "deepseek_v3", "gptj", "falcon", "gemma2", "gpt_oss", "hunyuan_v1_dense"]
TOKENS = 12


def ids() -> torch.Tensor:
    return torch.randint(4, 60, (2, TOKENS), generator=torch.Generator().manual_seed(3))


def adapted(family: str) -> rs.Adapter:
    return rs.Adapter(tiny(family))


def attended(adapter: rs.Adapter | rs.GPTJ, changes: Changes, layer: int) -> rs.LogitFactors:
    """What the first layer of a changed model attends with; the adapter checks it against the model's own weights."""
    found = {}
    with rs.intervene(adapter, changes):
        read_layers(adapter, ids(), lambda read: found.update({read.layer: read.factors}))
    return found[layer]


@pytest.mark.parametrize("family", FAMILIES)
def test_gains_of_one_change_nothing(family):
    adapter = adapted(family)
    with torch.no_grad():
        before = adapter.model(input_ids=ids(), use_cache=False).logits
        with rs.intervene(adapter, rs.scale_planes(adapter, "fast", 1.0)):
            during = adapter.model(input_ids=ids(), use_cache=False).logits
        after = adapter.model(input_ids=ids(), use_cache=False).logits
    torch.testing.assert_close(during, before, atol=1e-9, rtol=0)
    assert torch.equal(after, before)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_plane_alone_gives_its_own_logits(family):
    """The first layer's input does not depend on attention, so its logits are those that M_f predicts."""
    adapter = adapted(family)
    first = adapter.layers[0]
    whole = attended(adapter, {}, first)
    planes = len(whole.rope.plane_frequencies)
    for plane in (0, planes // 2, planes - 1):
        alone = attended(adapter, {first: rs.keep_planes(adapter, {first: [plane]})[first]}, first)
        expected = whole.only_planes([plane]).diagonal()
        torch.testing.assert_close(alone.diagonal(), expected, atol=1e-9, rtol=0)
        if whole.soft_cap is None:
            torch.testing.assert_close(alone.diagonal(), whole.plane_diagonal()[plane], atol=1e-9, rtol=0)


@pytest.mark.parametrize("family", ["llama", "cohere", "stablelm", "deepseek_v3", "hunyuan_v1_dense"])
def test_weights_are_the_models_own(family):
    """The weights that the changed model itself shows are those of the planes that are kept."""
    adapter = adapted(family)
    adapter.model.set_attn_implementation("eager")
    kept = chosen_planes(adapter, "2/3,still")
    with torch.no_grad(), rs.intervene(adapter, rs.keep_planes(adapter, "2/3, still")):
        shown = adapter.model(input_ids=ids(), use_cache=False, output_attentions=True).attentions[0][:, :, -1]
    first = adapter.layers[0]
    expected = attended(adapter, {}, first).only_planes(kept[first]).diagonal().softmax(-1)
    torch.testing.assert_close(shown.double(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("family", ["llama", "cohere", "stablelm", "deepseek_v3", "gptj"])
def test_p_rope_of_all_planes_is_nope(family):
    adapter, found = adapted(family), {}
    first = adapter.layers[0]
    read_layers(adapter, ids(), lambda read: found.update({read.layer: read.heads}))
    heads = found[first]
    keys = heads.keys.repeat_interleave(heads.queries.shape[1] // heads.keys.shape[1], 1)
    contents = (heads.queries[:, :, -1:] @ keys.mT)[:, :, 0] * heads.scale
    stopped = attended(adapter, rs.p_rope(adapter, 1.0), first)
    torch.testing.assert_close(stopped.diagonal(), contents, atol=1e-9, rtol=0)
    # Then any order of the keys gives the same logits: M has equal columns.
    M = stopped.matrix()
    torch.testing.assert_close(M, M[..., -1:].expand_as(M), atol=1e-9, rtol=0)
    # Of half of them: slow planes give contents, fast ones what they gave.
    half = attended(adapter, rs.p_rope(adapter, 0.5), first)
    slow = select_planes(half.rope, "slowest50%")
    whole, by_plane = attended(adapter, {}, first).plane_diagonal(), half.plane_diagonal()
    for plane in range(len(whole)):
        expected = stopped.plane_diagonal() if plane in slow else whole
        torch.testing.assert_close(by_plane[plane], expected[plane], atol=1e-9, rtol=0)


def test_a_scaled_rotation_keeps_its_factor_when_stopped():
    """YaRN multiplies queries and keys beside turning them; that does not depend on position."""
    adapter = rs.Adapter(rope_variants()["yarn"])
    first = adapter.layers[0]
    stopped = attended(adapter, rs.p_rope(adapter, 1.0), first)
    here = attended(adapter, {}, first)
    torch.testing.assert_close(stopped.diagonal()[..., -1], here.diagonal()[..., -1], atol=1e-6, rtol=0)  # the query's own key


def test_removed_heads_output_zeros():
    """As if the columns of the output projection that read them were zero."""
    model = tiny("llama")
    adapter = rs.Adapter(model)
    with torch.no_grad():
        with rs.intervene(adapter, rs.remove_heads([(0, 1), (0, 3), (1, 0)])):
            shown = model(input_ids=ids(), use_cache=False).logits
        for layer, heads in ((0, (1, 3)), (1, (0,))):
            weight = model.get_submodule(f"model.layers.{layer}.self_attn.o_proj").weight
            for head in heads:
                weight[:, head * 24 : (head + 1) * 24] = 0
        expected = model(input_ids=ids(), use_cache=False).logits
    torch.testing.assert_close(shown, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("family", ["gptj", "falcon"])
def test_all_heads_removed_of_older_families(family):
    """Positions no longer matter to the last token: it attends to nothing."""
    adapter = adapted(family)
    out = rs.remove_heads((layer, head) for layer, number in heads_of(adapter).items() for head in range(number))
    other = ids()
    other[:, :-1] = other[:, :-1].flip(-1)
    with torch.no_grad(), rs.intervene(adapter, out):
        one, two = (adapter.model(input_ids=each, use_cache=False).logits[:, -1] for each in (ids(), other))
    torch.testing.assert_close(one, two, atol=1e-12, rtol=0)


def test_gains_of_chosen_heads():
    adapter = adapted("llama")
    gains = rs.drop_planes(adapter, "fast")[0]
    some = attended(adapter, {0: replace(gains, heads=(1, 2))}, 0).diagonal()
    all_of_them, none = attended(adapter, {0: gains}, 0).diagonal(), attended(adapter, {}, 0).diagonal()
    torch.testing.assert_close(some[:, 1:3], all_of_them[:, 1:3], atol=1e-12, rtol=0)
    torch.testing.assert_close(some[:, [0, 3]], none[:, [0, 3]], atol=1e-12, rtol=0)


def test_changes_leave_nothing_behind():
    model = tiny("gemma2")
    implementation = model.config._attn_implementation
    adapter = rs.Adapter(model)

    def fail() -> None:
        with rs.intervene(adapter, rs.drop_planes(adapter, "fast")):
            model(input_ids=ids(), use_cache=False)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert model.config._attn_implementation == implementation
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert "eager" not in transformers.AttentionInterface._global_mapping
    assert not hooks._edits
    assert not hooks._connected_models


def test_another_model_stays_unchanged():
    one, other = tiny("llama"), tiny("llama", seed=1)
    adapter = rs.Adapter(one)
    with torch.no_grad():
        before = other(input_ids=ids(), use_cache=False).logits
        with rs.intervene(adapter, rs.drop_planes(adapter, "1-12")):
            rs.Adapter(other).read(ids(), lambda read: None)
            during = other(input_ids=ids(), use_cache=False).logits
    torch.testing.assert_close(during, before, atol=1e-12, rtol=0)


def test_an_adapter_made_within_an_intervention_finds_the_unchanged_rotation():
    model = tiny("llama")
    adapter = rs.Adapter(model)
    with rs.intervene(adapter, rs.p_rope(adapter, 1.0)):
        inside = rs.Adapter(model)
        stopped = []
        inside.read(ids(), lambda read: stopped.append(read.factors.diagonal()))
    assert inside.ropes == adapter.ropes
    torch.testing.assert_close(stopped[0], attended(adapter, rs.p_rope(adapter, 1.0), 0).diagonal(), atol=1e-12, rtol=0)


def test_generation_with_a_cache():
    """Gains are the query's alone, so earlier keys may come from a cache; stopped planes need all tokens in one pass."""
    adapter = adapted("llama")
    drop = rs.drop_planes(adapter, "fast")
    with torch.no_grad(), rs.intervene(adapter, drop):
        written = adapter.model.generate(ids(), max_new_tokens=3, do_sample=False)
        again = adapter.model(input_ids=written[:, :-1], use_cache=False).logits[:, -1].argmax(-1)
    assert torch.equal(again, written[:, -1])
    with pytest.raises(rs.RefusedError, match="use_cache=False"), rs.intervene(adapter, rs.p_rope(adapter, 0.5)):
        adapter.model.generate(ids(), max_new_tokens=3, do_sample=False)


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
        alone = attended(model, rs.keep_planes(model, {0: [plane], 1: range(7)}), 0)
        torch.testing.assert_close(alone.diagonal(), whole.plane_diagonal()[plane], atol=1e-12, rtol=0)


def test_our_own_model_is_restored():
    model = own()
    before = model(ids())
    with rs.intervene(model, rs.scale_planes(model, "fast", 1.0)):
        assert torch.equal(model(ids()), before)
    with (
        rs.intervene(model, interventions.combine(rs.p_rope(model, 0.5), rs.drop_planes(model, "fast"))),
        rs.intervene(model, rs.remove_heads([(0, 1)])),
    ):
        assert not torch.equal(model(ids()), before)
        torch.testing.assert_close(run(model, ids()), model(ids())[:, -1], atol=1e-12, rtol=0)
    assert torch.equal(model(ids()), before)
    assert not any("project" in vars(block) for block in model.blocks)
    assert [block.rope for block in model.blocks] == list(model.config.ropes)


def test_our_own_model_and_that_of_transformers_agree(tmp_path):
    """Saved and read through the adapter, the same changes give the same logits."""
    torch.manual_seed(0)
    model = rs.GPTJ(rs.GPTJConfig(60, layers=2, heads=2, width=32, mlp_width=32)).double().eval()
    rs.save_gptj(model, tmp_path)
    adapter = rs.Adapter(transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64))
    changes = [
        lambda m: rs.scale_planes(m, "fast", 0.3, 1.5),
        lambda m: rs.p_rope(m, 0.5),
        lambda _: rs.remove_heads([(1, 0)]),
    ]
    for change in changes:
        with torch.no_grad(), rs.intervene(adapter, change(adapter)), rs.intervene(model, change(model)):
            theirs, ours = adapter.model(input_ids=ids(), use_cache=False).logits, model(ids())
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
    assert select_planes(rs.Rope(16, rotary_dim=12), text) == tuple(planes)
    backwards = rs.Rope(16, frequencies=rs.Rope(16, rotary_dim=12).frequencies[::-1])
    if not text[0].isdigit() or "/" in text:  # bands go by frequency, whatever the order of planes
        assert set(select_planes(backwards, text)) == {5 - n if n < 6 else n for n in planes} or "," in text


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
        rs.drop_planes(own(), text)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({5: rs.LayerChange()}, "layer 5 does not attend: the model's attention layers are 0, 1"),
        ({0: rs.LayerChange(gains=(1.0,))}, "gains of layer 0 must be 7 finite numbers"),
        ({0: rs.LayerChange(gains=(float("nan"),) * 7)}, "must be 7 finite numbers"),
        ({0: rs.LayerChange(stopped=(6,))}, "stopped planes of layer 0 must be from 0 to 5"),
        ({0: rs.LayerChange(out=(2,))}, "out of layer 0 must be from 0 to 1"),
        ({0: rs.LayerChange(gains=(1.0,) * 7, heads=(-1,))}, "heads of layer 0 must be from 0 to 1"),
    ],
)
def test_changes_that_cannot_be_are_refused(changes, says):
    with pytest.raises(ValueError, match=says), rs.intervene(own(), changes):
        pass


def test_changes_as_a_user_writes_them():
    model = own()
    asked = interventions.parse_changes(model, drop="1", scale="slow=0.5", stop="2", p_rope=1 / 6)
    assert asked[0].gains == (0, 1, 1, 1, 0.5, 0.5, 1)
    assert asked[0].stopped == (1, 5)
    assert interventions.parse_changes(model, keep="1-6")[0].gains == (1, 1, 1, 1, 1, 1, 0)
    for options, says in (
        ({"scale": "fast"}, "scale must be planes and a number"),
        ({"scale": "fast=nan"}, "scale must be planes and a number"),
        ({"p_rope": float("nan")}, "a share of planes must be from 0 to 1"),
    ):
        with pytest.raises(ValueError, match=says):
            interventions.parse_changes(model, **options)


def test_combined_changes():
    model = own()
    both = interventions.combine(
        rs.scale_planes(model, "fast", 0.5), rs.scale_planes(model, "1", 0.5), rs.remove_heads([(1, 0)])
    )
    assert both[0].gains == (0.25, 0.5, 1, 1, 1, 1, 1)
    assert both[1].out == (0,)
    with pytest.raises(ValueError, match="give them for the same"):
        interventions.combine(both, {0: rs.LayerChange((1.0,) * 7, heads=(1,))})
    with pytest.raises(ValueError, match="a share of planes must be from 0 to 1"):
        rs.p_rope(model, 1.5)
    assert rs.p_rope(model, 0) == {}
    adapter = adapted("llama")
    with (
        pytest.raises(ValueError, match="is changed already"),
        rs.intervene(adapter, rs.drop_planes(adapter, "fast")),
        rs.intervene(adapter, rs.drop_planes(adapter, "slow")),
    ):
        pass
