"""What a profile of a real language model costs, as ratios within one run: against a plain pass, and against re-running.

Times are those of the processor, on as many threads as torch uses. On a busy machine, use one: threads that wait count, too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...models.adapter import Adapter
from ...models.load import Loaded
from ...tasks.prompts import Prompt, as_prompt, binding_prompts
from ..head_scores import Scoring, measure

RERUNS = 4
"""Swaps for which every attention layer is really run again; the rest is estimated from them."""


LONGEST = {"planes": 2048, "rounds": 4096}
"""Most tokens for which planes and other choices are timed, and for which passes are repeated after one that does not count."""


def bench_profile(loaded: Loaded, pairs: int, rounds: int, seed: int = 0) -> dict[str, Any]:
    """Processor seconds and ratios of one binding prompt, whose sentences move.

    plain        a forward pass by itself
    scored       one that gives all scores, shares and checks of every head over all swaps of two sentences
    planes       the same with scores of every RoPE plane alone
    sensitivity  the same, without planes, with other temperatures, permutations and single tokens
    rerun        every attention layer run again for each swap, estimated from a few
    """
    prompt = binding_prompts(loaded.tokenizer, 1, pairs, seed)[0]
    adapter = Adapter(loaded.model)
    row = _row(loaded.model, adapter, prompt, rounds, planes=True) | {"moves": "sentences"}
    one_swap = _rerun(loaded.model, adapter, torch.from_numpy(prompt.ids)[None], prompt) / RERUNS
    row["seconds_of_rerunning"] = round(one_swap * row["swaps"], 1)
    row["faster_than_rerunning"] = one_swap * row["swaps"] / row["seconds"]["scored"]
    return row


def bench_tokens(loaded: Loaded, tokens: int, rounds: int, seed: int = 0) -> dict[str, Any]:
    """The same for a text of binding prompts, one after another, whose tokens move one by one; layers are not run again."""
    ids: list[int] = []
    while len(ids) < tokens:
        ids += binding_prompts(loaded.tokenizer, 1, 240, seed + len(ids))[0].ids.tolist()
    rounds, planes = rounds if tokens <= LONGEST["rounds"] else 1, tokens <= LONGEST["planes"]
    row = _row(loaded.model, Adapter(loaded.model), as_prompt(ids[:tokens]), rounds, planes)
    return row | {"moves": "tokens", "seconds_of_rerunning": None, "faster_than_rerunning": None}


def _row(model: nn.Module, adapter: Adapter, prompt: Prompt, rounds: int, planes: bool) -> dict[str, Any]:
    """Medians of interleaved rounds; what takes longest is timed once. `None` is not timed."""
    ids = torch.from_numpy(prompt.ids)[None]
    found: dict[str, Any] = {}
    ways: dict[str, Callable[[], object]] = {
        "plain": lambda: _plain(model, ids),
        "scored": lambda: found.update(measure(adapter, prompt, Scoring(planes=False, sensitivity=False))),
    }
    if len(prompt) <= LONGEST["rounds"]:  # the first pass prepares what later ones find
        for way in ways.values():
            way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            seconds[name].append(_timed(way))
    middle: dict[str, float | None] = {name: statistics.median(values) for name, values in seconds.items()}
    middle["planes"] = middle["sensitivity"] = None
    if planes:
        middle["planes"] = _timed(lambda: found.update(measure(adapter, prompt, Scoring(sensitivity=False))))
        middle["sensitivity"] = _timed(lambda: measure(adapter, prompt, Scoring(planes=False)))
    plain = statistics.median(seconds["plain"])
    blocks = len(prompt.blocks)
    return {
        "tokens": len(prompt),
        "pairs": blocks,
        "swaps": blocks * (blocks - 1) // 2,
        "seconds": {name: None if value is None else round(value, 3) for name, value in middle.items()},
        **{f"{name}_over_plain": None if value is None else value / plain for name, value in middle.items() if name != "plain"},
        "score_error": float(np.nanmax(found["score_error"])),
        "plane_error": float(np.nanmax(found["plane_error"])) if planes else None,
    }


def _timed(way: Callable[[], object]) -> float:
    """Processor seconds, which other work on the machine changes less than the time on the clock."""
    started = time.process_time()
    way()
    return time.process_time() - started


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
            started = time.process_time()
            module.forward(*args, **kwargs | {"hidden_states": hidden[:, order]})
            taken += time.process_time() - started

    hooks = [module.register_forward_hook(again, with_kwargs=True) for module in adapter.modules]
    try:
        _plain(model, ids)
    finally:
        for hook in hooks:
            hook.remove()
    return taken
