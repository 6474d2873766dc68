"""Prompts of ordinary text: which of its tokens, lines, sentences or examples can change places.

The tokenizer is an argument, any fast tokenizer of `transformers`, so `transformers` is not imported here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .prompts import Prompt, made_prompt, single_tokens
from .tokenized import Reading, leading_ids, line_ranges, read_text, require_fast, token_range

TextBlocks: TypeAlias = str | re.Pattern[str] | Sequence[str]
"""What moves in a text: "token", "line", "sentence", a separator, or the strings themselves."""
ABBREVIATIONS = r"(?<!\bMr\.)(?<!\bMrs\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\b[A-Z]\.)"
SENTENCE_END = re.compile(
    rf"(?:(?<=[.!?])|(?<=[.!?][\"')\]\u201d\u2019])){ABBREVIATIONS}\s+(?=[\"'(\[\u201c\u2018]?[A-Z0-9])|\n\s*"
)
"""Space between two sentences: after a full stop, question mark or exclamation mark, or at the end of a line."""


def text_prompts(
    tokenizer: Any,
    text: str | Iterable[str | Sequence[str]],
    blocks: TextBlocks = "line",
    move_first: bool = False,
    longest: int | None = None,
) -> list[Prompt]:
    """A prompt of each text, unchanged; its last token is the query.

    tokenizer   a fast tokenizer of `transformers`
    text        one text, or several; a list of strings in place of a text is joined, and each string but the last is a block,
                as for few-shot examples
    blocks      what moves: "token", "line" or "sentence"; a separator, as text or as a compiled regular expression, whose
                pieces move with the separator after them; or a list of the strings that move, in the order of every text
    move_first  move the first token, too
    longest     cut texts to so many tokens

    The first token never moves, be it BOS or a word, because heads put the attention that they do not need on it: a block that
    starts with it moves without it. The block that the query belongs to does not move.

    Raises ValueError for the same tokenizers as `binding_prompts`, or if a text is empty, does not hold the separator or the
    strings, or has fewer than two blocks.

    >>> import ropescope as rs
    >>> from transformers import AutoTokenizer
    >>> tokenizer = AutoTokenizer.from_pretrained("weights/smollm2-135m")
    >>> text = "Colours:\\nmilk is white\\ncoal is black\\ngrass is green\\ncoal is"
    >>> prompt = rs.text_prompts(tokenizer, text)[0]
    >>> ["".join(prompt.tokens[start:stop]) for start, stop in prompt.blocks]  # the first token stays
    ['ours:\\n', 'milk is white\\n', 'coal is black\\n', 'grass is green\\n']
    >>> examples = ["Examples.\\n", "2 + 2 = 4\\n", "3 + 5 = 8\\n", "1 + 6 ="]  # few-shot examples
    >>> len(rs.text_prompts(tokenizer, [examples])[0].blocks)
    3
    """
    texts = [text] if isinstance(text, str) else text
    return [text_prompt(tokenizer, each, number, blocks, move_first, longest) for number, each in enumerate(texts)]


def text_prompt(
    tokenizer: Any, text: str | Sequence[str], number: int, blocks: TextBlocks, move_first: bool, longest: int | None
) -> Prompt:
    """The prompt of one text, as `text_prompts` makes it; errors name its number."""
    require_fast(tokenizer)
    front, whole = leading_ids(tokenizer), _whole(text, number)
    read = _cut(read_text(tokenizer, whole, front), longest)
    if not isinstance(text, str):
        edges = list(pairwise([0, *accumulate(map(len, text))]))
        name, ranges = "example", [token_range(read, *edge) for edge in edges[:-1] if _inside(read, edge)]
    else:
        name, ranges = _ranges(read, whole, blocks, move_first, number)
    # The text itself may start with BOS.
    first = max(len(front), 0 if move_first else 1)
    ranges = [(max(begin, first), end) for begin, end in ranges if first < end < len(read.ids)]
    if len(ranges) < 2:
        have = f"{len(ranges)} {name}{'' if len(ranges) == 1 else 's'}"
        raise ValueError(f"text {number} has {have} before the last that may change places: give at least 2 or other blocks")
    return made_prompt(tokenizer, read, ranges, about={"kind": "text", "blocks": name, "chat": False})


def _whole(given: Any, number: int) -> str:
    parts = [given] if isinstance(given, str) else given
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"text {number} must be a string, or a list of strings of which each but the last is a block")
    if not (whole := "".join(parts)).strip():
        raise ValueError(f"text {number} is empty: give some words")
    return whole


def _cut(read: Reading, longest: int | None) -> Reading:
    if longest is None or len(read.ids) <= longest:
        return read
    if longest < 4:
        raise ValueError(f"longest must be at least 4 tokens, not {longest}")
    return Reading(read.text, read.ids[:longest], read.tokens[:longest], read.first[:longest], read.last[:longest])


def _inside(read: Reading, edge: tuple[int, int]) -> bool:
    """Whether some token of the text, which may be cut, starts at or after the end of a part of it."""
    return bool((read.first >= edge[1]).any())


def _ranges(read: Reading, text: str, blocks: TextBlocks, move_first: bool, number: int) -> tuple[str, list[tuple[int, int]]]:
    """What the blocks of a text are called, and their ranges of tokens."""
    if blocks == "token":
        return "token", list(single_tokens(len(read.ids), move_first))
    if blocks == "sentence":
        starts = [0, *(found.end() for found in SENTENCE_END.finditer(text) if found.end() < len(text))]
        # A token that joins two sentences belongs to the one in which it starts.
        edges = np.searchsorted(read.first, starts).tolist()
        return "sentence", [(begin, end) for begin, end in pairwise(edges) if begin < end]
    if blocks == "line":
        return "line", [token_range(read, *line) for line in line_ranges(text)[:-1] if _inside(read, line)]
    if isinstance(blocks, str | re.Pattern):
        pattern = re.compile(re.escape(blocks)) if isinstance(blocks, str) else blocks
        ends = [found.end() for found in pattern.finditer(text) if found.end() > found.start()]
        if not ends:
            raise ValueError(
                f"blocks must be 'token', 'line', 'sentence' or a separator; {pattern.pattern!r} is not in text {number}"
            )
        pieces = [edge for edge in pairwise([0, *ends]) if text[slice(*edge)].strip() and _inside(read, edge)]
        return "block", [token_range(read, *edge) for edge in pieces]
    edges, at = [], 0
    for part in blocks:
        if not isinstance(part, str) or not part.strip() or (start := text.find(part, at)) < 0:
            raise ValueError(f"blocks: {part!r} is not in text {number}, or not after the one before it")
        at = start + len(part)
        edges.append((start, at))
    return "block", [token_range(read, *edge) for edge in edges if _inside(read, edge)]


def text_ids(tokenizer: Any, text: str) -> tuple[NDArray[np.int64], int]:
    """Token ids of a text, including those that the model's family puts in front of every text, and the number of these."""
    if tokenizer is None:
        raise ValueError("the model comes without a tokenizer, which a text needs")
    require_fast(tokenizer)
    front = leading_ids(tokenizer)
    return np.array(read_text(tokenizer, text, front).ids, dtype=np.int64), len(front)


def prose(count: int | None = None) -> list[str]:
    """Passages of English prose in the public domain, of 330 to 460 words each, to profile models on.

    count  how many; all eight by default

    They open Alice's Adventures in Wonderland, A Scandal in Bohemia, A Tale of Two Cities, Frankenstein, The Time Machine,
    Moby-Dick, Pride and Prejudice and Walden.

    Raises ValueError if there are not so many.

    >>> import ropescope as rs
    >>> rs.prose(1)[0][:40]
    'Alice was beginning to get very tired of'
    """
    found = sorted(
        (entry for entry in files("ropescope").joinpath("bundled", "prose").iterdir() if entry.name.endswith(".txt")),
        key=lambda entry: entry.name,
    )
    if count is not None and not 1 <= count <= len(found):
        raise ValueError(f"count must be from 1 to {len(found)}, the number of passages, not {count}")
    return [entry.read_text(encoding="utf-8").rstrip("\n") for entry in found[:count]]
