"""Half precision: models in bfloat16 and float16 are read as they are, and rounding does not hide a wrong rotation."""

from contextlib import contextmanager
from itertools import product

import numpy as np
import pytest
import real
import torch

import ropescope as rs
from ropescope.models.adapter import rounding
from ropescope.models.adapter.calls import AttentionCall
from ropescope.models.adapter.rounding import output_bounds, weight_bounds
from ropescope.studies.conformance.families import tiny
from ropescope.weights import with_sinks

IDS = torch.randint(4, 60, (1, 40), generator=torch.Generator().manual_seed(3))
HALVES = [torch.bfloat16, torch.float16]
SEEN = {torch.bfloat16: 1.02, torch.float16: 1.002}
"""Wrong factors of the scale that cannot be rounding in that precision."""


def half(family: str, dtype: torch.dtype) -> torch.nn.Module:
    return tiny(family, dtype=torch.float32).to(dtype)


def rotated_otherwise(model, monkeypatch, factor):
    """Keys of the model turn by other angles than its queries and its table."""
    modelling = type(model.model.layers[0].self_attn).forward.__globals__
    original = modelling["apply_rotary_pos_emb"]

    def odd(q, k, cos, sin, *args, **kwargs):
        angles = torch.atan2(sin.float(), cos.float()) * factor
        return original(q, k, cos, sin, *args, **kwargs)[0], original(q, k, angles.cos().to(q), angles.sin().to(q))[1]

    monkeypatch.setitem(modelling, "apply_rotary_pos_emb", odd)


@pytest.mark.parametrize("family", ["llama", "gemma2", "qwen3", "gpt_oss", "falcon", "gptj", "deepseek_v3", "mixtral"])
@pytest.mark.parametrize("dtype", HALVES)
def test_a_half_precision_model_is_read(family, dtype):
    adapter = rs.Adapter(half(family, dtype))
    assert max(adapter.errors) < 1e-5  # in single precision
    reads = []
    adapter.read(IDS, reads.append)
    assert len(reads) == len(adapter.layers)
    unit = torch.finfo(dtype).eps / 2
    for read in reads:
        assert read.error <= read.limit
        assert 0 < read.limit < 20 * unit
        assert read.heads.queries.dtype == torch.float64


def test_queries_and_keys_are_those_that_the_model_made(monkeypatch):
    """`M`'s diagonal is the product of the model's own rotated vectors, exactly."""
    model = half("llama", torch.bfloat16)
    modelling = type(model.model.layers[0].self_attn).forward.__globals__
    original, made = modelling["apply_rotary_pos_emb"], []

    def noting(*args, **kwargs):
        made.append(original(*args, **kwargs))
        return made[-1]

    adapter = rs.Adapter(model)
    monkeypatch.setitem(modelling, "apply_rotary_pos_emb", noting)
    reads = []
    adapter.read(IDS, reads.append)
    assert len(made) == len(reads)
    for (query, key), read in zip(made, reads, strict=True):
        assert query.dtype == torch.bfloat16
        keys = key.double().repeat_interleave(query.shape[1] // key.shape[1], 1)
        logits = (query[:, :, -1:].double() @ keys.mT)[:, :, 0] * read.heads.scale
        torch.testing.assert_close(read.factors.diagonal(), logits, atol=1e-12, rtol=0)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("factor", [0.5, -1.0, 1.001])
def test_a_wrong_rotation_is_refused_in_half_precision(monkeypatch, dtype, factor):
    """Also one that is off by less than the precision: 14 tokens turn the fastest plane by 13 thousandths too much."""
    model = half("llama", dtype)
    rs.Adapter(model)
    rotated_otherwise(model, monkeypatch, factor)
    with pytest.raises(rs.RefusedError, match=r"layer 0 .*(depend on position otherwise|otherwise than M predicts)"):
        rs.Adapter(model)


def test_a_norm_after_the_rotation_needs_single_precision():
    """Cosines and sines in half precision change the size of keys from place to place, and the norm spreads that."""
    rs.Adapter(tiny("hunyuan_v1_dense", dtype=torch.float32))
    with pytest.raises(rs.RefusedError, match="loaded in float32 it may be readable"):
        rs.Adapter(half("hunyuan_v1_dense", torch.bfloat16))


@contextmanager
def scaled_otherwise(model, factor, precisions):
    """Within it, attention is computed with another scale than it was asked for."""
    modelling = type(model.model.layers[0].self_attn).forward.__globals__
    original = modelling["eager_attention_forward"]

    def scaled(module, query, key, value, mask, scaling, **kwargs):
        other = factor if query.dtype in precisions else 1.0
        return original(module, query, key, value, mask, scaling=other * scaling, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(modelling, "eager_attention_forward", scaled)
        yield


@pytest.mark.parametrize("dtype", HALVES)
def test_a_wrong_scale_is_refused_in_half_precision(dtype):
    """In float32, from the same queries and keys, if it is off by less than half precision can tell; else in any case."""
    model = half("llama", dtype)
    adapter = rs.Adapter(model)
    adapter.read(IDS, lambda read: None)
    both = torch.float32, dtype
    with scaled_otherwise(model, 1.001, both), pytest.raises(rs.RefusedError, match="computed in float32, differs by"):
        adapter.read(IDS, lambda read: None)
    with scaled_otherwise(model, SEEN[dtype], both[1:]), pytest.raises(rs.RefusedError, match=r"more than the .* of rounding"):
        adapter.read(IDS, lambda read: None)


@pytest.mark.weights
@pytest.mark.parametrize("dtype", HALVES)
def test_rounding_and_errors_of_a_trained_model_are_told_apart(monkeypatch, dtype):
    """SmolLM2: a bound that says something, and refusals of a wrong scale and of keys that turn a thousandth too fast."""
    loaded = rs.load_model(str(real.folder("smollm2-135m")), str(dtype).removeprefix("torch."))
    ids, model, reads = torch.from_numpy(rs.binding_prompts(loaded.tokenizer, 1, 8)[0].ids)[None], loaded.model, []
    adapter = rs.Adapter(model)
    assert max(adapter.errors) < 1e-6  # layers in float32
    adapter.read(ids, reads.append)
    unit = torch.finfo(dtype).eps / 2
    assert max(read.limit for read in reads) < 20 * unit
    assert 0.1 < max(read.error / read.limit for read in reads) <= 1
    both = torch.float32, dtype
    with scaled_otherwise(model, 1.0005, both), pytest.raises(rs.RefusedError, match="computed in float32, differs by"):
        adapter.read(ids, lambda read: None)
    with scaled_otherwise(model, SEEN[dtype], both[1:]), pytest.raises(rs.RefusedError, match=r"more than the .* of rounding"):
        adapter.read(ids, lambda read: None)
    rotated_otherwise(model, monkeypatch, 1.001)
    with pytest.raises(rs.RefusedError, match=r"layer 0 .*depend on position otherwise"):
        rs.Adapter(model)


def test_a_layer_that_is_not_itself_in_single_precision_is_refused(monkeypatch):
    model = half("llama", torch.bfloat16)
    attention = model.model.layers[1].self_attn
    project = attention.k_proj.forward
    monkeypatch.setattr(attention.k_proj, "forward", lambda x: project(x) * (1.2 if x.dtype == torch.float32 else 1.0))
    with pytest.raises(
        rs.RefusedError, match=r"layer 1: its keys in bfloat16 differ by .*; loaded in float32 it may be readable"
    ):
        rs.Adapter(model)


def test_the_bound_is_in_the_result():
    prompts = [IDS[0, :20]]
    for dtype in (torch.float32, *HALVES):
        scores = rs.profile(tiny("llama", dtype=torch.float32).to(dtype), prompts, planes=False, sensitivity=False)
        assert (scores.check_error <= scores.check_limit).all()
        assert scores.check_limit.long_name == "difference that rounding explains there"
        assert 0 < float(scores.check_limit.min()) <= float(scores.check_limit.max()) < 0.02
        assert np.isfinite(scores.positional).all()


def made_call(query, key, dtype, **options):
    """A call of attention by queries and keys in half precision, whose own attention is that of most families."""
    query, key = query.to(dtype), key.to(dtype)
    value = torch.eye(key.shape[-2]).expand(*key.shape[:2], -1, -1).to(dtype)

    def own(at, rows, other):
        q, k, v = (x.to(other or dtype) for x in (query[:, :, at : at + 1], key[:, :, : at + 1], value[:, :, : at + 1]))
        logits = (q @ k.mT) * options["scaling"]
        if (cap := options.get("softcap")) is not None:
            logits = torch.tanh(logits / cap) * cap
        if (sinks := options.get("s_aux")) is not None:
            logits = torch.cat((logits, sinks.to(logits)[None, :, None, None].expand(*logits.shape[:-1], 1)), -1)
            logits = logits - logits.amax(-1, keepdim=True)
        weights = logits.softmax(-1, dtype=torch.float32).to(q.dtype)[..., : at + 1]
        return (weights @ v)[:, :, 0], weights[:, :, 0]

    return AttentionCall(torch.nn.Identity(), query, key, value, None, options, own=own)


@pytest.mark.parametrize("options", [{}, {"softcap": 5.0}, {"s_aux": torch.tensor([1.0, -2.0, 3.0, 0.5])}], ids=str)
@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64])
def test_rounding_keeps_its_bound_and_comes_near_it(dtype, options):
    generator, shares = torch.Generator().manual_seed(0), []
    for size in (0.3, 1.0, 2.0, 4.0) * 5:
        query, key = (size * torch.randn(2, 4, 12, 16, generator=generator) for _ in "qk")
        call = made_call(query, key, dtype, scaling=0.3, **options)
        logits = 0.3 * (call.query[:, :, -1:].double() @ call.key.double().mT)[:, :, 0]
        logits = logits if call.soft_cap is None else call.soft_cap * torch.tanh(logits / call.soft_cap)
        exact = with_sinks(logits, call.sinks)
        bounds = weight_bounds(call, 11, exact, dtype)
        difference = (exact - call.own(11, slice(None), None)[1].double()).abs()
        assert (difference <= bounds).all()
        assert (bounds <= 1 + 1e-2).all()
        shares.append(float((difference / bounds).max()))
        outputs = output_bounds(bounds, exact, call.value.double(), dtype)
        assert (bounds <= outputs).all()  # values are the unit vectors
        assert (outputs < 3 * bounds + 1e-12).all()
    assert (0.2 if dtype in HALVES else 0.02) < max(shares) < 1


def test_double_precision_with_very_large_logits_is_read():
    """Softmax rounds logits to float32: with logits of thousands, from biases as Qwen 2.5 has them, by more than 1e-5."""
    model = tiny("qwen2", dtype=torch.float64)
    for layer in model.model.layers:
        for part in (layer.self_attn.q_proj, layer.self_attn.k_proj):
            size = layer.self_attn.head_dim
            part.bias.data.view(-1, size)[:, size // 2 - 1] = 200  # in the slowest plane, the same for all keys
    reads = []
    rs.Adapter(model).read(IDS, reads.append)
    assert min(read.factors.diagonal().abs().max() for read in reads) > 1000
    assert 1e-5 < max(read.error for read in reads) < 1e-3
    assert all(read.error <= read.limit for read in reads)


def test_the_bound_is_the_worst_that_errors_of_logits_can_do():
    """All ways to have each logit too large or too small by its error, for four keys."""
    generator = torch.Generator().manual_seed(1)
    query, key = (2 * torch.randn(1, 3, 4, 8, generator=generator) for _ in "qk")
    call = made_call(query, key, torch.bfloat16, scaling=0.5)
    logits = 0.5 * (call.query[:, :, -1:].double() @ call.key.double().mT)[:, :, 0]
    exact, unit = logits.softmax(-1), torch.finfo(torch.bfloat16).eps / 2
    errors = rounding._logit_errors(call, 3, torch.float64, unit, fused=False)
    assert (errors > 2 * unit * logits.abs()).all()
    moved = [logits + errors * torch.tensor(signs) for signs in product((-1.0, 1.0), repeat=4)]
    worst = torch.stack([(each.softmax(-1) - exact).abs() for each in moved]).amax(0)
    most = torch.stack([each.softmax(-1) for each in moved]).amax(0)
    bounds = weight_bounds(call, 3, exact, torch.bfloat16)
    torch.testing.assert_close(bounds, worst + unit * most, atol=1e-5, rtol=0)
