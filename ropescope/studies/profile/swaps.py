"""What a swap does to the attention of single heads, on the short prompt that a run folder holds for the playground."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...heads import Heads
from ...logits import layer_factors
from ...weights import with_sinks
from ..playground import stored_heads, visible_blocks

AROUND = 3
"""Tokens that are shown on each side of those that matter, where not all are shown."""
MOST_SHOWN = 24
"""Tokens of a text that is shown whole."""

Example = dict[str, Any]


@torch.inference_mode()
def swap_examples(subject: Mapping[str, Any], wanted: Collection[tuple[int, int]]) -> dict[tuple[int, int], Example]:
    """Attention of each wanted head, (layer, head), before and after its heaviest block changes places.

    subject  one of `playground.json`; heads of layers that it does not hold are left out

    It changes places with the block that is farthest away. Tokens are really moved: everything else keeps its order.
    An example has

    before, after  what is shown from left to right: text, weight, its share of the largest weight shown, and what it is (moved,
                   other, query, gap or empty)
    moved, other   texts of the two blocks that change places
    weight         of the heaviest block before the swap
    at_place       weight after the swap of what is now at its place
    on_block       weight after the swap of the same block, wherever it is now
    """
    found: dict[tuple[int, int], Example] = {}
    for layer, heads in stored_heads(subject):
        mine = [head for at, head in wanted if at == layer]
        if not mine:
            continue
        blocks = visible_blocks(heads, subject["blocks"]) or _single(heads)
        if len(blocks) < 2:
            continue
        M = layer_factors(heads).matrix()[0]
        for head in mine:
            sinks = None if heads.sinks is None else heads.sinks[head : head + 1]
            found[layer, head] = _example(M[head], sinks, blocks, subject["tokens"])
    return found


def _single(heads: Heads) -> list[tuple[int, int]]:
    """Every token that the last query sees but itself: what moves in a prompt without blocks."""
    return [(at, at + 1) for at in range(heads.first_seen(), heads.keys.shape[-2] - 1)]


def _example(M: Tensor, sinks: Tensor | None, blocks: Sequence[tuple[int, int]], tokens: Sequence[str]) -> Example:
    order = list(range(len(tokens)))
    before = _weights(M, sinks, order)
    shares = [float(before[start:stop].sum()) for start, stop in blocks]
    heaviest = max(range(len(blocks)), key=shares.__getitem__)
    other = 0 if heaviest >= len(blocks) / 2 else len(blocks) - 1
    pieces = [list(range(*block)) for block in blocks]
    moved = _swapped(order, pieces[heaviest], pieces[other])
    after = _weights(M, sinks, moved)
    at = {token: place for place, token in enumerate(moved)}
    texts = ["".join(tokens[start:stop]) for start, stop in blocks]
    marks = {heaviest: "moved", other: "other"}
    rows = [_shown(tokens, order, before, blocks, marks), _shown(tokens, moved, after, blocks, marks)]
    largest = max(part["weight"] for row in rows for part in row if part["what"] != "gap")
    for part in (*rows[0], *rows[1]):
        part["share"] = min(1.0, part["weight"] / largest) if largest else 0.0
    return {
        "before": rows[0],
        "after": rows[1],
        "moved": texts[heaviest].strip(" .\n"),
        "other": texts[other].strip(" .\n"),
        "weight": shares[heaviest],
        "at_place": float(sum(after[at[token]] for token in pieces[other])),
        "on_block": float(sum(after[at[token]] for token in pieces[heaviest])),
    }


def _weights(M: Tensor, sinks: Tensor | None, order: Sequence[int]) -> Tensor:
    """Attention weights of the last query if keys stand in this order."""
    logits = M[torch.tensor(order), torch.arange(len(order))]
    return with_sinks(logits[None, None, None], sinks)[0, 0, 0]


def _swapped(order: Sequence[int], one: Sequence[int], other: Sequence[int]) -> list[int]:
    """The order with two runs of tokens in each other's place; what is between them may shift."""
    first, second = sorted((list(one), list(other)))
    between = [token for token in order if first[-1] < token < second[0]]
    return [*order[: first[0]], *second, *between, *first, *order[second[-1] + 1 :]]


def _shown(
    tokens: Sequence[str], order: Sequence[int], weights: Tensor, blocks: Sequence[tuple[int, int]], marks: Mapping[int, str]
) -> list[dict[str, Any]]:
    """Blocks from left to right with their weights; of many single tokens, those around the two that change places."""
    block_of = {token: number for number, block in enumerate(blocks) for token in range(*block)}
    parts: list[dict[str, Any]] = []
    last = None
    for place, token in enumerate(order):
        number = block_of.get(token)
        is_query = token == len(tokens) - 1
        if number is None and not is_query:
            last = None
            continue
        if number is not None and number == last:
            parts[-1]["text"] += tokens[token]
            parts[-1]["weight"] += float(weights[place])
        else:
            what = "query" if is_query else marks.get(number if number is not None else -1, "")
            parts.append({"text": tokens[token], "weight": float(weights[place]), "what": what})
        last = number
    return _around(parts)


def _around(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts near those that matter, and gaps in place of the others."""
    if len(parts) <= MOST_SHOWN:
        return parts
    near = {n + d for n, part in enumerate(parts) if part["what"] for d in range(-AROUND, AROUND + 1)}
    found: list[dict[str, Any]] = []
    for n, part in enumerate(parts):
        if n in near:
            found.append(part)
        elif not found or found[-1]["what"] != "gap":
            found.append({"text": "\N{HORIZONTAL ELLIPSIS}", "weight": 0.0, "what": "gap"})
        if n not in near:
            found[-1]["weight"] += part["weight"]
    return found
