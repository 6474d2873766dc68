"""Published weights to ordinary folders of `transformers`, in float32: GGUF files, and checkpoints of llama2.c."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import IO

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
