"""Text as a tokenizer of `transformers` reads it: which tokens belong to which part of the text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

OPENERS = ("<bos>", "<|begin_of_text|>")
"""BOS of model families that are always trained with one. It is added even if the tokenizer, as in a GGUF file, does not."""


class Reading(NamedTuple):
    """A text and its tokens.

    tokens  text of each token
    first   offset in the text of the first character of each token that is not a space; -1 for tokens before the text
    last    offset of the last such character
    """

    text: str
    ids: list[int]
    tokens: list[str]
    first: NDArray[np.int64]
    last: NDArray[np.int64]


def read_text(tokenizer: Any, text: str, front: Sequence[int] = ()) -> Reading:
    """The tokens of a text, after the ids `front` unless the text starts with those already."""
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids = found["input_ids"]
    front = [] if ids[: len(front)] == list(front) else list(front)
    first, last, tokens, end = [], [], [], 0
    for start, stop in found["offset_mapping"]:
        # Some tokenizers include the space before a word in the offsets of its token, and some do not.
        bare = text[start:stop].strip()
        start += text[start:stop].index(bare)  # noqa: PLW2901
        first.append(start)
        last.append(start + max(len(bare) - 1, 0))
        tokens.append(text[end:stop])  # a character that several tokens share is shown with the first
        end = max(end, stop)
    before = [-1] * len(front)
    names = tokenizer.convert_ids_to_tokens(front)
    return Reading(text, front + ids, names + tokens, np.array(before + first), np.array(before + last))


def require_fast(tokenizer: Any) -> None:
    """Raise ValueError unless the tokenizer reports the offsets of tokens in the text."""
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError("tokenizer must be a fast tokenizer of transformers, which reports where in the text each token is")


def leading_ids(tokenizer: Any) -> list[int]:
    """Ids in front of every text: those that the tokenizer adds, and BOS if the family needs one that it does not add."""
    bare, whole = tokenizer("a", add_special_tokens=False)["input_ids"], tokenizer("a")["input_ids"]
    ids: list[int] = whole[: whole.index(bare[0])]
    if tokenizer.bos_token in OPENERS and tokenizer.bos_token_id not in ids:
        ids = [tokenizer.bos_token_id, *ids]
    return ids


def token_range(read: Reading, start: int, stop: int) -> tuple[int, int]:
    """Range of the tokens of `text[start:stop]`.

    Raises ValueError if one of them also covers text outside.
    """
    inside = np.flatnonzero((read.first >= start) & (read.first < stop))
    reaches_in = (read.first < start) & (read.last >= start)
    if not inside.size or read.last[inside].max() >= stop or reaches_in.any():
        raise ValueError(f"tokenizer joins {read.text[start:stop]!r} with the text around it: use another wording or tokenizer")
    return int(inside[0]), int(inside[-1]) + 1


def line_ranges(text: str) -> list[tuple[int, int]]:
    """Start and stop of each line that is not blank, including the blank lines after it."""
    starts, at = [], 0
    for line in text.splitlines(keepends=True):
        if line.strip():
            starts.append(at)
        at += len(line)
    return list(zip(starts, [*starts[1:], at], strict=True))


def use_chat_template(tokenizer: Any, chat: bool | None) -> bool:
    """Whether to use the chat template: as asked, or if `chat` is None, if the tokenizer, a fast one, has a template."""
    require_fast(tokenizer)
    template = getattr(tokenizer, "chat_template", None) is not None
    if chat and not template:
        raise ValueError("chat is set but this tokenizer has no chat template: use chat=False")
    return template if chat is None else chat


def words_of_equal_length(
    tokenizer: Any, words: Sequence[str], frame: str, wanted: int, distinct: bool = False
) -> dict[str, int]:
    """Words that have the same number of tokens inside the sentence `frame`, and the first token of each.

    wanted    the smallest number of tokens is chosen for which there are so many words, or else the most common number
    distinct  leave out words that start with the same token as another
    """
    start = frame.index("{}") - 1
    sizes: dict[int, dict[str, int]] = defaultdict(dict)
    for word in words:
        read = read_text(tokenizer, frame.format(word))
        begin, end = token_range(read, start, start + 1 + len(word))
        same = sizes[end - begin]
        if not distinct or read.ids[begin] not in same.values():
            same[word] = read.ids[begin]
    enough = [size for size, found in sizes.items() if len(found) >= wanted]
    return sizes[min(enough) if enough else max(sizes, key=lambda size: len(sizes[size]))]


def next_token(tokenizer: Any, text: str, word: str) -> int:
    """First token of a word that follows a text."""
    before, after = read_text(tokenizer, text).ids, read_text(tokenizer, f"{text} {word}").ids
    if after[: len(before)] != before:
        raise ValueError(f"tokenizer joins {word!r} with the text before it: use another wording or tokenizer")
    return after[len(before)]
