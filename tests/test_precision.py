"""Half precision: models in bfloat16 and float16 are read as they are, and rounding does not hide a wrong rotation."""

import math

import numpy as np
import pytest
import torch

import ropescope as rs
from ropescope.studies.conformance.families import tiny

IDS = torch.randint(4, 60, (1, 40), generator=torch.Generator().manual_seed(3))
HALVES = [torch.bfloat16, torch.float16]


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
        assert 2 * unit < read.limit < 1
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


def test_a_wrong_scale_is_refused_in_half_precision(monkeypatch):
    """Attention that is computed with another scale than it was asked for, by less than bfloat16 can tell."""
    model = half("llama", torch.bfloat16)
    adapter = rs.Adapter(model)
    modelling = type(model.model.layers[0].self_attn).forward.__globals__
    original = modelling["eager_attention_forward"]

    def scaled(module, query, key, value, mask, scaling, **kwargs):
        return original(module, query, key, value, mask, scaling=1.003 * scaling, **kwargs)

    monkeypatch.setitem(modelling, "eager_attention_forward", scaled)
    with pytest.raises(rs.RefusedError, match="computed in float32, differs by"):
        adapter.read(IDS, lambda read: None)


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
        assert scores.check_limit.long_name == "largest difference of that kind that rounding explains"
        assert float(scores.check_limit.min()) > (1e-4 if dtype != torch.float32 else 0)
        assert np.isfinite(scores.positional).all()


def test_the_bound_follows_from_precision_and_logits():
    """Rounding every step of attention moves weights by less than the bound, and the bound is not far above what it can do."""
    generator = torch.Generator().manual_seed(0)
    for dtype in HALVES:
        unit, shares = torch.finfo(dtype).eps / 2, []
        for size in (1.0, 3.0):
            q, k = (size * torch.randn(1, 4, 12, 16, generator=generator) for _ in range(2))
            q, k = q.to(dtype), k.to(dtype)
            exact = (q[:, :, -1:].double() @ k.mT.double() / 4).softmax(-1)
            rounded = ((q[:, :, -1:] @ k.mT) * 0.25).softmax(-1)
            sizes = q[:, :, -1].double().norm(dim=-1) * k.double().norm(dim=-1).amax(-1)
            bound = float(exact.max()) * math.expm1(8 * unit * 0.25 * float(sizes.max())) + 2 * unit
            shares.append(float((exact - rounded.double()).abs().max()) / bound)
        assert 0.001 < max(shares) < 1
