"""How far scores of a language model in half precision are from those in float32, on the same prompts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...models.adapter import Adapter
from ...models.load import Loaded, load_model
from ...tasks.prompts import Prompt, binding_prompts
from ..head_scores import Scoring, measure

HALVES = ("bfloat16", "float16")


def bench_precision(loaded: Loaded, source: str, count: int, pairs: int, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Differences of scores from those of the same weights in float32, for each half precision.

    mean, largest  of the differences over heads and scores, of means over prompts
    changed        share of heads whose larger score is the other one
    error, limit   largest error of the self-check, and the error that rounding explains there
    most           the largest of such limits in any layer
    single         largest error of what `M` predicts of a layer that runs in float32 on the same hidden states
    refused        instead of all others: why the model cannot be read in this precision
    """
    prompts = binding_prompts(loaded.tokenizer, count, pairs, seed)
    exact = _scores(loaded, prompts)[0]
    for name in HALVES:
        try:
            half, checks = _scores(load_model(source, name), prompts)
        except ValueError as error:  # numbers of some models are too large for float16
            yield name, {"refused": str(error)}
            continue
        apart = np.abs(half - exact)
        yield (
            name,
            {
                "mean": float(apart.mean()),
                "largest": float(apart.max()),
                "changed": float(((half[0] > half[1]) != (exact[0] > exact[1])).mean()),
                **checks,
                "heads": int(exact[0].size),
                "prompts": count,
            },
        )


def _scores(loaded: Loaded, prompts: list[Prompt]) -> tuple[NDArray[np.float64], dict[str, float]]:
    """Both scores of every head, means over prompts, and how the self-check came out."""
    adapter = Adapter(loaded.model)
    rows = [measure(adapter, prompt, Scoring(planes=False, sensitivity=False)) for prompt in prompts]
    both = np.stack([np.stack([row[name] for row in rows]).mean(0) for name in ("positional", "symbolic")])
    errors, limits = (np.stack([row[name] for row in rows]) for name in ("check_error", "check_limit"))
    at = np.unravel_index(errors.argmax(), errors.shape)
    checks = {"error": float(errors[at]), "limit": float(limits[at]), "most": float(limits.max())}
    return both, checks | {"single": max(adapter.errors)}
