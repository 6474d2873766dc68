"""Prompts for language models: sentences to look something up in, the number and letter tasks in words, texts of one's own.

A prompt knows which of its tokens may change places: its blocks, which are exactly its sentences, items or lines. The
tokenizer is handed in: any fast one of `transformers`, which is not imported here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .letter import LetterTask
from .multihop import MultihopTask, require_at_least
from .number import NumberTask
from .words import LIKED, NAMES

LONGEST_FILE = 64 << 20
"""Bytes of a file of prompts."""
FACTS = "Facts:"
"""Stands before the sentences, so that the first one begins like all others: with a space."""

RULES = {
    "number": "Each number says how many places to go back. Start at the last item and go back until you reach a letter.",
    "letter": "Each pair of letters leads to the earlier pair that begins with its second letter. "
    "Start at the last pair and go on until you reach a letter with a digit.",
}

CUES = {
    "recall": "Recall the facts:",
    "question": "Question: What does {} like? Answer:",
}
"""What comes between the sentences and the one begun again. The smallest models are right more often when they recall."""

OPENERS = ("<bos>", "<|begin_of_text|>")
"""BOS of families that always learned with one: put in front even if the tokenizer, like that of a GGUF file, does not."""


@dataclass(frozen=True, eq=False)
class Prompt:
    """One input of a language model.

    ids      all tokens, those of BOS and chat template too; the query is the last one
    blocks   half-open ranges of tokens that may change places, in order; never BOS, never the question
    tokens   the text of each token; together they are the whole text
    answer   id of the right next token: the first one of the answer
    choices  ids of the first tokens of all answers that the prompt offers, each once
    about    how the prompt was made

    >>> import numpy as np, ropescope as rs
    >>> prompt = rs.Prompt(ids=np.arange(9), blocks=((1, 4), (4, 7)), tokens=tuple("abcdefghi"))  # of token ids of your own
    >>> len(prompt)
    9
    """

    ids: NDArray[np.int64]
    blocks: tuple[tuple[int, int], ...]
    tokens: tuple[str, ...]
    answer: int | None = None
    choices: tuple[int, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)


def as_prompt(prompt: Any) -> Prompt:
    """Token ids as a prompt whose tokens move one by one; the first, on which heads rest, and the query stay."""
    if isinstance(prompt, Prompt):
        return prompt
    ids = np.asarray(prompt, dtype=np.int64)
    if ids.ndim != 1 or len(ids) < 4:
        raise ValueError(f"a prompt must be one sequence of at least 4 token ids, not of shape {ids.shape}")
    return Prompt(ids, tuple((p, p + 1) for p in range(1, len(ids) - 1)), tuple(map(str, ids.tolist())))


def binding_prompts(
    tokenizer: Any,
    count: int,
    pairs: int = 24,
    seed: int = 0,
    lengths: str = "equal",
    chat: bool | None = None,
    cue: str = "recall",
) -> list[Prompt]:
    """Sentences like "Alice likes red.", which are the blocks, and one of them begun again: "Alice likes".

    tokenizer  a fast one of `transformers`
    count      how many prompts
    pairs      sentences of each
    seed       of the drawing
    lengths    "equal": all sentences have the same number of tokens; "unequal": half of the people have a second name
    chat       use the tokenizer's chat template, the model having begun to answer; unless given, if there is one
    cue        "recall", or "question" to have the question asked in words

    Everybody has another name and likes another thing, as far as there are enough things of one length in tokens. Counts of
    the sentences asked about differ by at most one over places, and over answers.

    Raises ValueError if the tokenizer is slow, joins sentences with what is around them, or has too few names of one length,
    if a chat template is asked for where there is none or changes the message, or another argument is not allowed.

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
    _require_fast(tokenizer)
    chat = _with_template(tokenizer, chat)
    seconds = pairs // 2 if lengths == "unequal" else 0
    names = list(_of_one_length(tokenizer, NAMES, FACTS + " {} likes music.", pairs + seconds))
    first = _of_one_length(tokenizer, LIKED, FACTS + " Alice likes {}.", pairs, told_apart=True)
    things = list(first)
    if len(names) < pairs + seconds:
        raise ValueError(
            f"pairs is {pairs}, but this tokenizer has only {len(names)} names of one length in tokens: "
            f"use at most {len(names) if lengths == 'equal' else len(names) * 2 // 3} pairs"
        )

    rng = np.random.default_rng(seed)
    places = rng.permutation((rng.random() + np.arange(count)) * pairs // count).astype(np.int64)
    answers = rng.permutation(len(things))[np.arange(count) % len(things)]
    prompts = []
    for asked, answer in zip(places, answers, strict=True):
        people = [names[i] for i in rng.permutation(len(names))[: pairs + seconds]]
        for i, second in zip(rng.permutation(pairs), people[pairs:], strict=False):
            people[i] += f" {second}"
        others = rng.permutation(np.delete(np.arange(len(things)), answer))
        again = [rng.permutation(len(things)) for _ in range(pairs // len(things))]
        liked = [things[i] for i in np.insert(np.concatenate((others, *again))[: pairs - 1], asked, answer)]
        who, what = people[asked], liked[asked]
        about = {"kind": "binding", "pairs": pairs, "asked": int(asked), "entity": who, "attribute": what}
        about |= {"lengths": lengths, "cue": cue}
        prompts.append(
            _prompt(
                tokenizer,
                chat,
                before=FACTS,
                items=[f"{person} likes {thing}." for person, thing in zip(people, liked, strict=False)],
                question=CUES[cue].format(who),
                begun=f"{who} likes",
                right=what,
                choices=[first[thing] for thing in liked],
                about=about,
            )
        )
    return prompts


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
    """Sequences of the "number" or "letter" task behind its rule and one example; blocks are the items before the query item.

    task     "number" or "letter"
    hops     of every path
    targets  items that may be answers
    stops    items that lead on

    Others are those of `binding_prompts`. Letters of the number task go from a to z; otherwise the sequences are those of
    the task.

    Raises ValueError as `binding_prompts` does of a tokenizer, or if the task is another or its sizes do not fit.

    >>> import ropescope as rs
    >>> from transformers import AutoTokenizer
    >>> tokenizer = AutoTokenizer.from_pretrained("weights/smollm2-135m")
    >>> prompt = rs.task_prompts(tokenizer, "number", 1, chat=False)[0]
    >>> len(prompt.blocks), prompt.about["hops"]
    (16, 1)
    """
    require_at_least("count", count, 1)
    if task not in RULES:
        raise ValueError(f"task must be 'number' or 'letter', not {task!r}")
    _require_fast(tokenizer)
    chat = _with_template(tokenizer, chat)
    rule: MultihopTask
    if task == "number":
        rule = NumberTask(targets=targets, stops=stops, hops=hops, letters=26, integers=targets + stops)
    else:
        rule = LetterTask(targets=targets, stops=stops, hops=hops, alphabet=max(8, hops + 2))
    # One seed for both, so that the example is none of the prompts: hop classes are of equal size.
    samples = rule.sample((count + 1) * hops, seed)
    samples = samples[samples.hops == hops]
    written = [rule.decode(row) for row in samples.tokens]
    answers = rule.decode(samples.answer)
    before = f"{RULES[task]} Example: {' '.join(written[-1])} Answer: {answers[-1]}. Now you:"
    begun, prompts = "Answer:", []
    first = {item: _next_token(tokenizer, begun, item) for item in sorted({item for row in written for item in row[:targets]})}
    for items, answer, path in zip(written[:-1], answers, samples.path, strict=False):
        about = {"kind": task, "hops": hops, "sequence": " ".join(items), "answer": answer, "path": path.tolist()}
        choices = [first[item] for item in items[:targets]]
        prompts.append(_prompt(tokenizer, chat, before, items[:-1], items[-1], begun, answer, choices, about))
    return prompts


def text_prompts(tokenizer: Any, text: str | Sequence[str], blocks: str = "line") -> list[Prompt]:
    """A prompt of each text as it stands; the query is its last token.

    The `text` may be several. With `blocks` "line" every line before the last is a block, with "token" every token before
    the last. BOS, where the family puts one, stays.

    Raises ValueError as `binding_prompts` does of a tokenizer, or if a text is empty or has fewer than two blocks.

    >>> import ropescope as rs
    >>> from transformers import AutoTokenizer
    >>> tokenizer = AutoTokenizer.from_pretrained("weights/smollm2-135m")
    >>> text = "milk is white\\ncoal is black\\ngrass is green\\ncoal is"
    >>> prompt = rs.text_prompts(tokenizer, text)[0]
    >>> ["".join(prompt.tokens[start:stop]) for start, stop in prompt.blocks]
    ['milk is white\\n', 'coal is black\\n', 'grass is green\\n']
    """
    if blocks not in ("line", "token"):
        raise ValueError(f"blocks must be 'line' or 'token', not {blocks!r}")
    _require_fast(tokenizer)
    front, prompts = _front(tokenizer), []
    for number, each in enumerate([text] if isinstance(text, str) else text):
        if not each.strip():
            raise ValueError(f"text {number} is empty: give some words")
        read = _read(tokenizer, each, front)
        if blocks == "token":
            ranges = [(i, i + 1) for i in range(len(read.ids) - 1)]
        else:
            ranges = [_range(read, *line) for line in _lines(each)[:-1]]
        ranges = [(max(begin, len(front)), end) for begin, end in ranges if end > len(front)]  # text may begin with BOS itself
        if len(ranges) < 2:
            have = f"{len(ranges)} {blocks}{'' if len(ranges) == 1 else 's'}"
            raise ValueError(
                f"text {number} has {have} before the last that may change places: give at least 2 or other blocks"
            )
        prompts.append(_made(tokenizer, read, ranges, about={"kind": "text", "blocks": blocks, "chat": False}))
    return prompts


def text_ids(tokenizer: Any, text: str) -> tuple[NDArray[np.int64], int]:
    """The tokens of a text with what its family puts in front of every text, and how many those are."""
    if tokenizer is None:
        raise ValueError("the model has no tokenizer beside it: a text needs one")
    _require_fast(tokenizer)
    front = _front(tokenizer)
    return np.array(_read(tokenizer, text, front).ids, dtype=np.int64), len(front)


def asked_for(
    tokenizer: Any, kind: str, *, count: int, pairs: int, lengths: str, hops: int, blocks: str, chat: bool | None, seed: int
) -> tuple[list[Prompt], dict[str, Any]]:
    """Prompts by their name, or of a file; and what they are, in a few words.

    Empty lines part the prompts of a text file. A JSON file holds token ids, for models that have no tokenizer.
    """
    if kind.endswith(".json"):
        found = id_prompts(_json(Path(kind)), kind)
        single = all(stop - start == 1 for prompt in found for start, stop in prompt.blocks)
        return found, _of_file(kind, found, "token" if single else "block")
    if tokenizer is None:
        raise ValueError("the model has no tokenizer beside it: give prompts as token ids, in a JSON file")
    if kind == "binding":
        prompts = binding_prompts(tokenizer, count, pairs, seed, lengths, chat)
        about: dict[str, Any] = {"pairs": pairs, "lengths": lengths}
    elif kind in RULES:
        prompts = task_prompts(tokenizer, kind, count, hops, seed, chat=chat)
        about = {"hops": hops}
    else:
        path = Path(kind)
        try:
            with path.open("rb") as file:
                data = file.read(LONGEST_FILE + 1)  # a device may never end
            text = data.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
            raise ValueError(
                f"prompts must be binding, number, letter, a text file or a JSON file; {kind} cannot be read: {reason}"
            ) from None
        if len(data) > LONGEST_FILE:
            raise ValueError(f"{kind} is longer than {LONGEST_FILE >> 20} MB: give fewer prompts at a time")
        parts = [part.strip("\n") for part in re.split(r"\n\s*\n", text) if part.strip()]
        if not parts:
            raise ValueError(f"{kind} is empty: give some text")
        found = text_prompts(tokenizer, parts, blocks)
        return found, _of_file(kind, found, blocks)
    about = {"kind": kind, "count": len(prompts), **about, "chat": bool(prompts[0].about["chat"]), "seed": seed}
    return prompts, about


def _of_file(name: str, prompts: Sequence[Prompt], blocks: str) -> dict[str, Any]:
    """What prompts from a file are, with a hash, as files change."""
    read = json.dumps([[prompt.ids.tolist(), prompt.blocks] for prompt in prompts]).encode()
    return {"kind": Path(name).name, "count": len(prompts), "blocks": blocks, "sha256": hashlib.sha256(read).hexdigest()}


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON ({error}): give a list of prompts, each a list of token ids") from None


def id_prompts(entries: Any, name: str = "prompts") -> list[Prompt]:
    """Prompts of token ids, as they may stand in a JSON file.

    entries  each a list of ids, whose tokens all may change places but the last, the query; or {"ids": [...], "blocks":
             [[start, stop], ...]}, with the half-open ranges that may change places
    name     what to call them when they are refused

    Raises ValueError if an entry has fewer than three ids, or its blocks are not two or more ranges in order before the query.

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
            blocks = [[p, p + 1] for p in range(len(ids) - 1)]
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


def said(about: dict[str, Any]) -> str:
    """What `asked_for` tells of its prompts, for people."""
    count, kind = about["count"], about["kind"]
    prompts = "prompt" if count == 1 else "prompts"
    if kind == "binding":
        what = f"{count} binding {prompts} of {about['pairs']} sentences, {about['lengths']} in length"
    elif kind in RULES:
        what = f"{count} {prompts} of the {kind} task, hops: {about['hops']}"
    else:
        return f"{count} {prompts} from {kind}, moving each {about['blocks']}"
    return f"{what}, {'chat template' if about['chat'] else 'plain text'}, seed {about['seed']}"


def check_fits(prompts: Sequence[Prompt], context: int | None, vocabulary: int | None) -> None:
    """Refuse prompts that a model cannot read: too long for it, or with tokens that it does not have."""
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


class _Read(NamedTuple):
    """A text as a tokenizer reads it.

    tokens  the text of each token
    first   where in the text the first character of each token is that is no space; -1 before the text
    last    where its last one is
    """

    text: str
    ids: list[int]
    tokens: list[str]
    first: NDArray[np.int64]
    last: NDArray[np.int64]


def _read(tokenizer: Any, text: str, front: Sequence[int] = ()) -> _Read:
    """The tokens of a text, behind those that belong in front of it and that it does not begin with already."""
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids = found["input_ids"]
    front = [] if ids[: len(front)] == list(front) else list(front)
    first, last, tokens, end = [], [], [], 0
    for start, stop in found["offset_mapping"]:
        # The space before a word is counted to the place of its token by some tokenizers, and not by others.
        bare = text[start:stop].strip()
        start += text[start:stop].index(bare)  # noqa: PLW2901
        first.append(start)
        last.append(start + max(len(bare) - 1, 0))
        tokens.append(text[end:stop])  # of several tokens that share a character, the first shows it
        end = max(end, stop)
    before = [-1] * len(front)
    names = tokenizer.convert_ids_to_tokens(front)
    return _Read(text, front + ids, names + tokens, np.array(before + first), np.array(before + last))


def _require_fast(tokenizer: Any) -> None:
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError("tokenizer must be a fast one of transformers: it has to tell where in the text each token is")


def _front(tokenizer: Any) -> list[int]:
    """What stands before every text of this family: what the tokenizer puts there, and BOS where it should and does not."""
    bare, whole = tokenizer("a", add_special_tokens=False)["input_ids"], tokenizer("a")["input_ids"]
    ids: list[int] = whole[: whole.index(bare[0])]
    if tokenizer.bos_token in OPENERS and tokenizer.bos_token_id not in ids:
        ids = [tokenizer.bos_token_id, *ids]
    return ids


def _range(read: _Read, start: int, stop: int) -> tuple[int, int]:
    """The tokens of a stretch of text, which must not share one with what is around it."""
    inside = np.flatnonzero((read.first >= start) & (read.first < stop))
    reaches_in = (read.first < start) & (read.last >= start)
    if not inside.size or read.last[inside].max() >= stop or reaches_in.any():
        raise ValueError(f"tokenizer joins {read.text[start:stop]!r} with the text around it: use another wording or tokenizer")
    return int(inside[0]), int(inside[-1]) + 1


def _lines(text: str) -> list[tuple[int, int]]:
    """Where each line that is not blank begins and, blank ones behind it included, ends."""
    starts, at = [], 0
    for line in text.splitlines(keepends=True):
        if line.strip():
            starts.append(at)
        at += len(line)
    return list(zip(starts, [*starts[1:], at], strict=True))


def _with_template(tokenizer: Any, chat: bool | None) -> bool:
    template = getattr(tokenizer, "chat_template", None) is not None
    if chat and not template:
        raise ValueError("chat is set but this tokenizer has no chat template: use chat=False")
    return template if chat is None else chat


def _of_one_length(tokenizer: Any, words: Sequence[str], frame: str, wanted: int, told_apart: bool = False) -> dict[str, int]:
    """Words of equally many tokens, and the first token of each: so few tokens as there are enough words of, else any number.

    Words that are to be told apart have different first tokens.
    """
    start = frame.index("{}") - 1
    sizes: dict[int, dict[str, int]] = defaultdict(dict)
    for word in words:
        read = _read(tokenizer, frame.format(word))
        begin, end = _range(read, start, start + 1 + len(word))
        same = sizes[end - begin]
        if not told_apart or read.ids[begin] not in same.values():
            same[word] = read.ids[begin]
    enough = [size for size, found in sizes.items() if len(found) >= wanted]
    return sizes[min(enough) if enough else max(sizes, key=lambda size: len(sizes[size]))]


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
    """Items between what is before them and a question, then the begun answer, which `right` should continue."""
    said = " ".join((before, *items, question))
    text = f"{said} {begun}"
    if chat:
        # Some templates would write today's date, or have the model think first.
        settings = {"add_generation_prompt": True, "date_string": "1 Jan 2025", "enable_thinking": False}
        text = tokenizer.apply_chat_template([{"role": "user", "content": said}], tokenize=False, **settings) + begun
        if text.count(said) != 1:
            raise ValueError("chat template of this tokenizer changes the message: use chat=False")
    read = _read(tokenizer, text, _front(tokenizer))
    at, blocks = text.index(said) + len(before), []
    for item in items:
        blocks.append(_range(read, at, at + 1 + len(item)))
        at += 1 + len(item)
    answer = _next_token(tokenizer, text, right)
    if answer not in choices:
        raise ValueError(f"tokenizer reads {right!r} differently at different places: use another wording or tokenizer")
    return _made(tokenizer, read, blocks, answer, tuple(sorted(set(choices))), about | {"chat": chat})


def _next_token(tokenizer: Any, text: str, word: str) -> int:
    """The first token of a word that comes after a text."""
    before, after = _read(tokenizer, text).ids, _read(tokenizer, f"{text} {word}").ids
    if after[: len(before)] != before:
        raise ValueError(f"tokenizer joins {word!r} with the text before it: use another wording or tokenizer")
    return after[len(before)]


def _made(
    tokenizer: Any,
    read: _Read,
    blocks: Sequence[tuple[int, int]],
    answer: int | None = None,
    choices: tuple[int, ...] = (),
    about: dict[str, Any] | None = None,
) -> Prompt:
    bos = tokenizer.bos_token if tokenizer.bos_token_id in _front(tokenizer) else None
    return Prompt(np.array(read.ids), tuple(blocks), tuple(read.tokens), answer, choices, (about or {}) | {"bos": bos})
