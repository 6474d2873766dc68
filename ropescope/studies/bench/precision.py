"""How far scores of a language model in half precision are from those in float32, on the same prompts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...models.adapter import Adapter
from ...models.load import Loaded
from ...tasks.prompts import binding_prompts
from ..head_scores import Scoring, measure

HALVES = ("bfloat16", "float16")


def bench_precision(loaded: Loaded, count: int, pairs: int, seed: int) -> dict[str, Any]:
    """Differences of scores from those of the same weights in float32, which are rounded to half precision in place.

    mean, largest  of the differences over heads and scores, of means over prompts
    changed        share of heads whose larger score is the other one
    error, limit   largest error of the self-check, and the error that rounding explains there
    """
    prompts = binding_prompts(loaded.tokenizer, count, pairs, seed)

    def scores(model: torch.nn.Module) -> tuple[NDArray[np.float64], float, float]:
        adapter = Adapter(model)
        rows = [measure(adapter, prompt, Scoring(planes=False, sensitivity=False)) for prompt in prompts]
        both = np.stack([np.stack([row[name] for row in rows]).mean(0) for name in ("positional", "symbolic")])
        worst = max(rows, key=lambda row: float(row["check_error"].max()))
        at = int(worst["check_error"].argmax())
        return both, float(worst["check_error"][at]), float(worst["check_limit"][at])

    exact = scores(loaded.model)[0]
    weights = {name: value.clone() for name, value in loaded.model.state_dict().items()}
    found = {}
    for name in HALVES:
        half, error, limit = scores(loaded.model.to(getattr(torch, name)))
        apart = np.abs(half - exact)
        found[name] = {
            "mean": float(apart.mean()),
            "largest": float(apart.max()),
            "changed": float(((half[0] > half[1]) != (exact[0] > exact[1])).mean()),
            "error": error,
            "limit": limit,
            "heads": int(exact[0].size),
            "prompts": count,
        }
        loaded.model.float().load_state_dict(weights)
    return found
