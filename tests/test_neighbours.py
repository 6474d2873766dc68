"""Models as other libraries wrap them, and dumped arrays: the same scores as of the plain model."""

import numpy as np
import pytest
import torch
from real import folder
from transformers import LlamaConfig, LlamaForCausalLM

import ropescope as rs

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
ONLY_SCORES = {"planes": False, "sensitivity": False}


@pytest.fixture(scope="module")
def plain():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2)).eval()


@pytest.fixture(scope="module")
def ids():
    return torch.randint(64, (14,), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def expected(plain, ids):
    return rs.profile(plain, [ids], **ONLY_SCORES)


@pytest.fixture(scope="module")
def bridged():
    """A TransformerLens bridge of a language model, and scores of the model without it."""
    from transformer_lens.model_bridge import TransformerBridge  # noqa: PLC0415

    loaded, ids = rs.load_model(str(folder("stories15M"))), torch.arange(5, 19)
    expected = rs.profile(loaded.model, [ids], **ONLY_SCORES)
    bridge = TransformerBridge.boot_transformers(str(folder("stories15M")), hf_model=loaded.model, tokenizer=loaded.tokenizer)
    return bridge, ids, expected


@pytest.mark.weights
@pytest.mark.filterwarnings("ignore")
def test_a_transformer_lens_bridge_and_the_model_inside_it(bridged):
    bridge, ids, expected = bridged
    before = bridge(ids[None])
    for model in (bridge, bridge.original_model):
        found = rs.profile(model, [ids], **ONLY_SCORES)
        np.testing.assert_allclose(found.positional, expected.positional, atol=1e-5)
        np.testing.assert_allclose(found.symbolic, expected.symbolic, atol=1e-5)
    assert torch.equal(bridge(ids[None]), before)


@pytest.mark.weights
@pytest.mark.filterwarnings("ignore")
def test_a_bridge_that_computes_something_else_is_refused(bridged):
    bridge, ids, _ = bridged
    hook = bridge.original_model.model.layers[0].self_attn.register_forward_hook(lambda _, given, out: (out[0] * 3, *out[1:]))
    try:
        with pytest.raises(rs.RefusedError, match="computes other logits"):
            rs.profile(bridge, [ids], **ONLY_SCORES)
    finally:
        hook.remove()


@pytest.mark.slow  # loading nnsight
@pytest.mark.filterwarnings("ignore")
def test_a_model_of_nnsight(plain, ids, expected):
    from nnsight import NNsight  # noqa: PLC0415

    found = rs.profile(NNsight(plain), [ids], **ONLY_SCORES)
    np.testing.assert_array_equal(found.positional, expected.positional)


@pytest.mark.parametrize("rotated", [False, True])
def test_dumped_arrays_give_the_logits_of_the_layer(plain, ids, rotated):
    """Arrays of one layer, before or after the rotation, give the `M` that the adapter reads from the model."""
    reads, positions = [], torch.arange(len(ids))
    rs.Adapter(plain).read(ids[None], reads.append)
    for read in reads:
        heads, rope = read.heads, read.heads.rope
        both = (heads.queries.double(), heads.keys.double())
        arrays = [(rope.rotate(x, positions) if rotated else x)[0].numpy() for x in both]
        found = rs.Heads.from_arrays(*arrays, rope, rotated=rotated)
        torch.testing.assert_close(rs.layer_logits(found), read.factors.matrix(), atol=1e-5, rtol=0)


def test_arrays_that_do_not_fit_are_named():
    rope, rng = rs.Rope(head_dim=8), np.random.default_rng(0)
    queries, keys = rng.normal(size=(4, 6, 8)), rng.normal(size=(2, 6, 8))
    for wrong, says in (
        ((queries[..., :6], keys), "queries must be .* with 8 dimensions"),
        ((queries, keys[:, :5]), "queries not of more tokens"),
        ((queries[:3], keys), "cannot share evenly"),
        ((queries, keys * np.inf), "keys must be finite"),
    ):
        with pytest.raises(ValueError, match=says):
            rs.Heads.from_arrays(*wrong, rope, rotated=True)
