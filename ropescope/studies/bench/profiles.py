"""What a profile of a real language model costs, as ratios within one run: against a plain pass, and against re-running."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ...models.adapter import Adapter
from ...models.load import Loaded
from ...tasks.prompts import Prompt, binding_prompts
from ..head_scores import Scoring, measure

RERUNS = 4
"""Swaps for which every attention layer is really run again; the rest is estimated from them."""


def bench_profile(loaded: Loaded, pairs: int, rounds: int, seed: int = 0) -> dict[str, Any]:
    """Seconds and ratios of one binding prompt.

    plain   a forward pass by itself
    scored  one that gives all scores, shares and checks of every head over all swaps of two sentences
    planes  the same with scores of every RoPE plane alone
    rerun   every attention layer run again for each swap, estimated from a few
    """
    prompt = binding_prompts(loaded.tokenizer, 1, pairs, seed)[0]
    adapter = Adapter(loaded.model)
    ids = torch.from_numpy(prompt.ids)[None]
    ways: dict[str, Callable[[], object]] = {
        "plain": lambda: _plain(loaded.model, ids),
        "scored": lambda: measure(adapter, prompt, Scoring(planes=False, sensitivity=False)),
    }
    for way in ways.values():
        way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            seconds[name].append(_timed(way))
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    middle["planes"] = _timed(lambda: measure(adapter, prompt, Scoring(planes=True, sensitivity=False)))
    swaps = len(prompt.blocks) * (len(prompt.blocks) - 1) // 2
    one_swap = _rerun(loaded.model, adapter, ids, prompt) / RERUNS
    return {
        "tokens": len(prompt),
        "pairs": pairs,
        "swaps": swaps,
        "seconds": {name: round(value, 3) for name, value in middle.items()},
        "scored_over_plain": middle["scored"] / middle["plain"],
        "planes_over_plain": middle["planes"] / middle["plain"],
        "seconds_of_rerunning": round(one_swap * swaps, 1),
        "faster_than_rerunning": one_swap * swaps / middle["scored"],
    }


def _timed(way: Callable[[], object]) -> float:
    started = time.perf_counter()
    way()
    return time.perf_counter() - started


@torch.inference_mode()
def _plain(model: nn.Module, ids: Tensor) -> None:
    model(input_ids=ids, use_cache=False, logits_to_keep=1)


@torch.inference_mode()
def _rerun(model: nn.Module, adapter: Adapter, ids: Tensor, prompt: Prompt) -> float:
    """Seconds to run all attention layers again on a few swapped inputs."""
    taken = 0.0

    def again(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], _: object) -> None:
        nonlocal taken
        hidden = kwargs["hidden_states"]
        for other in range(1, RERUNS + 1):
            (a, b), (c, d) = prompt.blocks[0], prompt.blocks[other]
            order = [*range(a), *range(c, d), *range(b, c), *range(a, b), *range(d, hidden.shape[1])]
            started = time.perf_counter()
            module.forward(*args, **kwargs | {"hidden_states": hidden[:, order]})
            taken += time.perf_counter() - started

    hooks = [module.register_forward_hook(again, with_kwargs=True) for module in adapter.modules]
    try:
        _plain(model, ids)
    finally:
        for hook in hooks:
            hook.remove()
    return taken
