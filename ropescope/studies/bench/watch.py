"""What watching costs while a language model is fine-tuned, as ratios within one run."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count, cycle
from pathlib import Path
from typing import Any

import torch

from ...models.load import Loaded
from ...tasks.passage import PASSAGE
from ...tasks.prompts import binding_prompts
from ...training.head_watcher import EVERY, HeadWatcher

PROMPTS, PAIRS = 4, 12
"""Binding prompts that are looked at, and their sentences."""
BATCH, TOKENS = 2, 128
"""A small step of fine-tuning: so many pieces of text, of so many tokens each."""
BLOCKS = 8
"""Blocks of steps, half of them with a look."""


def bench_watch(loaded: Loaded, steps: int, rounds: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Seconds of steps and looks, and the share of training that looks take at the default interval, found in two ways.

    Gives something after each of its `rounds` and `BLOCKS`; the last of it is the result.

    look_share      median look over the default interval of median steps, both timed in turn
    measured_share  blocks of steps with one look in each against blocks without, in turn, scaled to the default interval
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}")
    model = loaded.model.train()
    prompts = binding_prompts(loaded.tokenizer, PROMPTS, PAIRS, seed)
    step, numbers = _stepper(model, _batches(loaded.tokenizer, max(steps, 8))), count()
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        watcher = HeadWatcher(model, prompts, Path(folder) / "watch", every=1, log=lambda numbers, at: None)
        opening = time.perf_counter() - started

        def look() -> float:
            started = time.perf_counter()
            watcher.look(next(numbers))
            return time.perf_counter() - started

        step(), look()  # the first of each takes longer: nothing is in its place yet
        took: dict[str, list[float]] = {"step": [], "look": []}
        for _ in range(rounds):
            took["step"] += [step(), step()]
            took["look"].append(look())
            yield {}
        blocks: dict[bool, list[float]] = {True: [], False: []}
        for number in range(BLOCKS):
            with_look = number % 4 in (0, 3)  # with, without, without, with: a machine that slows down slows both
            started = time.perf_counter()
            for _ in range(steps):
                step()
            if with_look:
                look()
            blocks[with_look].append(time.perf_counter() - started)
            yield {}
    middle = {name: statistics.median(values) for name, values in took.items()}
    ratio = statistics.median(blocks[True]) / statistics.median(blocks[False])
    yield {
        "every": EVERY,
        "prompts": len(prompts),
        "prompt_tokens": len(prompts[0]),
        "heads": int(loaded.about["layers"]) * int(loaded.about["heads"]),
        "batch": BATCH,
        "tokens": TOKENS,
        "steps_of_a_block": steps,
        "seconds": {"opening": round(opening, 3), **{name: round(value, 3) for name, value in middle.items()}},
        "look_over_step": middle["look"] / middle["step"],
        "look_share": middle["look"] / (EVERY * middle["step"]),
        "with_over_without_in_blocks": ratio,
        "measured_share": (ratio - 1) * steps / EVERY,
    }


def _stepper(model: Any, batches: list[torch.Tensor]) -> Callable[[], float]:
    """A function that makes one training step and gives the seconds it took."""
    optimiser, left = torch.optim.AdamW(model.parameters(), lr=1e-5), cycle(batches)

    def step() -> float:
        started = time.perf_counter()
        ids = next(left)
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        loss.item()  # waits until it is done
        return time.perf_counter() - started

    return step


def _batches(tokenizer: Any, count: int) -> list[torch.Tensor]:
    """Pieces of a text, again and again."""
    ids = torch.tensor(tokenizer(PASSAGE)["input_ids"])
    starts = torch.arange(count * BATCH) * 37 % (len(ids) - TOKENS)
    return list(ids[starts[:, None] + torch.arange(TOKENS)].split(BATCH))
