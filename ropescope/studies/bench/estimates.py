"""What a profile of a larger model would take, from sizes of models and machines and from what was measured here.

These are estimates: none of these models was run. Sizes of models are those of "The Llama 3 Herd of Models"
(arXiv:2407.21783, table 3); rates of machines are round figures of data sheets, of which a share is reached.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...models.stream import token_bytes

PROMPTS, TOKENS = 50, 135
"""Binding prompts of 24 sentences, as in the recorded profiles."""
EXTRA_PASSES = 4
"""Passes beside those of prompts: two for the self-check, two for details of heads and the playground."""
PYTHON = 0.5e9
"""Bytes that Python and PyTorch take themselves."""
REACHED = 0.4
"""Share of a GPU's peak that a pass over a few thousand tokens reaches."""
BF16 = 2


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama."""

    name: str
    hidden_size: int
    intermediate_size: int
    layers: int
    num_attention_heads: int
    key_heads: int = 8
    head_dim: int = 128
    vocabulary: int = 128_256

    @property
    def layer(self) -> int:
        """Numbers in the matrices and norms of a layer."""
        attention = 2 * self.hidden_size * self.head_dim * (self.num_attention_heads + self.key_heads)
        return attention + 3 * self.hidden_size * self.intermediate_size + 2 * self.hidden_size

    @property
    def embedding(self) -> int:
        """Numbers in the embedding, and as many in the output matrix."""
        return self.vocabulary * self.hidden_size

    @property
    def parameters(self) -> int:
        """All numbers."""
        return self.layers * self.layer + 2 * self.embedding + self.hidden_size


LLAMAS = (
    Shape("Llama 3.1 8B", 4096, 14_336, 32, 32),
    Shape("Llama 3.1 70B", 8192, 28_672, 80, 64),
    Shape("Llama 3.1 405B", 16_384, 53_248, 126, 128),
)


@dataclass(frozen=True)
class Machine:
    """Where a model would run.

    memory  bytes for weights and numbers of a batch, on all devices together
    disk    bytes per second that its disk gives
    flops   operations per second; None: those measured here on one core, times `cores`
    spread  whether weights are spread over devices and stay there (`device_map`) instead of being streamed
    """

    name: str
    memory: float
    disk: float
    flops: float | None = None
    cores: int = 1
    spread: bool = False


MACHINES = (
    Machine("laptop: 8 cores, `memory` 8GB, disk 2 GB/s", 8e9, 2e9, cores=8),
    Machine("one GPU: 24 GB, 165 TFLOP/s, `memory` 20GB, disk 5 GB/s", 20e9, 5e9, 165e12 * REACHED),
    Machine("eight GPUs: 80 GB and 989 TFLOP/s each, disk 5 GB/s", 8 * 75e9, 5e9, 989e12 * REACHED, spread=True),
)
"""Layers run one after another, so of eight GPUs one works at a time."""


@dataclass(frozen=True)
class Measured:
    """What was measured here.

    scored    time of a scored pass, over that of a plain one
    flops     operations per second of a plain pass on one core: two for each number and token
    handling  bytes of weights per second that are read from files in memory, checked and converted
    """

    scored: float
    flops: float
    handling: float


def measured(profile: Mapping[str, Any], parameters: int, streamed: Mapping[str, Any]) -> Measured:
    """The measured rates, from the row of a profile's benchmark, its model's parameters, and a benchmark of memory."""
    rate = 2 * parameters * profile["tokens"] / profile["seconds"]["plain"]
    longer = streamed["streamed"]["seconds"] - streamed["batch"]["seconds"]
    return Measured(profile["scored_over_plain"], rate, streamed["streamed"]["read_bytes"] / max(longer, 1e-9))


def estimate(shape: Shape, machine: Machine, found: Measured) -> dict[str, float]:
    """Estimated bytes of weights and of memory, batches, bytes read and seconds of a profile in bfloat16.

    A model that fits is read once. Of one that does not, all layers and the output matrix are read in every pass, as `memory`
    does, or on spread machines those for which no place is left. The largest of them needs a place while it runs. As many
    prompts as fit beside it are one batch.
    """
    weights, each = BF16 * shape.parameters, TOKENS * token_bytes(vars(shape), BF16, TOKENS)
    part, fits = BF16 * max(shape.layer, shape.embedding), weights + each <= machine.memory
    room = machine.memory - (weights if fits else part)
    if room < each:
        return {"weights": weights, "memory": part + each + PYTHON, "batches": 0, "read": math.inf, "seconds": math.inf}
    batches = math.ceil(PROMPTS * each / room)
    numbers = math.ceil(PROMPTS / batches) * each
    stays = weights if fits else machine.memory - part - numbers if machine.spread else BF16 * shape.embedding
    read = weights + (batches + EXTRA_PASSES - 1) * (weights - stays)
    operations = 2 * (shape.parameters - shape.embedding) * PROMPTS * TOKENS * found.scored
    return {
        "weights": weights,
        "memory": numbers + PYTHON + (weights if fits else machine.memory - numbers if machine.spread else part),
        "batches": batches,
        "read": read,
        "seconds": read / machine.disk + read / found.handling + operations / (machine.flops or found.flops * machine.cores),
    }
