"""Log probabilities of given answers to a text, in as few forward passes as possible.

The text is read once. What follows its last token decides the first token of every answer. Answers of several tokens need the
model once more: all that precedes their last tokens is read in one batch, on the text's cache repeated for each row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache

from ...models.adapter import device_of
from ...models.adapter.cache import cache_bytes, copied_cache
from ...tasks.tokenized import leading_ids

CACHE = 1 << 28
"""Bytes that the repeated cache may take; more rows are read in several batches."""

Ids = tuple[int, ...]


class Scored(NamedTuple):
    """Log probability of every answer, and whether each of its tokens is the most likely one, as greedy decoding takes it."""

    nats: NDArray[np.float64]
    greedy: NDArray[np.bool_]


def encoded(tokenizer: Any, text: str, answers: Sequence[str]) -> tuple[Ids, list[Ids]]:
    """Token ids of a text, and of every answer as it follows the text.

    Raises ValueError if the tokenizer joins an answer with the text, or if the tokens of an answer begin with those of
    another: their probabilities would then not be those of different answers.
    """

    def ids_of(part: str) -> Ids:
        return tuple(tokenizer(part, add_special_tokens=False)["input_ids"])

    ids = (*leading_ids(tokenizer), *ids_of(text))
    # Tokens of an answer depend on the line before it at most, and lists have hundreds of answers.
    line = text[text.rstrip("\n").rfind("\n") + 1 :]
    start = ids_of(line)
    found = []
    for answer in answers:
        whole = ids_of(line + answer)
        if whole[: len(start)] != start or len(whole) == len(start):
            raise ValueError(f"the tokenizer joins {answer!r} with the text before it, so it cannot be scored as an answer")
        found.append(whole[len(start) :])
    if (*leading_ids(tokenizer), *ids_of(text + answers[0])) != (*ids, *found[0]):
        raise ValueError(f"the tokenizer splits {answers[0]!r} differently after a long text, so it cannot be scored")
    starts = {ids[:size] for ids in found for size in range(1, len(ids))}
    if len(set(found)) < len(found) or starts & set(found):
        raise ValueError("the tokens of an answer begin with those of another, so that their probabilities overlap")
    return ids, found


@torch.inference_mode()
def read(model: Any, ids: Sequence[int], cache: DynamicCache) -> Tensor:
    """Log probabilities of the token after `ids`, which are added to the cache."""
    batch = torch.tensor([list(ids)], device=device_of(model))
    logits: Tensor = model(input_ids=batch, past_key_values=cache, logits_to_keep=1).logits
    if cache.get_seq_length() < len(ids):
        raise ValueError("the model keeps no keys and values of what it has read, so that answers cannot be scored")
    return logits[0, -1].double().log_softmax(-1)


@torch.inference_mode()
def scored(model: Any, ids: Sequence[int], answers: Sequence[Ids], start: DynamicCache | None = None) -> Scored:
    """Log probability of every answer after `ids`: the sum over its tokens.

    answers  token ids of each
    start    cache of tokens before `ids`; it is not changed
    """
    cache = DynamicCache(config=model.config) if start is None else copied_cache(start)
    after: dict[Ids, Tensor] = {(): read(model, ids, cache)}
    begun = list(dict.fromkeys(answer[:-1] for answer in answers if len(answer) > 1))
    for rows in _batches(begun, max(1, CACHE // max(1, cache_bytes(cache)))):
        # Padding stands behind, where no token sees it.
        batch = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True).to(device_of(model))
        repeated = copied_cache(cache)
        repeated.batch_repeat_interleave(len(rows))
        logits = model(input_ids=batch, past_key_values=repeated).logits
        for row, found in zip(rows, logits, strict=True):
            for size in range(1, len(row) + 1):
                if row[:size] not in after:
                    after[row[:size]] = found[size - 1].double().log_softmax(-1)
    best = {before: int(found.argmax()) for before, found in after.items()}
    steps = [[(answer[:n], answer[n]) for n in range(len(answer))] for answer in answers]
    nats = [sum(float(after[before][token]) for before, token in each) for each in steps]
    return Scored(np.array(nats), np.array([all(best[before] == token for before, token in each) for each in steps]))


def _batches(rows: Sequence[Ids], size: int) -> Iterator[Sequence[Ids]]:
    for first in range(0, len(rows), size):
        yield rows[first : first + size]
