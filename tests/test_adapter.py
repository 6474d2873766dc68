"""The adapter to models of `transformers`, against moving the inputs of a real layer and running the model itself."""

from itertools import combinations

import numpy as np
import oracle
import pytest
import torch
import transformers
from torch import nn

import ropescope as rs
from ropescope.models.adapter import TRIAL_TOKENS, read_layers
from ropescope.studies.conformance.families import rope_variants, tiny

TOKENS = 12
BLOCKS = [(1, 3), (3, 6), (7, 9)]
FUSED = torch.nn.functional.scaled_dot_product_attention


def attentions(model: nn.Module, layer: int, ids: torch.Tensor, order: list[int]) -> np.ndarray:
    """The model's own weights (H, T) of the last query in one layer, whose input vectors are put in another order."""
    attention = model.get_submodule(f"model.layers.{layer}.self_attn")

    def reorder(_, args, kwargs):
        return args, kwargs | {"hidden_states": kwargs["hidden_states"][:, order]}

    hook = attention.register_forward_pre_hook(reorder, with_kwargs=True)
    with torch.no_grad():
        weights = model(input_ids=ids, use_cache=False, output_attentions=True).attentions[layer]
    hook.remove()
    return weights[0, :, -1].numpy()


def really_swapped(model: nn.Module, layer: int, ids: torch.Tensor, tau: float) -> np.ndarray:
    """(H, [positional, symbolic]) by definition."""
    tokens = ids.shape[1]
    real = attentions(model, layer, ids, list(range(tokens)))
    cosines, differences = [], []
    for one, two in combinations(BLOCKS, 2):
        moved = attentions(model, layer, ids, oracle.swapped_order(one, two, tokens))
        (a, b), (c, d) = one, two
        before = np.stack((real[:, a:b].mean(-1), real[:, c:d].mean(-1)), -1)
        after = np.stack((moved[:, a : a + d - c].mean(-1), moved[:, d - (b - a) : d].mean(-1)), -1)
        cosines.append(np.stack((oracle.cosine(after, before), oracle.cosine(after, before[:, ::-1])), -1))
        differences.append(np.abs(before[:, 0] - before[:, 1]))
    exponent = np.stack(differences) / tau
    alpha = np.exp(exponent - exponent.max(0))
    return (alpha[..., None] * np.stack(cosines)).sum(0) / alpha.sum(0)[:, None]


@pytest.mark.parametrize(
    "family", ["llama", "gemma2", "qwen3", "cohere", "stablelm", "gpt_oss", "deepseek_v3", "smollm3", "hunyuan_v1_dense"]
)
def test_scores_are_those_of_really_moving_tokens(family):
    model = tiny(family)
    model.set_attn_implementation("eager")
    ids = torch.randint(4, 60, (1, TOKENS), generator=torch.Generator().manual_seed(3))
    found = {}

    def on_layer(read):
        window = read.heads.window or TOKENS
        if TOKENS - window <= BLOCKS[0][0]:  # all blocks are seen
            M = rs.block_logits(rs.layer_factors(read.heads), BLOCKS, read.heads.sinks)
            found[read.layer] = np.stack(rs.swap_scores(M, tau=0.1), -1)[0]

    rs.Adapter(model).read(ids, on_layer)
    assert found
    for layer, scores in found.items():
        np.testing.assert_allclose(scores, really_swapped(model, layer, ids, tau=0.1), atol=1e-5)
        assert scores.min() < 0.999  # something really moved


def test_reading_changes_nothing():
    model = tiny("gemma2").train()
    implementation, weights = model.config._attn_implementation, model.state_dict()
    before = {name: value.clone() for name, value in weights.items()}
    ids = torch.randint(4, 60, (2, TOKENS))
    rs.Adapter(model).read(ids, lambda read: None)
    assert model.training
    assert model.config._attn_implementation == implementation
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_failing_reader_leaves_the_model_as_it_was():
    model = tiny("gptj")
    adapter = rs.Adapter(model)

    def fail(_):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        adapter.read(torch.randint(4, 60, (1, TOKENS)), fail)
    assert not any("_attn" in vars(module) for module in model.modules())
    assert torch.nn.functional.scaled_dot_product_attention is FUSED
    assert "eager" not in transformers.AttentionInterface._global_mapping


def test_logits_are_the_models_own():
    model = tiny("llama")
    ids = torch.randint(4, 60, (3, TOKENS))
    logits = rs.Adapter(model).read(ids, lambda read: None)
    torch.testing.assert_close(logits, model(ids, use_cache=False).logits[:, -1].detach(), atol=1e-12, rtol=0)


def test_rope_variants():
    """Scaled rotations are found exactly, at lengths where the scaling matters."""
    ids = torch.randint(4, 60, (1, 48))
    for name, model in rope_variants().items():
        errors = []
        rs.Adapter(model).read(ids, lambda read, errors=errors: errors.append(read.error))
        assert max(errors) < 1e-6, name


def test_queries_before_the_last():
    model, ids = tiny("gemma2"), torch.randint(4, 60, (1, TOKENS))
    model.set_attn_implementation("eager")
    own = model(ids, use_cache=False, output_attentions=True).attentions
    adapter = rs.Adapter(model)
    seen = []

    def on_layer(read):
        weights = rs.attention_weights(read.heads, torch.tensor([8]))[0, :, 0]
        torch.testing.assert_close(weights, own[read.layer][0, :, 8].detach(), atol=1e-6, rtol=0)
        seen.append(read.layer)

    adapter.read(ids, on_layer, query_position=8)
    assert seen == adapter.layers


def test_ours_and_theirs_are_one(tmp_path):
    """Our GPT-J, and the same folder opened by `transformers`."""
    ours = rs.bundled("number")
    rs.save_gptj(ours, tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.randint(0, 136, (2, 17))
    scores = {}
    for name, model in (("ours", ours), ("theirs", theirs)):
        found = scores[name] = []

        def on_layer(read, found=found):
            found.append(torch.stack(rs.swap_scores(rs.layer_logits(read.heads), 1.0)))

        read_layers(model, ids, on_layer)
    torch.testing.assert_close(torch.stack(scores["ours"]), torch.stack(scores["theirs"]), atol=1e-4, rtol=0)


class TestRefused:
    def test_attention_both_ways(self):
        config = transformers.BertConfig(
            vocab_size=60,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=64,
        )
        with pytest.raises(rs.RefusedError, match="attends to later tokens"):
            rs.Adapter(transformers.BertLMHeadModel(config))
        with pytest.raises(rs.RefusedError, match="does not predict next tokens"):
            rs.Adapter(transformers.BertModel(config))

    def test_encoder_decoder(self):
        config = transformers.T5Config(vocab_size=60, d_model=16, num_layers=1, num_heads=2, d_ff=16, d_kv=8)
        with pytest.raises(rs.RefusedError, match="encoder-decoder"):
            rs.Adapter(transformers.T5ForConditionalGeneration(config))

    def test_not_a_model_of_theirs(self):
        with pytest.raises(rs.RefusedError, match="neither a model of transformers nor one of ours"):
            rs.Adapter(nn.Linear(2, 2))

    def test_keys_that_are_not_of_single_tokens(self):
        """A convolution over tokens before the keys."""
        model = tiny("llama")
        attention = model.model.layers[1].self_attn
        project = attention.k_proj.forward
        attention.k_proj.forward = lambda x: project(x + 0.3 * x.roll(1, dims=1))
        with pytest.raises(rs.RefusedError, match=r"layer 1: .*keys are not the rotated"):
            rs.Adapter(model)

    def test_another_rotation(self):
        """Rotation of half of the planes only, against what the table says."""
        model = tiny("llama")
        modelling = type(model.model.layers[0].self_attn).forward.__globals__
        original = modelling["apply_rotary_pos_emb"]

        def odd(q, k, cos, sin, *args, **kwargs):
            planes = cos.shape[-1] // 2
            cos, sin = cos.clone(), sin.clone()
            for start in (0, planes):
                cos[..., start], sin[..., start] = 1.0, 0.0
            return original(q, k, cos, sin, *args, **kwargs)

        modelling["apply_rotary_pos_emb"] = odd
        try:
            with pytest.raises(rs.RefusedError, match="depend on position otherwise than by a rotation we know"):
                rs.Adapter(model)
        finally:
            modelling["apply_rotary_pos_emb"] = original

    def test_a_bias_on_the_logits(self):
        with pytest.raises(rs.RefusedError, match="adds a bias"):
            rs.Adapter(tiny("doge"))


def test_trial_is_long_enough_for_every_plane_to_turn():
    assert 2 * np.pi < TRIAL_TOKENS  # the fastest plane goes round once and more
