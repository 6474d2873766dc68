"""Every key head windowed alone. Layers below it compute what they always do, so that what they returned is used again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from transformers import DynamicCache

from ...models.adapter import Adapter, device_of
from ...models.adapter.cache import copied_cache
from ...models.adapter.edits import Changes
from ...models.adapter.interventions import intervene
from ...tasks.retrieval import Context
from .trials import Group, Measures, for_questions, groups_of, ids_of, judged, questions_of


class _Passes(NamedTuple):
    """What the layers of the unchanged model returned on contexts and on their questions, and its cache after the contexts.

    What they returned on contexts is needed only if changes begin there; the cache has a row for every question.
    """

    contexts: list[Any]
    questions: list[Any]
    cache: DynamicCache


class SingleHeads:
    """A model and contexts on which one layer at a time is changed.

    contexts  by kind
    full      contexts are read in full, and changes begin with the questions, as in `Trials`
    """

    def __init__(self, adapter: Adapter, contexts: Mapping[str, Sequence[Context]], full: bool = False) -> None:
        self.adapter, self.contexts, self.full = adapter, contexts, full
        self.layers = _decoder_layers(adapter)
        self.passes: dict[Group, _Passes] = {}

    @torch.inference_mode()
    def measure(self, row: int, changes: Changes) -> Measures:
        """Measures of answers, where `changes` are of the attention layer at `row` alone."""
        found: Measures = {}
        for kind, contexts in self.contexts.items():
            answers = [self._answers(group, row, changes) for group in groups_of(contexts)]
            found[f"{kind}: log probability"] = np.concatenate([each[0] for each in answers])
            found[f"{kind}: right"] = np.concatenate([each[1] for each in answers])
        return found

    def _answers(self, group: Group, row: int, changes: Changes) -> Any:
        model: Any = self.adapter.model
        if group not in self.passes:
            self.passes[group] = self._unchanged(group)
        known = self.passes[group]
        cache = copied_cache(known.cache) if self.full else DynamicCache(config=model.config)
        with intervene(self.adapter, changes):
            if not self.full:
                with self._from(row, known.contexts):
                    model(input_ids=ids_of(group, device_of(model)), past_key_values=cache, logits_to_keep=1)
                for_questions(cache, group)
                below = self.adapter.layers[row]
                cache.layers[:below] = copied_cache(known.cache).layers[:below]
            with self._from(row, known.questions):
                return judged(model, group, cache)

    def _unchanged(self, group: Group) -> _Passes:
        model: Any = self.adapter.model
        cache = DynamicCache(config=model.config)
        with self._recorded() as of_contexts:
            model(input_ids=ids_of(group, device_of(model)), past_key_values=cache, logits_to_keep=1)
        kept = copied_cache(for_questions(cache, group))
        with self._recorded() as of_questions:
            model(input_ids=questions_of(group, device_of(model)), past_key_values=cache, logits_to_keep=1)
        return _Passes([] if self.full else of_contexts, of_questions, kept)

    @contextmanager
    def _recorded(self) -> Iterator[list[Any]]:
        """What each layer returns within it."""
        found: list[Any] = [None] * len(self.layers)
        with ExitStack() as stack:
            for number, layer in enumerate(self.layers):
                stack.callback(layer.register_forward_hook(partial(_store, found, number)).remove)
            yield found

    @contextmanager
    def _from(self, row: int, returned: Sequence[Any]) -> Iterator[None]:
        """Within it, layers before `row` return what they returned before, without computing it."""
        with ExitStack() as stack:
            for layer, value in zip(self.layers[:row], returned, strict=False):
                vars(layer)["forward"] = partial(_known, value)
                stack.callback(vars(layer).pop, "forward")
            yield


def _store(found: list[Any], number: int, _: nn.Module, __: Any, output: Any) -> None:
    found[number] = output


def _known(value: Any, *_: Any, **__: Any) -> Any:
    return value


def _decoder_layers(adapter: Adapter) -> list[nn.Module]:
    """The layer that each attention module belongs to, in order; ValueError if they do not follow each other in a list."""
    names = {module: name for name, module in adapter.model.named_modules()}
    parents = [names[module].rpartition(".")[0] for module in adapter.modules]
    numbers = [name.rpartition(".")[2] for name in parents]
    if numbers != [str(number) for number in range(len(parents))]:
        raise ValueError("layers of this model do not follow each other in one list: heads cannot be windowed one by one")
    return [adapter.model.get_submodule(name) for name in parents]
