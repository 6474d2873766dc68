"""What a windowed model is tried on: held-out prose, and retrieval prompts whose questions share their context's cache."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache

from ...models.adapter import Adapter, device_of
from ...models.adapter.cache import copied_cache
from ...models.adapter.edits import Changes
from ...models.adapter.interventions import intervene
from ...tasks.retrieval import Context
from ..text_losses import text_losses

Group = tuple[Context, ...]
"""Contexts that are read in one batch."""
Measures = dict[str, NDArray[np.float64]]
"""Of each kind of prompt the log probability of every answer and whether it is right; the loss at every position of prose."""


class Trials:
    """A model with prompts and prose to try it on.

    contexts  by kind
    prose     token ids of texts
    full      contexts are read in full, once for all changes, which begin with the questions: so a cache is shortened after
              prefill, as by kvpress
    """

    def __init__(
        self, adapter: Adapter, contexts: Mapping[str, Sequence[Context]], prose: Sequence[Tensor], full: bool = False
    ) -> None:
        self.adapter, self.contexts, self.prose, self.full = adapter, contexts, prose, full
        self._read: dict[Group, DynamicCache] = {}

    def without_prose(self) -> Trials:
        """The same trials without prose; contexts that were read in full are not read again."""
        twin = copy.copy(self)
        twin.prose = []
        return twin

    @torch.inference_mode()
    def measure(self, changes: Changes) -> Measures:
        """All measures of the model with these changes."""
        for group in [each for contexts in self.contexts.values() for each in groups_of(contexts) if self.full]:
            if group not in self._read:
                self._read[group] = self._cached(group)
        with intervene(self.adapter, changes):
            found: Measures = {}
            for kind, contexts in self.contexts.items():
                answers = [self._answers(group) for group in groups_of(contexts)]
                found[f"{kind}: log probability"] = np.concatenate([each[0] for each in answers])
                found[f"{kind}: right"] = np.concatenate([each[1] for each in answers])
            if self.prose:
                found["prose: loss"] = np.stack([text_losses(self.adapter.model, ids) for ids in self.prose])
            return found

    def _answers(self, group: Group) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Log probability of every answer, and 1 if each of its tokens is the most likely one."""
        cache = copied_cache(self._read[group]) if self.full else self._cached(group)
        return judged(self.adapter.model, group, cache)

    def _cached(self, group: Group) -> DynamicCache:
        """The cache after contexts, once for every question."""
        model: Any = self.adapter.model
        cache = DynamicCache(config=model.config)
        model(input_ids=ids_of(group, device_of(model)), past_key_values=cache, logits_to_keep=1)
        return for_questions(cache, group)


def groups_of(contexts: Sequence[Context]) -> list[Group]:
    """The contexts in their order, those together that are equally long and have as many questions: a batch each."""
    alike = itertools.groupby(contexts, key=lambda context: (len(context.ids), len(context.questions)))
    return [tuple(group) for _, group in alike]


def ids_of(group: Group, device: torch.device) -> Tensor:
    """Tokens of equally long contexts."""
    return torch.tensor([context.ids for context in group], device=device)


def questions_of(group: Group, device: torch.device) -> Tensor:
    """Tokens of all questions; padding stands behind, where no token of a question sees it."""
    asked = [torch.tensor(question.ids) for context in group for question in context.questions]
    return torch.nn.utils.rnn.pad_sequence(asked, batch_first=True).to(device)


def for_questions(cache: DynamicCache, group: Group) -> DynamicCache:
    """The cache after contexts, with a row for every question."""
    cache.batch_repeat_interleave(len(group[0].questions))
    return cache


def judged(model: Any, group: Group, cache: DynamicCache) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log probability of every answer, and 1 if each of its tokens is the most likely one.

    cache  after the context, with a row for every question
    """
    ids, questions = questions_of(group, device_of(model)), [question for context in group for question in context.questions]
    first = min(len(question.ids) - question.answer for question in questions) - 1
    logits = model(input_ids=ids, past_key_values=cache, logits_to_keep=ids.shape[1] - first).logits
    nats, right = [], []
    for row, question in enumerate(questions):
        stop = len(question.ids)
        before = logits[row, stop - question.answer - 1 - first : stop - 1 - first].double().log_softmax(-1)
        answer = ids[row, stop - question.answer : stop]
        nats.append(float(before.gather(-1, answer[:, None]).sum()))
        right.append(float((before.argmax(-1) == answer).all()))
    return np.array(nats), np.array(right)


def damage(before: Measures, after: Measures) -> float:
    """How much the mean log probability of answers falls, mean over kinds of prompts, in nats."""
    kinds = [name for name in before if name.endswith("log probability")]
    return float(np.mean([before[name].mean() - after[name].mean() for name in kinds]))


def worst_loss(before: Measures, after: Measures) -> float:
    """The largest loss in nats: of the answers of any kind of prompt, or of a token of prose."""
    losses = [before[name].mean() - after[name].mean() for name in before if name.endswith("log probability")]
    if "prose: loss" in before:
        losses.append(after["prose: loss"].mean() - before["prose: loss"].mean())
    return float(max(losses))
