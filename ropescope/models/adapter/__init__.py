"""The adapter to any rotary model of `transformers`: reading its attention layers, and changing them while it runs.

calls          one call of attention, and the error for models that are refused
single         running a half-precision layer in single precision
wrapped        models that are compiled, wrapped by PEFT or offloaded
rotation       which rotation a layer applies
hooks          observing and editing calls of attention
check          the self-check of a layer
adapter        reading all layers of a model
turned         rotated queries and keys of equal tokens, to check the rotation
planes         choosing planes
windows        what windowed heads still see
cache          a cache that holds less for windowed heads
edits          applying changes
interventions  the changes themselves
"""

from .adapter import TRIAL_TOKENS, Adapter, LayerRead, OnEachLayer, OnLayer, read_each, read_layers
from .calls import ROUNDED, TOLERANCE, RefusedError
from .check import own_weights
from .wrapped import device_of, named_tensors, unwrapped

__all__ = [
    "ROUNDED",
    "TOLERANCE",
    "TRIAL_TOKENS",
    "Adapter",
    "LayerRead",
    "OnEachLayer",
    "OnLayer",
    "RefusedError",
    "device_of",
    "named_tensors",
    "own_weights",
    "read_each",
    "read_layers",
    "unwrapped",
]
