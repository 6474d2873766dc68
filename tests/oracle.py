"""The slow, obvious way: really permute the layer's input vectors, really recompute attention, take cosines.

Plain numpy in float64, loops where loops are clearest, nothing shared with the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np


@dataclass
class Layer:
    query_weight: np.ndarray  # (H, d, width)
    key_weight: np.ndarray  # (G, d, width)
    frequencies: list[float]
    pairing: str
    scale: float
    soft_cap: float | None = None
    window: int | None = None
    alibi: np.ndarray | None = None  # (H,)

    def turn(self, vector: np.ndarray, position: int) -> np.ndarray:
        turned = vector.copy()
        planes = len(self.frequencies)
        for f, frequency in enumerate(self.frequencies):
            a, b = (f, planes + f) if self.pairing == "half" else (2 * f, 2 * f + 1)
            c, s = np.cos(position * frequency), np.sin(position * frequency)
            turned[a], turned[b] = c * vector[a] - s * vector[b], s * vector[a] + c * vector[b]
        return turned

    def attention(self, x: np.ndarray, n: int) -> np.ndarray:
        """Weights (H, n + 1) of the query at position n, from the layer's input vectors x (T, width)."""
        heads, groups = len(self.query_weight), len(self.key_weight)
        weights = np.zeros((heads, n + 1))
        for h in range(heads):
            query = self.turn(self.query_weight[h] @ x[n], n)
            logits = np.full(n + 1, -np.inf)
            for j in range(n + 1):
                if self.window is not None and n - j >= self.window:
                    continue
                key = self.turn(self.key_weight[h // (heads // groups)] @ x[j], j)
                logits[j] = self.scale * query @ key
                if self.soft_cap is not None:
                    logits[j] = self.soft_cap * np.tanh(logits[j] / self.soft_cap)
                if self.alibi is not None:
                    logits[j] += self.alibi[h] * (j - n)
            weights[h] = np.exp(logits - logits.max())
            weights[h] /= weights[h].sum()
        return weights


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))


def swapped_order(first: tuple[int, int], second: tuple[int, int], tokens: int) -> list[int]:
    """Which token stands at each position after two blocks change places; what is between them shifts as needed."""
    order = list(range(tokens))
    (a, b), (c, d) = first, second
    return order[:a] + order[c:d] + order[b:c] + order[a:b] + order[d:]


def swap_scores(layer: Layer, x: np.ndarray, n: int, tau: float, blocks: list[tuple[int, int]] | None) -> np.ndarray:
    """(H, [positional, symbolic]) of the query at n."""
    first_seen = 0 if layer.window is None else max(0, n - layer.window + 1)
    blocks = [(p, p + 1) for p in range(first_seen, n)] if blocks is None else sorted(blocks)
    real = layer.attention(x, n)
    cosines, differences = [], []
    for one, two in combinations(blocks, 2):
        moved = layer.attention(x[swapped_order(one, two, len(x))], n)
        (a, b), (c, d) = one, two
        before = np.stack((real[:, a:b].mean(-1), real[:, c:d].mean(-1)), -1)
        after = np.stack((moved[:, a : a + d - c].mean(-1), moved[:, d - (b - a) : d].mean(-1)), -1)
        cosines.append(np.stack((cosine(after, before), cosine(after, before[:, ::-1])), -1))
        differences.append(np.abs(before[:, 0] - before[:, 1]))
    exponent = np.stack(differences) / tau
    alpha = np.exp(exponent - exponent.max(0))
    return (alpha[..., None] * np.stack(cosines)).sum(0) / alpha.sum(0)[:, None]


def random_layer(rng: np.random.Generator, *, heads: int, groups: int, width: int, rope: object, **how: object) -> Layer:
    """Random projections for a head shape given by a Rope; logits of a few units."""
    d = rope.head_dim  # type: ignore[attr-defined]
    return Layer(
        query_weight=rng.normal(size=(heads, d, width)) * 1.5 / np.sqrt(width),
        key_weight=rng.normal(size=(groups, d, width)) * 1.5 / np.sqrt(width),
        frequencies=list(rope.frequencies),  # type: ignore[attr-defined]
        pairing=rope.pairing,  # type: ignore[attr-defined]
        scale=1 / np.sqrt(d),
        **how,  # type: ignore[arg-type]
    )
