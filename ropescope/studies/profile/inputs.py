"""What a caller of `profile` may give: a model in any form, and texts, token ids or prompts. All of it is checked first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from ...inputs import shown
from ...models.adapter import Adapter, unwrapped
from ...models.gptj import GPTJ
from ...models.load import Loaded, load_model
from ...tasks.prompts import Prompt, as_prompt, check_fits
from ...tasks.texts import TextBlocks, text_prompt
from ..head_scores import with_queries


class Opened(NamedTuple):
    """A model, its tokenizer, its longest input and the size of its vocabulary, as far as they are known, and its name."""

    model: nn.Module | Adapter
    tokenizer: Any
    context: int | None
    vocabulary: int | None
    name: str


def open_model(model: Any, tokenizer: Any = None) -> Opened:
    """A model from a path, a hub id, what `load_model` returns, an `Adapter` or a module."""
    if isinstance(model, str | Path):
        model = load_model(str(model))
    if isinstance(model, Loaded):
        known = tokenizer if tokenizer is not None else model.tokenizer
        return Opened(model.model, known, model.context, model.vocabulary, str(model.about["source"]))
    model = model if isinstance(model, Adapter) else unwrapped(model)
    if not isinstance(model, nn.Module | Adapter):
        raise ValueError(f"model must be a model, a path, a hub id or what load_model returns, not {shown(model)}")
    inner = model.model if isinstance(model, Adapter) else model
    config = getattr(inner, "config", None)
    text = config.get_text_config() if config is not None and hasattr(config, "get_text_config") else config
    name = str(getattr(config, "name_or_path", "") or type(inner).__name__)
    name = Path(name).name if Path(name).exists() else name
    vocabulary = getattr(text, "vocab_size", None)
    context = None if isinstance(inner, GPTJ) else getattr(text, "max_position_embeddings", None)
    return Opened(model, tokenizer, context, vocabulary if isinstance(vocabulary, int) else None, name)


def given_prompts(
    given: Any,
    opened: Opened,
    blocks: TextBlocks = "token",
    queries: int | None = None,
    move_first: bool = False,
    longest: int | None = None,
) -> list[Prompt]:
    """Prompts of whatever a caller gave, with the queries to score; ValueError, in one sentence, if something does not fit."""
    found: list[Prompt] = []
    for number, item in enumerate(_items(given)):
        if _is_text(item):
            if opened.tokenizer is None:
                raise ValueError(f"prompt {number} is a text, which needs a tokenizer: give one as tokenizer")
            found.append(text_prompt(opened.tokenizer, item, number, blocks, move_first, longest))
            continue
        try:
            found.append(as_prompt(item, move_first))
        except ValueError as error:
            raise ValueError(f"prompt {number}: {error}") from None
    if not found:
        raise ValueError("prompts must hold at least one prompt")
    for number, prompt in enumerate(found):
        if len(prompt.blocks) < 2:
            raise ValueError(f"prompt {number} has {len(prompt.blocks)} blocks that may change places: at least 2 are needed")
    check_fits(found, opened.context, opened.vocabulary)
    if queries is None and len({bool(prompt.queries) for prompt in found}) > 1:
        raise ValueError("some prompts name their queries and others do not: give queries, or name them in all")
    return [with_queries(prompt, queries) for prompt in found]


def _is_text(item: Any) -> bool:
    return isinstance(item, str) or (isinstance(item, list | tuple) and bool(item) and all(isinstance(x, str) for x in item))


def _items(given: Any) -> Iterable[Any]:
    """One item per prompt."""
    if isinstance(given, str | Prompt):
        return [given]
    if isinstance(given, Mapping):
        return _of_encoding(given)
    if not isinstance(given, Iterable):
        raise ValueError(f"prompts must be texts, token ids or Prompts, not {shown(given)}")
    if getattr(given, "ndim", 2) == 1 or (isinstance(given, list | tuple) and given and all(type(x) is int for x in given)):
        return [given]
    return [each for item in given for each in (_of_encoding(item) if isinstance(item, Mapping) else [item])]


def _of_encoding(encoding: Mapping[str, Any]) -> Sequence[Any]:
    """Rows of token ids of what a tokenizer returns, without padding."""
    if "input_ids" not in encoding:
        raise ValueError("prompts: what a tokenizer returned holds no input_ids")

    def rows(name: str) -> list[list[int]]:
        values = encoding[name].tolist() if hasattr(encoding[name], "tolist") else encoding[name]
        return [list(row) for row in values] if values and isinstance(values[0], list | tuple) else [list(values)]

    ids = rows("input_ids")
    masks = rows("attention_mask") if "attention_mask" in encoding else [[1] * len(row) for row in ids]
    return [[token for token, real in zip(row, mask, strict=True) if real] for row, mask in zip(ids, masks, strict=True)]
