"""The rotation that a configuration of `transformers` claims for each of its layers."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..rotations import Claim

Array = NDArray[np.float64]

INTERLEAVED = frozenset(
    [
        *("codegen", "cohere", "cohere2", "cohere2_moe", "deepseek_v2", "ernie4_5", "ernie4_5_moe", "glm", "glm4", "gptj"),
        *("helium", "llama4", "llama4_text"),
    ]
)
"""Families whose code pairs neighbouring dimensions; a configuration does not say so. All others pair halves."""
ONLY_WINDOWS = frozenset(["afmoe", "beam", "cohere2", "cohere2_moe", "exaone4", "exaone_moe", "flint", "kolibri1"])
"""Families in which layers without a sliding window do not rotate, if some have one."""
OLD: dict[str, dict[str, Any]] = {name: {"rope_theta": 1e4} for name in ("codegen", "gptj")}
"""Families whose code has the settings that a configuration lacks."""
BACKWARDS = frozenset(["nanochat"])
"""Families whose code turns the other way."""


def claim_of(config: Any, layer: int, head_dim: int, length: int) -> Claim | None:
    """The rotation that a layer should apply to inputs of some length; None if the configuration does not say.

    config    configuration of `transformers`
    layer     number of the layer
    head_dim  dimensions of its heads
    length    largest position number plus one: dynamic scaling and LongRoPE depend on it

    Raises ValueError if settings of the rotation are not valid.
    """
    text = config.get_text_config()
    family = str(config.model_type)
    kinds = getattr(text, "layer_types", None) or []
    kind = kinds[layer] if layer < len(kinds) else None
    if not _rotates(text, family, layer, kind):
        return Claim(np.zeros(0), scaling="none", factor=None)
    settings = getattr(text, "rope_parameters", None) or OLD.get(family)
    if not isinstance(settings, Mapping):
        return None
    nested = "rope_theta" not in settings and "rope_type" not in settings
    if nested and kind not in settings:
        return None
    mine: Mapping[str, Any] | None = settings[str(kind)] if nested else settings
    if mine is None:
        return Claim(np.zeros(0), scaling="none", factor=None)
    bases = getattr(text, "layer_rope_theta", None)
    mine = dict(mine) | ({"rope_theta": bases[layer]} if bases else {})
    size = _rotary_size(text, head_dim)
    rates, factor = _frequencies(text, mine, size, length)
    if rates is None:
        return None
    others = _others(text, settings if nested else {}, kind, mine, size, length)
    sign = -1.0 if family in BACKWARDS else 1.0
    pairing: Literal["half", "interleaved"] = "interleaved" if family in INTERLEAVED else "half"
    return Claim(
        sign * rates,
        pairing,
        head_dim - 2 * len(rates) if getattr(text, "qk_rope_head_dim", None) and 2 * len(rates) < head_dim else 0,
        factor,
        str(mine.get("rope_type") or "default"),
        _constants(mine),
        {name: sign * each for name, each in others.items()},
    )


def _rotates(text: Any, family: str, layer: int, kind: str | None) -> bool:
    flags = getattr(text, "no_rope_layers", None)
    if flags and layer < len(flags):  # 1 is with rotation, whatever the name
        return bool(flags[layer])
    bases = getattr(text, "layer_rope_theta", None)
    if bases and layer < len(bases):
        return bool(bases[layer])
    if family in ONLY_WINDOWS and getattr(text, "sliding_window", None):
        return kind == "sliding_attention"
    return True


def _rotary_size(text: Any, head_dim: int) -> int:
    """Dimensions that the share of rotating ones is taken of."""
    return int(getattr(text, "qk_rope_head_dim", None) or getattr(text, "rotary_dim", None) or head_dim)


def _frequencies(text: Any, settings: Mapping[str, Any], size: int, length: int) -> tuple[Array | None, float]:
    """Frequencies and factor, by the functions of `transformers`; None for a type that it does not know."""
    import torch  # noqa: PLC0415
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: PLC0415

    kind = str(settings.get("rope_type") or "default")
    base = settings.get("rope_theta")
    if not base:
        return None, 1.0
    if kind == "default":
        turning = int(size * float(settings.get("partial_rotary_factor") or 1.0))
        plain = 1.0 / float(base) ** (torch.arange(0, turning, 2, dtype=torch.float32) / turning)
        return plain.double().numpy(), 1.0
    if kind not in ROPE_INIT_FUNCTIONS:
        return None, 1.0
    alone: Any = SimpleNamespace(  # what these functions read: a whole configuration may have other sizes for other layers
        rope_parameters=dict(settings),
        head_dim=size,
        hidden_size=size,
        num_attention_heads=1,
        max_position_embeddings=getattr(text, "max_position_embeddings", None),
        standardize_rope_params=lambda: None,
    )
    try:
        rates, factor = ROPE_INIT_FUNCTIONS[kind](alone, torch.device("cpu"), seq_len=length)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"rope_parameters of type {kind} are not complete: {error}") from None
    return rates.double().numpy(), float(factor)


def _others(
    text: Any, settings: Mapping[str, Any], kind: str | None, mine: Mapping[str, Any], size: int, length: int
) -> dict[str, Array]:
    """Frequencies of other kinds of layers, and of other lengths, that may be mixed up with those claimed."""
    found: dict[str, Array] = {}
    for name, other in settings.items():
        if name != kind and isinstance(other, Mapping):
            rates, _ = _frequencies(text, other, size, length)
            if rates is not None:
                found[f"of {name} layers (base {other.get('rope_theta'):g}), not of {kind} ones"] = rates
    if mine.get("rope_type") in ("longrope", "dynamic"):
        original = int(mine.get("original_max_position_embeddings") or getattr(text, "max_position_embeddings", 0) or 0)
        for name, other in (("short", 1), ("long", 4 * max(original, length))):
            rates, _ = _frequencies(text, mine, size, other)
            if rates is not None:
                found[f"of {name} inputs, not of this length"] = rates
    return found


def _constants(settings: Mapping[str, Any]) -> dict[str, float]:
    numbers = {name: float(value) for name, value in settings.items() if isinstance(value, int | float)}
    return {"base": numbers.pop("rope_theta", 0.0), **numbers}
