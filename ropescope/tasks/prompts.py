"""Prompts for language models: facts to recall, the multi-hop tasks in English, your own token ids. `texts` makes them of text.

A prompt knows which of its tokens can change places. Its blocks are exactly its sentences, items or lines. The tokenizer is an
argument, any fast tokenizer of `transformers`, so `transformers` is not imported here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..inputs import shown, whole, whole_array
from .multihop import require_at_least
from .registry import task_class
from .tokenized import (
    Reading,
    leading_ids,
    next_token,
    read_text,
    token_range,
    use_chat_template,
    words_of_equal_length,
)
from .words import LIKED, NAMES

FACTS = "Facts:"
"""Text before the sentences, so that the first sentence starts with a space like all others."""

CUES = {
    "recall": "Recall the facts:",
    "question": "Question: What does {} like? Answer:",
}
"""Text between the sentences and the one to complete. Small models are right more often with "recall"."""


@dataclass(frozen=True, eq=False)
class Prompt:
    """One input of a language model.

    ids      all token ids, including BOS and the chat template; the last one is the query
    blocks   half-open ranges of tokens that can change places, in order; neither BOS nor the question belongs to one
    tokens   text of each token; joined, they are the whole text
    answer   id of the correct next token, which is the first token of the answer
    choices  ids of the first tokens of all answers that the prompt offers, without duplicates
    about    how the prompt was made
    queries  positions of the queries to score, in order; the last token alone if empty

    Raises ValueError if ids or blocks are not whole numbers.

    >>> import numpy as np, ropescope as rs
    >>> prompt = rs.Prompt(ids=np.arange(9), blocks=((1, 4), (4, 7)), tokens=tuple("abcdefghi"))  # your own token ids
    >>> len(prompt)
    9
    """

    ids: NDArray[np.int64]
    blocks: tuple[tuple[int, int], ...]
    tokens: tuple[str, ...]
    answer: int | None = None
    choices: tuple[int, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)
    queries: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", whole_array("ids", self.ids))
        try:
            blocks = tuple((whole("blocks", start), whole("blocks", stop)) for start, stop in self.blocks)
        except (TypeError, ValueError):
            raise ValueError(f"blocks must be pairs (start, stop) of whole numbers, not {shown(self.blocks)}") from None
        object.__setattr__(self, "blocks", blocks)

    def __len__(self) -> int:
        return len(self.ids)


def as_prompt(prompt: Any, move_first: bool = False) -> Prompt:
    """A `Prompt` as it is, or one of token ids: all are blocks but the first, on which heads rest, and the last, the query."""
    if isinstance(prompt, Prompt):
        return prompt
    if isinstance(prompt, str | bytes):
        raise ValueError("a prompt is a text, which needs a tokenizer: give one, or token ids")
    ids = whole_array("token ids of a prompt", prompt)
    least = 3 if move_first else 4
    if ids.ndim != 1 or len(ids) < least:
        raise ValueError(f"a prompt must be one sequence of at least {least} token ids, not of shape {ids.shape}")
    if not 0 <= ids.min() <= ids.max() < 2**31:
        raise ValueError(f"a prompt holds {ids.min() if ids.min() < 0 else ids.max()}, which is no token id")
    return Prompt(ids, single_tokens(len(ids), move_first), tuple(map(str, ids.tolist())))


def single_tokens(tokens: int, move_first: bool = False) -> tuple[tuple[int, int], ...]:
    """Every token of a text as a block, except the query, which is the last, and the first token.

    Heads put attention that they do not need on the first token, whatever it is. If it moved, most scores would describe it.
    """
    return tuple((p, p + 1) for p in range(0 if move_first else 1, tokens - 1))


def binding_prompts(
    tokenizer: Any,
    count: int,
    pairs: int = 24,
    seed: int = 0,
    lengths: str = "equal",
    chat: bool | None = None,
    cue: str = "recall",
) -> list[Prompt]:
    """Prompts of sentences like "Alice likes red." (the blocks), followed by the start of one of them: "Alice likes".

    tokenizer  a fast tokenizer of `transformers`
    count      number of prompts
    pairs      number of sentences in each
    seed       seed of the random choices
    lengths    "equal": all sentences have the same number of tokens; "unequal": half of the people have a second name
    chat       use the tokenizer's chat template, with the answer already started; by default, if there is a template
    cue        "recall", or "question" to ask the question in words

    Names are all different, and so are the things people like as long as there are enough of the same length in tokens. The
    sentences asked about are balanced over places and over answers, to within one.

    Raises ValueError if the tokenizer is slow, merges sentences with the text around them or has too few names of one length;
    if a chat template is missing or changes the message; or if another argument is invalid.

    >>> import ropescope as rs
    >>> from transformers import AutoTokenizer
    >>> tokenizer = AutoTokenizer.from_pretrained("weights/smollm2-135m")
    >>> prompt = rs.binding_prompts(tokenizer, 1, pairs=3, chat=False)[0]
    >>> "".join(prompt.tokens)
    'Facts: ...'
    >>> start, stop = prompt.blocks[0]
    >>> "".join(prompt.tokens[start:stop])
    ' ... likes ....'
    """
    require_at_least("count", count, 1)
    require_at_least("pairs", pairs, 2)
    if lengths not in ("equal", "unequal"):
        raise ValueError(f"lengths must be 'equal' or 'unequal', not {lengths!r}")
    if cue not in CUES:
        raise ValueError(f"cue must be 'recall' or 'question', not {cue!r}")
    chat = use_chat_template(tokenizer, chat)
    seconds = pairs // 2 if lengths == "unequal" else 0
    names = _names(tokenizer, pairs, pairs + seconds)
    first = words_of_equal_length(tokenizer, LIKED, FACTS + " Alice likes {}.", pairs, distinct=True)
    return [
        _prompt(
            tokenizer,
            chat,
            before=FACTS,
            items=[f"{person} likes {thing}." for person, thing in zip(people, liked, strict=True)],
            question=CUES[cue].format(people[asked]),
            begun=f"{people[asked]} likes",
            right=liked[asked],
            choices=[first[thing] for thing in liked],
            about={"kind": "binding", "pairs": pairs, "asked": asked, "entity": people[asked], "attribute": liked[asked]}
            | {"lengths": lengths, "cue": cue},
        )
        for people, liked, asked in _draw_facts(names, list(first), count, pairs, seconds, seed)
    ]


def _names(tokenizer: Any, pairs: int, wanted: int) -> list[str]:
    """Names that have the same number of tokens, at least `wanted`."""
    names = list(words_of_equal_length(tokenizer, NAMES, FACTS + " {} likes music.", wanted))
    if len(names) < wanted:
        raise ValueError(
            f"pairs is {pairs}, but this tokenizer has only {len(names)} names of one length in tokens: "
            f"use at most {len(names) if wanted == pairs else len(names) * 2 // 3} pairs"
        )
    return names


def _draw_facts(
    names: Sequence[str], things: Sequence[str], count: int, pairs: int, seconds: int, seed: int
) -> Iterator[tuple[list[str], list[str], int]]:
    """People, what each likes, and the index of the person asked about, for each prompt."""
    rng = np.random.default_rng(seed)
    places = rng.permutation((rng.random() + np.arange(count)) * pairs // count).astype(np.int64)
    answers = rng.permutation(len(things))[np.arange(count) % len(things)]
    for asked, answer in zip(places.tolist(), answers, strict=True):
        people = [names[i] for i in rng.permutation(len(names))[: pairs + seconds]]
        for i, second in zip(rng.permutation(pairs), people[pairs:], strict=False):
            people[i] += f" {second}"
        others = rng.permutation(np.delete(np.arange(len(things)), answer))
        again = [rng.permutation(len(things)) for _ in range(pairs // len(things))]
        liked = [things[i] for i in np.insert(np.concatenate((others, *again))[: pairs - 1], asked, answer)]
        yield people[:pairs], liked, asked


def task_prompts(
    tokenizer: Any,
    task: str,
    count: int,
    hops: int = 1,
    seed: int = 0,
    targets: int = 8,
    stops: int = 8,
    chat: bool | None = None,
) -> list[Prompt]:
    """Prompts of sequences of a multi-hop task, after its rule and one example; the items before the query item are blocks.

    task     "number" or "letter"
    hops     length of every path
    targets  number of items that can be answers
    stops    number of items that point to other items

    Other arguments are those of `binding_prompts`. Letters of the number task are a to z; otherwise the sequences are those of
    the task.

    Raises ValueError for the same tokenizers as `binding_prompts`, or if there is no such task or its sizes are invalid.

    >>> import ropescope as rs
    >>> from transformers import AutoTokenizer
    >>> tokenizer = AutoTokenizer.from_pretrained("weights/smollm2-135m")
    >>> prompt = rs.task_prompts(tokenizer, "number", 1, chat=False)[0]
    >>> len(prompt.blocks), prompt.about["hops"]
    (16, 1)
    """
    require_at_least("count", count, 1)
    rule = task_class(task).for_prompts(targets, stops, hops)
    chat = use_chat_template(tokenizer, chat)
    # Example and prompts come from one draw, so the example is none of the prompts. Hop classes have equal size.
    samples = rule.sample((count + 1) * hops, seed)
    samples = samples[samples.hops == hops]
    written = [rule.decode(row) for row in samples.tokens]
    answers = rule.decode(samples.answer)
    before = f"{rule.wording.rule} Example: {' '.join(written[-1])} Answer: {answers[-1]}. Now you:"
    begun, prompts = "Answer:", []
    first = {item: next_token(tokenizer, begun, item) for item in sorted({item for row in written for item in row[:targets]})}
    for items, answer, path in zip(written[:-1], answers, samples.path, strict=False):
        about = {"kind": task, "hops": hops, "sequence": " ".join(items), "answer": answer, "path": path.tolist()}
        choices = [first[item] for item in items[:targets]]
        prompts.append(_prompt(tokenizer, chat, before, items[:-1], items[-1], begun, answer, choices, about))
    return prompts


def prompts_hash(prompts: Sequence[Prompt]) -> str:
    """The hash of all token ids, blocks and queries, which change with wording, tokenizer and chat template."""
    known = [[prompt.ids.tolist(), prompt.blocks, *([prompt.queries] if prompt.queries else [])] for prompt in prompts]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()


def id_prompts(entries: Any, name: str = "prompts", move_first: bool = False) -> list[Prompt]:
    """Prompts from token ids, in the format of a JSON file.

    entries     for each prompt a list of ids, of which every one but the first, on which heads rest, and the last, the query,
                is a block of its own; or {"ids": [...], "blocks": [[start, stop], ...]} with half-open ranges that can move
    name        name of the entries in error messages
    move_first  move the first token, too, where blocks are not given

    Raises ValueError if an entry has fewer than three ids, or its blocks are not at least two ranges in order before the query.

    >>> import ropescope as rs
    >>> rs.id_prompts([[5, 3, 8, 1], {"ids": [0, 5, 3, 8, 1], "blocks": [[1, 3], [3, 4]]}])[1].blocks
    ((1, 3), (3, 4))
    """
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{name} must hold a list of prompts, each a list of token ids")
    prompts = []
    for number, entry in enumerate(entries):
        ids, blocks = (entry.get("ids"), entry.get("blocks")) if isinstance(entry, dict) else (entry, None)
        if not isinstance(ids, list) or not _whole_numbers(ids) or len(ids) < 3:
            raise ValueError(f"prompt {number} of {name} must be at least 3 token ids: whole numbers from 0 on")
        if blocks is None:
            blocks = [list(block) for block in single_tokens(len(ids), move_first)]
        pairs = isinstance(blocks, list) and all(_whole_numbers(block) and len(block) == 2 for block in blocks)
        edges = [edge for block in blocks for edge in block] if pairs else []
        in_order = all(one < other for one, other in blocks) and edges == sorted(edges) if pairs else False
        if not in_order or len(blocks) < 2 or edges[-1] > len(ids) - 1:
            raise ValueError(
                f"blocks of prompt {number} of {name} must be at least 2 ranges [start, stop], in order, before the last token"
            )
        about = {"kind": "ids", "chat": False}
        ranges = tuple((one, other) for one, other in blocks)
        prompts.append(Prompt(np.array(ids, dtype=np.int64), ranges, tuple(map(str, ids)), about=about))
    return prompts


def _whole_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**31 for value in values)


def check_fits(prompts: Sequence[Prompt], context: int | None, vocabulary: int | None) -> None:
    """Raise ValueError if a prompt is longer than the model's context or has tokens outside its vocabulary."""
    for number, prompt in enumerate(prompts):
        if context is not None and len(prompt) > context:
            raise ValueError(
                f"prompt {number} has {len(prompt):,} tokens but the model reads at most {context:,}: "
                f"use fewer pairs or items, or a shorter text"
            )
        if vocabulary is not None and int(prompt.ids.max()) >= vocabulary:
            raise ValueError(
                f"prompt {number} has the token {prompt.ids.max():,} but the model has {vocabulary:,} tokens, from 0 on"
            )


def _prompt(
    tokenizer: Any,
    chat: bool,
    before: str,
    items: Sequence[str],
    question: str,
    begun: str,
    right: str,
    choices: Sequence[int],
    about: dict[str, Any],
) -> Prompt:
    """A prompt of `before`, the items, the question and the start of an answer, which the word `right` continues."""
    message = " ".join((before, *items, question))
    text = f"{message} {begun}"
    if chat:
        # Some templates insert today's date, or make the model think first.
        settings = {"add_generation_prompt": True, "date_string": "1 Jan 2025", "enable_thinking": False}
        text = tokenizer.apply_chat_template([{"role": "user", "content": message}], tokenize=False, **settings) + begun
        if text.count(message) != 1:
            raise ValueError("chat template of this tokenizer changes the message: use chat=False")
    read = read_text(tokenizer, text, leading_ids(tokenizer))
    at, blocks = text.index(message) + len(before), []
    for item in items:
        blocks.append(token_range(read, at, at + 1 + len(item)))
        at += 1 + len(item)
    answer = next_token(tokenizer, text, right)
    if answer not in choices:
        raise ValueError(f"tokenizer splits {right!r} differently at different places: use another wording or tokenizer")
    return made_prompt(tokenizer, read, blocks, answer, tuple(sorted(set(choices))), about | {"chat": chat})


def made_prompt(
    tokenizer: Any,
    read: Reading,
    blocks: Sequence[tuple[int, int]],
    answer: int | None = None,
    choices: tuple[int, ...] = (),
    about: dict[str, Any] | None = None,
) -> Prompt:
    """The prompt of a text that a tokenizer has read."""
    bos = tokenizer.bos_token if tokenizer.bos_token_id in leading_ids(tokenizer) else None
    return Prompt(np.array(read.ids), tuple(blocks), tuple(read.tokens), answer, choices, (about or {}) | {"bos": bos})
