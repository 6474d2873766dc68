"""Tiny random models of every decoder family of `transformers` that rotates by position, to check code on all of them.

A family's own default configuration says what it is made of: its rotation, its windows, its kinds of layers. Only sizes shrink,
and one layer of each kind stays. What a configuration does not say by default is in a short table, with the reason.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, PretrainedConfig
from transformers.models.auto.configuration_auto import model_type_to_module_name
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

VOCABULARY = 96
"""Tokens that every tiny model knows."""
WINDOW = 6
"""Keys that a sliding window leaves, where a family has one."""

_ROTATION = re.compile(r"rotary|rotate_|(^|_)rope(_|$)|freqs_cis")
"""What functions and modules that rotate have in their names."""

_SIZES: dict[str, Any] = {
    name: size
    for names, size in (
        ("vocab_size vocab_size_per_layer_input encoder_hash_byte_group_vocab", VOCABULARY),
        ("hidden_size n_embd d_model embedding_size hidden_size_global lru_width backbone_hidden_size dim_model_base", 64),
        ("num_attention_heads n_head n_heads num_heads attention_heads", 4),
        ("num_key_value_heads num_kv_heads kv_n_heads", 2),
        # Not hidden_size / heads, so that nothing passes that mistakes one for the other; a quarter of it is a plane and more.
        ("head_dim kv_channels index_head_dim", 24),
        ("qk_rope_head_dim v_head_dim rotary_dim", 16),
        ("qk_nope_head_dim hidden_size_per_layer_input", 8),
        ("q_lora_rank kv_lora_rank o_lora_rank adapter_rank gated_norm_rank laurel_rank hc_lowrank", 12),
        ("intermediate_size n_inner ffn_dim ffn_hidden_size intermediate_size_mlp dense_intermediate_size", 40),
        ("moe_intermediate_size shared_expert_intermediate_size expert_ffn_hidden_size", 24),
        ("shared_intermediate_size router_hidden_size", 24),
        ("block_multiple_of", 8),
        ("num_experts num_local_experts n_routed_experts moe_num_experts", 4),
        ("num_experts_per_tok num_experts_per_token moe_topk moe_top_k moe_k zero_expert_num", 2),
        ("n_group topk_group num_expert_group n_shared_experts", 1),
        ("first_k_dense_replace num_dense_layers moe_layer_start_index", 1),
        ("mlp_only_layers", [0]),
        ("sliding_window attention_window_size attention_chunk_size keep_window_size index_topk", WINDOW),
        ("local_attention", 2 * WINDOW),
        ("original_max_position_embeddings", 8),
        ("floor_scale index_block_size", 4),
        ("index_topk_blocks", 2),
        ("use_sliding_window use_qk_norm qk_layernorm", True),
        ("linear_num_key_heads linear_num_heads index_n_heads o_groups hc_mult hc_count", 2),
        ("linear_num_value_heads mamba_n_heads n_mamba_heads", 4),
        ("linear_key_head_dim linear_value_head_dim linear_head_dim mamba_d_state mamba_chunk_size chunk_size", 8),
        ("mamba_d_head", 32),
        ("mamba_d_ssm", 128),
        # What keeps logits of order 1; a scale of attention that no head_dim gives, because a family may have any.
        ("logit_scale", 1.0),
        ("attention_multiplier", 0.3),
        ("query_pre_attn_scalar", 20),
        ("pad_token_id", 0),
        # Towers for pictures and sound, which text does not enter.
        ("depth", 1),
        ("image_size patch_size", 8),
        ("mlp_dim out_hidden_size adapter_in_dim adapter_input_size adapter_out_dim output_channels nemo_conv_channels", 64),
        ("ext_pw_out_channel depthwise_separable_out_channel", 64),
        ("max_source_positions num_position_embeddings position_embedding_size", 16),
    )
    for name in names.split()
}
# Set even where the default is to have none: the family can, and then more can go wrong.
_ALWAYS = (
    *("head_dim", "num_key_value_heads", "sliding_window", "use_sliding_window", "use_qk_norm", "qk_layernorm"),
    *("num_experts_per_tok", "n_routed_experts", "n_shared_experts", "first_k_dense_replace", "mlp_only_layers"),
)
_LAYER_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")

_WINDOW_THEN_FULL = ["sliding_attention", "full_attention"]
_GEMMA4_FULL_HEADS = {"global_head_dim": 32}  # full layers have larger heads, 512 unless told
_GRANITE_BASES = {  # all alike by default; 0 is no rotation
    "num_hidden_layers": 3,
    "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    "layer_rope_theta": [0.0, 1e4, 5e5],
}
_QWEN4_INDEXER = {  # no sizes by default
    **{"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 24},
    **{"indexer_budget": 4, "indexer_compress_ratio": 2},
}
_EXTRA: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},  # no layer attends by default
    "blt": {"patching_threshold": 4.0},  # else every byte of a random text is a patch
    "cohere2_moe": {"mlp_layer_types": ["dense", "sparse"]},  # no dense layer by default
    "cohere_compass_text": {  # by default without any, and then it does not start
        "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}, "full_attention": None}
    },
    "dbrx": {"attn_config": {"rope_theta": 1e4, "clip_qkv": 2.0}},  # the code needs both
    "deepseek_v4": {
        "head_dim": 32,  # an eighth of it rotates
        "num_key_value_heads": 1,  # no other is allowed
        "layer_types": ["sliding_attention", "heavily_compressed_attention", "compressed_sparse_attention"],
        "compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 4},  # 4 and 128 would be too long
    },
    "gemma3n_text": {  # the last two layers take keys and values from the first two
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "layer_types": _WINDOW_THEN_FULL * 2,
        "intermediate_size": [40] * 4,
        "activation_sparsity_pattern": [0.95, 0.0] * 2,
    },
    "gemma4": {  # off by default: experts, and full layers whose keys are their values
        "text_config": _GEMMA4_FULL_HEADS
        | {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 24}
        | {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
    },
    "gemma4_text": _GEMMA4_FULL_HEADS  # off by default: layers that take keys and values from earlier ones
    | {"num_hidden_layers": 4, "num_kv_shared_layers": 2, "layer_types": _WINDOW_THEN_FULL * 2},
    "gemma4_assistant": {  # allowed with 0 only
        "text_config": _GEMMA4_FULL_HEADS | {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
    },
    "gemma4_unified": {"text_config": _GEMMA4_FULL_HEADS},
    "gemma4_unified_text": _GEMMA4_FULL_HEADS,
    "gemma4_unified_assistant": {"text_config": _GEMMA4_FULL_HEADS},
    "granite_swa": _GRANITE_BASES,
    "granitemoe_swa": _GRANITE_BASES,
    "granitemoehybrid": {  # by default no layer attends, and none rotates
        "layer_types": ["linear_attention", "full_attention"],
        "position_embedding_type": "rope",
    },
    "helium": {"head_dim": 16},  # must be hidden_size / heads
    "laguna": {"num_attention_heads_per_layer": [4, 6]},  # alike by default
    "lfm2": {"layer_types": ["conv", "full_attention"]},  # no convolution by default
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},  # none at all by default
    "llama4": {"text_config": {"moe_layers": [1]}},  # no dense layer by default
    "llama4_text": {"moe_layers": [1]},
    "mellum": {"mlp_layer_types": ["dense", "sparse"]},  # no dense layer by default
    "minimax_m3_vl_text": {  # all layers alike by default
        "layer_types": ["full_attention", "minimax_m3_sparse"],
        "mlp_layer_types": ["dense", "sparse"],
    },
    "ministral3": {  # as by default but shorter: from the old length on, logits grow with the position
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 8}
        | {"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
    },
    "mllama": {"text_config": {"num_hidden_layers": 3}},  # the second layer looks at pictures alone
    "qwen4_exp": {"text_config": _QWEN4_INDEXER},
    "qwen4_exp_text": _QWEN4_INDEXER,
    "recurrent_gemma": {"num_hidden_layers": 3},  # every third layer attends
    "roformer": {"is_decoder": True},  # sees what comes later by default
    "zamba2": {"use_mem_rope": True},  # does not rotate by default
    "zaya": {"num_experts_per_tok": 1, "layer_types": ["hybrid", "hybrid_sliding"]},  # must be; no window by default
}
# Where attention would be next to one-hot, or uniform: parameters whose name ends so are multiplied.
_MULTIPLIED = {
    **dict.fromkeys(("gemma3n_text", "gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"), ("q_norm.weight", 0.3)),
    "nemotron": ("q_proj.weight", 0.3),
    "zaya": (".temp", 4.0),
}

_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
_ROPE_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("llama", {"rope_type": "default"}),
    "linear": ("llama", {"rope_type": "linear", "factor": 4.0}),
    "dynamic": ("llama", {"rope_type": "dynamic", "factor": 4.0}),
    "yarn": ("llama", _YARN),
    "longrope": (
        "llama",
        {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 8}
        | {"short_factor": [1 + i / 12 for i in range(12)], "long_factor": [1 + i / 3 for i in range(12)]},
    ),
    "llama3": (
        "llama",
        {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32}
        | {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
    ),
    "proportional": ("llama", {"rope_type": "proportional", "partial_rotary_factor": 0.5}),
    # Llama's own code rotates whole heads or fails; these are nearest to a Llama that does not.
    "partial": ("stablelm", {"rope_type": "default", "partial_rotary_factor": 0.5}),
    "partial yarn": ("stablelm", _YARN | {"partial_rotary_factor": 0.5}),
    "partial longrope": (
        "phi3",
        {"rope_type": "longrope", "original_max_position_embeddings": 8, "partial_rotary_factor": 0.5}
        | {"short_factor": [1.0, 1.2, 1.5, 2.0], "long_factor": [1.0, 2.0, 3.0, 4.0]},
    ),
}


@cache
def rotary_families() -> list[str]:
    """The model types, out of all causal language models of `transformers`, whose code rotates by position."""
    return [family for family in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if _rotates(family)]


def tiny(family: str, seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Module:
    """A model of the family, in evaluation mode, all of its parameters random.

    >>> import torch
    >>> from ropescope.studies.conformance.families import VOCABULARY, tiny
    >>> logits = tiny("gemma2")(input_ids=torch.randint(VOCABULARY, (2, 16)), use_cache=False).logits
    >>> logits.shape == (2, 16, VOCABULARY)
    True
    """
    return _built(family, _EXTRA.get(family, {}), seed, dtype)


def rope_variants(seed: int = 0, dtype: torch.dtype = torch.float64) -> dict[str, nn.Module]:
    """Llamas that differ in the kind of rotation alone; what depends on the length of inputs changes at 9 tokens."""
    return {
        name: _built(family, {"rope_parameters": rope | {"rope_theta": 1e4}, "max_position_embeddings": 8}, seed, dtype)
        for name, (family, rope) in _ROPE_VARIANTS.items()
    }


def unbuildable(families: Iterable[str] | None = None, dtype: torch.dtype = torch.float64) -> dict[str, str]:
    """Why a family cannot read plain text here, for those that cannot, out of some or all: every one of them is tried."""
    reasons = {family: _obstacle(family, dtype) for family in (rotary_families() if families is None else families)}
    return {family: reason for family, reason in reasons.items() if reason is not None}


def _obstacle(family: str, dtype: torch.dtype) -> str | None:
    try:
        with torch.inference_mode():
            logits = tiny(family, dtype=dtype)(input_ids=torch.arange(16)[None], use_cache=False).logits
    except Exception as error:  # whatever it is, it is what we are after
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return None if logits.isfinite().all() else "logits are not finite"


def _built(family: str, extra: dict[str, Any], seed: int, dtype: torch.dtype) -> nn.Module:
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # tokens and kernels that these models lack
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            config = _tiny_config(CONFIG_MAPPING[family], extra)
            # The fast way to run experts does not know double precision.
            model: nn.Module = AutoModelForCausalLM.from_config(
                config, dtype=dtype, experts_implementation="eager", trust_remote_code=False
            )
            tables = {id(p) for m in model.modules() if "Sinusoidal" in type(m).__name__ for p in m.parameters()}
            suffix, factor = _MULTIPLIED.get(family, ("", 1.0))
            for name, weight in model.named_parameters():
                if id(weight) in tables:
                    continue
                # A matrix keeps the size of what passes through. Others stand for a factor of about 1 or an offset of about 0:
                # what they are at first says which, and is what no mistake shows up with.
                if weight.ndim < 2 or bool((weight == 1).all()):
                    weight.add_(torch.randn_like(weight), alpha=0.3)
                else:
                    weight.normal_(std=weight.shape[-1] ** -0.5)
                if name.endswith(suffix):
                    weight.mul_(factor)
    finally:
        transformers.logging.set_verbosity(verbosity)
    return model.eval()


@cache
def _rotates(family: str) -> bool:
    folder = Path(transformers.__file__).parent / "models" / model_type_to_module_name(family)
    texts = (file.read_text(encoding="utf-8") for file in folder.glob("modeling_*.py"))
    if any(_calls_rotation(ast.parse(text)) for text in texts if _ROTATION.search(text)):
        return True
    # Models of pictures and text leave the text to a family of its own.
    text_kind = _sub_kind(CONFIG_MAPPING[family], "text_config")
    return text_kind is not None and text_kind.model_type != family and _rotates(text_kind.model_type)


def _calls_rotation(node: ast.AST) -> bool:
    """Whether code calls a rotation, other than from within one: some families define it and never use it."""
    if isinstance(node, ast.FunctionDef) and _ROTATION.search(node.name):
        return False
    if isinstance(node, ast.Call) and _ROTATION.search(getattr(node.func, "id", getattr(node.func, "attr", ""))):
        return True
    return any(_calls_rotation(child) for child in ast.iter_child_nodes(node))


def _sub_kind(kind: type[PretrainedConfig], name: str) -> type[PretrainedConfig] | None:
    """The class of a configuration within a configuration."""
    sub: Any = kind.sub_configs.get(name)
    found: type[PretrainedConfig] | None = sub
    if sub is AutoConfig:
        found = CONFIG_MAPPING[kind.sub_configs_defaults[name].model_type]
    return found


def _tiny_config(kind: type[PretrainedConfig], extra: dict[str, Any]) -> PretrainedConfig:
    text_kind = _sub_kind(kind, "text_config")
    subs: dict[str, Any] = {} if text_kind is None else {"text_config": _tiny_config(text_kind, extra.get("text_config", {}))}
    try:
        default = kind(**subs)
    except StrictDataclassError:  # widths of other parts must be those of the text: here they are large yet
        default = kind()
    for name in kind.sub_configs:
        if name not in subs and (sub := getattr(default, name)) is not None:
            subs[name] = _tiny_config(type(sub), extra.get(name, {}))
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    values = {name: vars(default).get(kind.attribute_map.get(name, name)) for name in names}
    settings = {name: _SIZES[name] for name in names if name in _SIZES and (values[name] or name in _ALWAYS)}
    if values.get("kv_lora_rank"):  # each head has keys of its own, made from few numbers; head_dim means the rotated part
        settings |= {"num_key_value_heads": _SIZES["num_attention_heads"]}
        settings |= {"head_dim": _SIZES["qk_rope_head_dim"]} if "head_dim" in values else {}
    settings |= _tiny_layers(values)
    settings |= {name: value for name, value in extra.items() if name not in subs}
    return kind(**deepcopy(settings), **subs)  # a copy, because configurations complete what they are given


def _tiny_layers(values: dict[str, Any]) -> dict[str, Any]:
    """Settings for one layer of each kind that there is by default, and for at least two."""
    counter = next((name for name in _LAYER_COUNTS if name in values), None)
    if counter is None:
        return {}
    count = values[counter]
    lists = {name: list(value) for name, value in values.items() if isinstance(value, list | tuple)}
    numbers = {name: value for name, value in lists.items() if _are_layer_numbers(name, value)}
    per_layer = {name: value for name, value in lists.items() if len(value) == count and name not in numbers}
    kinds = [
        (*(str(value[i]) for value in per_layer.values()), *(i in value for value in numbers.values())) for i in range(count)
    ]
    keep = sorted({kinds.index(kind) for kind in kinds})
    keep = keep if len(keep) > 1 else [0, 1]
    per_layer = {name: [_SIZES.get(name, value[i]) for i in keep] for name, value in per_layer.items()}
    if set(per_layer.get("layer_types", ())) == {"full_attention"} and "sliding_window" in values:
        per_layer["layer_types"][0] = "sliding_attention"  # possible, and off by default
    numbers = {name: [new for new, old in enumerate(keep) if old in value] for name, value in numbers.items()}
    return {counter: len(keep)} | per_layer | numbers


def _are_layer_numbers(name: str, value: list[Any]) -> bool:
    """Whether a list tells some layers from others by their numbers, rather than something for each."""
    named_so = re.search(r"layers$|idxs$|_ind(ic|ex)es$", name) is not None
    return named_so and bool(value) and all(type(i) is int for i in value) and value == sorted(set(value))
