"""What scores cost, as ratios within one run: against re-running layers on swapped inputs, and against a forward pass.

Everything is timed on one 12-layer, 1-head, width-128 GPT-J with the same inputs and threads, in turns; the median of several
rounds counts.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ...heads import Heads
from ...logits import layer_logits
from ...measures.scores import swap_scores
from ...models.gptj import GPTJ, Block, GPTJConfig
from ...rope import Rope

TAU = 1e-4
TOKENS_AT_ONCE = 1 << 13
"""Token vectors per batch of re-runs: about the best for them; larger batches fall out of the cache."""


@dataclass(frozen=True)
class BenchRow:
    """Seconds per input and layer, at one length; re-runs are left out (None) where they would take too long."""

    tokens: int
    swaps: int
    inputs: int
    forward: float
    scored_forward: float
    scores: float
    rerun_block: float | None
    rerun_attention: float | None

    def faster_than(self, rerun: float | None) -> float | None:
        """How many times as long a forward pass takes whose layers are then re-run, against a scored one."""
        return None if rerun is None else (self.forward + rerun) / self.scored_forward

    def ratios(self) -> dict[str, float | None]:
        """What the benchmark is about."""
        return {
            "scored_over_plain": self.scored_forward / self.forward,
            "faster_than_rerunning_blocks": self.faster_than(self.rerun_block),
            "faster_than_rerunning_attention": self.faster_than(self.rerun_attention),
        }


def bench(tokens: list[int], rerun_up_to: int, batch: int, rounds: int, seed: int) -> Iterator[BenchRow]:
    """One row per length. The batch shrinks with length, so that every row handles about as many tokens."""
    if not tokens or min(tokens) < 3:
        raise ValueError(f"tokens must be lengths of at least 3, not {tokens}: a swap needs two keys before the query")
    if batch < 1 or rounds < 1:
        raise ValueError(f"batch and rounds must be at least 1, not {batch} and {rounds}")
    torch.manual_seed(seed)
    model = GPTJ(GPTJConfig(vocab_size=136)).eval()
    for length in tokens:
        ids = torch.randint(136, (max(1, batch * min(tokens) // length), length))
        yield _row(model, ids, rounds, rerun=length <= rerun_up_to)


@torch.inference_mode()
def _row(model: GPTJ, ids: Tensor, rounds: int, rerun: bool) -> BenchRow:
    inputs, tokens = ids.shape

    def scored() -> None:
        model(ids, on_heads=lambda _, heads: swap_scores(layer_logits(heads), tau=TAU))

    layers: list[Heads] = []
    model(ids, on_heads=lambda _, heads: layers.append(heads))

    def scores_alone() -> None:
        for heads in layers:
            swap_scores(layer_logits(heads), tau=TAU)

    timed = in_turns([lambda: model(ids), scored, scores_alone], rounds)
    forward, scored_forward, scores = (seconds / (inputs * len(layers)) for seconds in timed)
    rerun_block = rerun_attention = None
    if rerun:
        # So slow that one layer and few inputs must do; its batches are as large as suits it.
        few = max(1, min(inputs, 32 * 17**2 // tokens**2))
        hidden, block = model.embedding(ids[:few]), model.blocks[0]
        assert isinstance(block, Block)
        ways: list[Callable[[], object]] = [partial(rerun_scores, block, hidden, whole) for whole in (True, False)]
        rerun_block, rerun_attention = (seconds / few for seconds in in_turns(ways, max(1, rounds // 5)))
    swaps = math.comb(tokens - 1, 2)
    return BenchRow(tokens, swaps, inputs, forward, scored_forward, scores, rerun_block, rerun_attention)


def rerun_scores(block: Block, hidden: Tensor, whole_block: bool) -> tuple[Tensor, Tensor]:
    """Scores of a one-head layer the other way: re-run it on every swapped input, many swaps at once, and compare weights.

    `whole_block` re-runs all of the block, as the code released with paper B does; without it only what the attention
    weights of the last query need, the least that any re-run can do.
    """
    inputs, tokens, _ = hidden.shape
    i, j = torch.triu_indices(tokens - 1, tokens - 1, 1)
    pairs: list[Tensor] = []
    for a, b in zip(*(index.split(max(1, TOKENS_AT_ONCE // (inputs * tokens))) for index in (i, j)), strict=True):
        order = torch.arange(tokens).repeat(len(a), 1)
        each = torch.arange(len(a))
        order[each, a], order[each, b] = b, a
        weights = _last_weights(block, hidden[:, order].flatten(0, 1), whole_block).unflatten(0, (inputs, -1))
        pairs.append(torch.stack((weights[:, each, a], weights[:, each, b]), -1))
    after, real = torch.cat(pairs, 1), _last_weights(block, hidden, whole_block)
    before = torch.stack((real[:, i], real[:, j]), -1)
    alpha = torch.softmax((before[..., 0] - before[..., 1]).abs() / TAU, -1)
    positional, symbolic = (torch.cosine_similarity(after, other, -1) for other in (before, before.flip(-1)))
    return (alpha * positional).sum(-1), (alpha * symbolic).sum(-1)


def _last_weights(block: Block, hidden: Tensor, whole_block: bool) -> Tensor:
    """Attention weights (N, T) of the last query of a one-head block."""
    if whole_block:
        handed: list[Heads] = []
        block(hidden, on_heads=lambda _, heads: handed.append(heads))
        query, keys = handed[0].queries[:, 0, -1:], handed[0].keys[:, 0]
    else:
        normed = block.norm(hidden)
        query, keys = block.query(normed[:, -1:]), block.key(normed)
    rope: Rope = block.rope
    positions = torch.arange(hidden.shape[1])
    logits = rope.rotate(query, positions[-1:]) @ rope.rotate(keys, positions).mT
    return torch.softmax(logits / math.sqrt(rope.head_dim), -1)[:, 0]


def in_turns(calls: list[Callable[[], object]], rounds: int) -> list[float]:
    """Median seconds of each call over several rounds, in turns so that all see the same machine."""
    seconds: list[list[float]] = [[] for _ in calls]
    for warm_up in calls:
        warm_up()
    for _ in range(rounds):
        for call, taken in zip(calls, seconds, strict=True):
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in seconds]
