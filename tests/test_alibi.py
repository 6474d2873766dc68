"""BLOOM and MPT, which bias logits by distance instead of rotating: `M` beside their own attention, tokens really moved."""

import pytest
import torch
from transformers import BloomConfig, BloomForCausalLM, FalconConfig, FalconForCausalLM, MptConfig, MptForCausalLM
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

import ropescope as rs
from ropescope.models.adapter.calls import AttentionCall

TOKENS, WIDTH = 20, 48
FAMILIES = ("bloom", "mpt")


def tiny(family, heads=12, dtype=torch.float64, clip=None):
    """A model with every parameter random. With 12 heads slopes are no powers of two."""
    if family == "bloom":
        model = BloomForCausalLM(BloomConfig(vocab_size=64, hidden_size=WIDTH, n_layer=2, n_head=heads))
    else:
        sizes = {"vocab_size": 64, "d_model": WIDTH, "n_layers": 2, "n_heads": heads, "max_seq_len": 64}
        model = MptForCausalLM(MptConfig(**sizes, attn_config={"clip_qkv": clip}))
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.to(dtype).eval()


def reads(adapter, ids):
    found = []
    adapter.read(ids, found.append)
    return found


def biases(family, heads, tokens):
    """The bias of each key as the family's own function makes it, (H, T)."""
    if family == "bloom":
        return build_alibi_tensor(torch.ones(1, tokens), heads, torch.float64)[:, 0]
    return build_mpt_alibi_tensor(heads, tokens)[:, 0].double()


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("heads", [4, 6, 12])
@pytest.mark.parametrize("family", FAMILIES)
def test_m_predicts_attention_after_tokens_have_really_moved(family, heads, clip):
    """The layer itself attends to permuted hidden states; its weights are those of the permuted `M`."""
    model = tiny(family, heads, clip=clip)
    adapter, ids = rs.Adapter(model), torch.randint(64, (2, TOKENS), generator=torch.Generator().manual_seed(1))
    given = {}
    hooks = [
        module.register_forward_pre_hook(lambda module, *call: given.__setitem__(module, call), with_kwargs=True)
        for module in adapter.modules
    ]
    found = reads(adapter, ids)
    for hook in hooks:
        hook.remove()
    order = torch.cat((torch.randperm(TOKENS - 1, generator=torch.Generator().manual_seed(2)), torch.tensor([TOKENS - 1])))
    for module, read in zip(adapter.modules, found, strict=True):
        (states, *args), kwargs = given[module]
        with torch.no_grad():
            weights = module(states[:, order], *args, **kwargs)[1][:, :, -1]
        M = read.factors.matrix()
        assert M.shape == (2, heads, TOKENS, TOKENS)
        torch.testing.assert_close(M[:, :, order, torch.arange(TOKENS)].softmax(-1), weights, atol=3e-7, rtol=0)
        assert not torch.allclose(M[:, :, torch.arange(TOKENS), torch.arange(TOKENS)].softmax(-1), weights, atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_m_is_the_product_of_contents_plus_the_familys_own_bias(family):
    model = tiny(family)
    read = reads(rs.Adapter(model), torch.arange(TOKENS)[None])[0]
    products = read.heads.queries[:, :, -1:] @ read.heads.keys.mT * read.heads.scale  # (1, H, 1, content)
    expected = products.mT + biases(family, 12, TOKENS)[:, None]
    constant = (read.factors.matrix() - expected)[..., :1, :1]  # softmax does not see it
    torch.testing.assert_close(read.factors.matrix(), expected + constant, atol=1e-5, rtol=0)  # slopes are in float32
    torch.testing.assert_close(read.heads.alibi, biases(family, 12, TOKENS).diff(dim=-1).mean(-1), atol=1e-6, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_profiles_are_the_scores_of_m(family):
    model, inputs = tiny(family, 4), [torch.arange(12) % 7, torch.arange(3, 18)]
    scores = rs.profile(model, inputs, sensitivity=False, move_first=True, tolerance=0)
    together = rs.profile(model, inputs, sensitivity=False, move_first=True, tolerance=0, batch=2)
    for number, ids in enumerate(inputs):
        for read in reads(rs.Adapter(model), ids[None]):
            expected = rs.swap_scores(read.factors.matrix())[0][0]
            for found in (scores, together):
                torch.testing.assert_close(
                    torch.tensor(found.positional[number, read.layer].values), expected, atol=1e-6, rtol=0, check_dtype=False
                )
    assert scores.sizes["plane"] == 1


def test_without_contents_the_bias_is_positional():
    model = tiny("mpt", 4)
    for block in model.transformer.blocks:
        block.attn.Wqkv.weight.data[:WIDTH] *= 1e-9
    scores = rs.profile(model, [torch.arange(12)], sensitivity=False, planes=False)
    assert float(scores.positional.min()) > 0.999


@pytest.mark.parametrize("family", FAMILIES)
def test_a_wrong_slope_is_noticed(family, monkeypatch):
    right = AttentionCall.alibi.fget
    monkeypatch.setattr(AttentionCall, "alibi", property(lambda call: right(call) * 1.01))
    with pytest.raises(rs.RefusedError, match="attention weights differ"):
        rs.Adapter(tiny(family))


def test_models_are_left_as_they_were():
    model, ids = tiny("bloom"), torch.arange(TOKENS)[None]
    before = model(ids).logits
    reads(rs.Adapter(model), ids)
    assert all("forward" not in vars(module) for module in model.modules())
    assert torch.equal(model(ids).logits, before)


def test_interventions_are_refused():
    adapter = rs.Adapter(tiny("bloom"))
    with rs.intervene(adapter, rs.remove_heads([(0, 1)])), pytest.raises(rs.RefusedError, match="inside its layer"):
        adapter.model(torch.arange(4)[None])


def test_a_bias_that_is_rounded_is_refused():
    """In bfloat16 BLOOM's bias is rounded, too; MPT's is not."""
    with pytest.raises(rs.RefusedError, match=r"no multiple of the distance between tokens; loaded in float32 it may be"):
        rs.Adapter(tiny("bloom", dtype=torch.bfloat16))
    assert rs.Adapter(tiny("mpt", dtype=torch.bfloat16)).heads == [12, 12]


def test_falcon_with_alibi_is_refused_with_the_reason():
    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    with pytest.raises(rs.RefusedError, match="falcon with alibi rounds its bias by distance to bfloat16"):
        rs.Adapter(FalconForCausalLM(FalconConfig(**sizes, alibi=True)))
    assert rs.Adapter(FalconForCausalLM(FalconConfig(**sizes, alibi=False))).layers == [0]
