"""What must hold of every head, measured on random ones: the worst case is recorded, so that a page can show it."""

from __future__ import annotations

import math
from itertools import combinations, permutations
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from ...logits import counterfactual_logits
from ...measures.scores import swap_scores
from ...measures.shares import exclusion, variance_shares
from ...rope import Rope

TOKENS = 7
BLOCKS = ((0, 1), (1, 4), (4, 6))
TAUS = (1e-4, 1e-2, 1.0)
SIZES = (0.1, 1.0, 5.0)
"""Of keys: logits from next to nothing to tens."""
CLAMP = 1e-8
"""Below this, the released code of paper B takes every norm for this."""
OWN_LEAD = (20.0, 25.0)
"""By how much the query's own logit leads in heads whose attention is peaked on it."""
IDS = (1, 2, 10, 37, 42)

Head = tuple[Tensor, Tensor, Rope]


def identities(seed: int, heads: int = 100) -> dict[str, Any]:
    """Worst cases over `heads` random heads of each kind."""
    rng = np.random.default_rng(seed)
    general = [random_head(rng) for _ in range(heads)]
    still = [random_head(rng, turning=False) for _ in range(heads)]
    alike = [random_head(rng, alike=True) for _ in range(heads)]
    return {
        "heads_of_each_kind": heads,
        "tokens": TOKENS,
        "planes_add_up_error": max(planes_error(*head) for head in general),
        "exclusion": exclusion_principle([*general, *still, *alike]),
        "no_positions": pure(still, "symbolic", "symbol"),
        "equal_keys": pure(alike, "positional", "position"),
        "shares_sum_error": max(abs(float(sum(variance_shares(counterfactual_logits(*head)))) - 1) for head in general),
        "really_swapped": {
            "tokens": max(swap_error(head, None) for head in general),
            "blocks": max(swap_error(head, BLOCKS) for head in general),
        },
        "released_code": released_code(rng, heads),
        "frequency_of_id": dict(zip(map(str, IDS), (Rope(head_dim=128).frequencies[n - 1] for n in IDS), strict=True)),
    }


def random_head(rng: np.random.Generator, turning: bool = True, alike: bool = False) -> Head:
    """Query, keys and rotation of three planes and two still dimensions; without turning or with equal keys if asked."""
    angles = rng.uniform(0.05, 3, 3) if turning else np.zeros(3)
    rope = Rope(8, pairing="half" if rng.random() < 0.5 else "interleaved", frequencies=angles.tolist())
    keys = rng.normal(size=(1 if alike else TOKENS, 8)) * rng.choice(SIZES)
    return torch.tensor(rng.normal(size=8)), torch.tensor(keys).expand(TOKENS, 8), rope


def planes_error(query: Tensor, keys: Tensor, rope: Rope) -> float:
    """How far the sum of the planes' matrices is from `M`, relative to its largest entry."""
    M = counterfactual_logits(query, keys, rope)
    planes = counterfactual_logits(query, keys, rope, by_plane=True)
    return float((planes.sum(0) - M).abs().max() / M.abs().max())


def exclusion_principle(heads: list[Head]) -> dict[str, Any]:
    """Theorem 1 of paper A: that it holds, that its bound is the sum over permutations, and that it is reached."""
    slack, off = [], []
    for head in heads:
        M = counterfactual_logits(*head)
        found = exclusion(M)
        variance, bound = float(found.variance), float(found.bound)
        slack.append((bound - variance) / bound)
        summed = bound_by_permutations(M[:-1, :-1].numpy())
        off.append(abs(bound - summed) / summed)
    real = torch.linspace(-2, 2, TOKENS - 1, dtype=torch.float64)
    halfway = torch.zeros(TOKENS, TOKENS, dtype=torch.float64)
    halfway[:-1, :-1] = (real[:, None] + real) / 2
    reached = exclusion(halfway)
    return {
        "cases": len(heads),
        "violations": int(sum(value < -1e-12 for value in slack)),
        "smallest_slack": min(slack),
        "permutations_error": max(off),
        "reached_error": abs(float(reached.bound / reached.variance) - 1),
    }


def bound_by_permutations(M: Float64[np.ndarray, "m m"]) -> float:
    """The right side of theorem 1 as it is written: distances from both behaviours over all permutations of the keys."""
    places, real = np.arange(len(M)), M.diagonal()
    orders = np.array(list(permutations(places)))
    moved = M[orders, places]
    return float((((moved - real) ** 2).sum() + ((moved - real[orders]) ** 2).sum()) / orders.size)


def pure(heads: list[Head], score: str, share: str) -> dict[str, float]:
    """The smallest score and share of variance over heads that must have 1 of both."""
    matrices = [counterfactual_logits(*head) for head in heads]
    scores = [float(value) for M in matrices for value in getattr(swap_scores(M, TAUS), score)]
    shares = [float(getattr(variance_shares(M), share)) for M in matrices]
    return {"smallest_score": min(scores), "smallest_share": min(shares)}


def swap_error(head: Head, blocks: tuple[tuple[int, int], ...] | None) -> float:
    """The largest difference between scores read off `M` and those of keys really moved and attention taken anew."""
    query, keys, rope = head
    matrix = counterfactual_logits(query, keys, rope)
    read = np.array([[float(x) for x in part] for part in swap_scores(matrix, TAUS, blocks)])
    return float(np.abs(read - moved_scores(query, keys, rope, blocks)).max())


def moved_scores(
    query: Tensor, keys: Tensor, rope: Rope, blocks: tuple[tuple[int, int], ...] | None = None, clamp: float = 0.0
) -> Float64[np.ndarray, "2 3"]:
    """Positional and symbolic score at each temperature by the definition: move, turn, softmax, cosines of weights.

    With `clamp`, norms below it count as it, as in the released code.
    """
    last = TOKENS - 1
    blocks = blocks or tuple((n, n + 1) for n in range(last))
    turned = rope.rotate(query, last)

    def weights(order: list[int]) -> Float64[np.ndarray, " T"]:
        logits = rope.rotate(keys[order], torch.arange(TOKENS)) @ turned / math.sqrt(rope.head_dim)
        found: np.ndarray = logits.softmax(-1).numpy()
        return found

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / (max(float(np.linalg.norm(a)), clamp) * max(float(np.linalg.norm(b)), clamp)))

    order = list(range(TOKENS))
    real, cosines, differences = weights(order), [], []
    for (a, b), (c, d) in combinations(blocks, 2):
        moved = weights(order[:a] + order[c:d] + order[b:c] + order[a:b] + order[d:])
        before = np.array([real[a:b].mean(), real[c:d].mean()])
        after = np.array([moved[a : a + d - c].mean(), moved[d - b + a : d].mean()])
        cosines.append((cosine(after, before), cosine(after, before[::-1])))
        differences.append(abs(before[0] - before[1]))
    exponents = np.array(differences) / np.array(TAUS)[:, None]
    alpha = np.exp(exponents - exponents.max(1, keepdims=True))
    scores: np.ndarray = np.array(cosines).T @ (alpha / alpha.sum(1, keepdims=True)).T
    return scores


def released_code(rng: np.random.Generator, heads: int) -> dict[str, Any]:
    """How far a clamp on norms moves scores of heads that look at the query itself; ours against the definition beside it."""
    clamped, ours = [], []
    for _ in range(heads):
        query, keys, rope = random_head(rng)
        logits = rope.rotate(keys, torch.arange(TOKENS)) @ rope.rotate(query, TOKENS - 1)
        lead = rng.uniform(*OWN_LEAD) * math.sqrt(rope.head_dim)
        own = query * (logits[:-1].max() + lead) / (query @ query)  # its logit leads all others by that much
        keys = torch.cat([keys[:-1], own[None]])
        exact = moved_scores(query, keys, rope)
        clamped.append(float(np.abs(exact - moved_scores(query, keys, rope, clamp=CLAMP)).max()))
        ours.append(swap_error((query, keys, rope), None))
    return {"clamp": CLAMP, "largest_error": max(clamped), "largest_error_ours": max(ours)}
