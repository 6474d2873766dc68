"""Long prompts that ask for something said far back: facts or pass keys between sentences of prose, several questions on each.

All questions on one context share its tokens, so a model reads them once and answers every question from there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .multihop import require_at_least
from .texts import SENTENCE_END
from .tokenized import leading_ids, read_text, require_fast, words_of_equal_length
from .words import LIKED, NAMES

SAYS = {
    "binding": ("{} likes {}.", "Recall the facts: {} likes"),
    "passkey": ("The pass key of {} is {}.", "Recall the pass keys: The pass key of {} is"),
}
"""What each kind of prompt says, and how it asks: name and thing, or name and five digits."""
LAST = 0.85
"""Facts are spread over this part of the context, so that even the last is outside a window at its end."""


@dataclass(frozen=True)
class Question:
    """A question on a context.

    ids      tokens after the context, the answer's included
    answer   how many tokens of it are the answer, at its end
    source   range of the answer's tokens in the context, where it is said
    """

    ids: tuple[int, ...]
    answer: int
    source: tuple[int, int]


@dataclass(frozen=True)
class Context:
    """Tokens that all questions share, BOS included, and the questions."""

    ids: tuple[int, ...]
    questions: tuple[Question, ...]


def retrieval_contexts(
    tokenizer: Any, kind: str, texts: Sequence[str], questions: int, tokens: int = 1000, seed: int = 0
) -> list[Context]:
    """A context of each text, with so many facts between its sentences, and a question about each of them.

    Contexts are cut to the length of the shortest, so that a model reads them in one batch, unless that would cut off a fact.

    tokenizer  a fast tokenizer of `transformers`
    kind       "binding" (who likes what) or "passkey" (five digits for each name)
    texts      prose; at most `tokens` of each context are used
    questions  facts in each context, each asked about once
    seed       of names, answers and their order

    Raises ValueError if the tokenizer is slow or joins an answer with the text before it, or a text has too few sentences.

    >>> from ropescope.tasks.retrieval import retrieval_contexts
    >>> import ropescope as rs
    >>> from transformers import AutoTokenizer
    >>> tokenizer = AutoTokenizer.from_pretrained("weights/smollm2-135m")
    >>> context = retrieval_contexts(tokenizer, "passkey", rs.prose(1), 3, tokens=300)[0]
    >>> tokenizer.decode(context.questions[0].ids).strip()
    'Recall the pass keys: The pass key of ... is ...'
    """
    require_fast(tokenizer)
    require_at_least("questions", questions, 2)
    if kind not in SAYS:
        raise ValueError(f"kind must be one of {', '.join(SAYS)}, not {kind!r}")
    rng = np.random.default_rng([seed, sorted(SAYS).index(kind)])
    names = list(words_of_equal_length(tokenizer, NAMES, "Facts: {} likes music.", questions))
    things = list(words_of_equal_length(tokenizer, LIKED, "Facts: Alice likes {}.", questions, distinct=True))
    if min(len(names), len(things)) < questions:
        raise ValueError(f"questions is {questions}, but this tokenizer has only {len(names)} names and {len(things)} things")
    found = []
    for text in texts:
        people = [names[n] for n in rng.permutation(len(names))[:questions]]
        if kind == "binding":
            said = [things[n] for n in rng.permutation(len(things))[:questions]]
        else:
            said = [str(n) for n in rng.choice(90_000, questions, replace=False) + 10_000]
        found.append(_context(tokenizer, kind, _cut(tokenizer, text, tokens, questions), list(zip(people, said, strict=True))))
    shortest = min((len(context.ids) for context in found), default=0)
    if any(question.source[1] > shortest for context in found for question in context.questions):
        return found
    return [replace(context, ids=context.ids[:shortest]) for context in found]


def _cut(tokenizer: Any, text: str, tokens: int, questions: int) -> list[str]:
    """Sentences of a text that leave room for facts and a question; those that are too long for the rest are left out."""
    room, sentences = tokens - 14 * questions - 24, []
    for sentence in SENTENCE_END.split(text):
        size = len(tokenizer(f" {sentence}", add_special_tokens=False)["input_ids"])
        if size <= room:
            sentences.append(sentence)
            room -= size
    if len(sentences) < 2:
        raise ValueError(
            f"a text has no two sentences in {tokens} tokens beside {questions} facts: use more tokens or fewer facts"
        )
    return sentences


def _context(tokenizer: Any, kind: str, sentences: list[str], facts: list[tuple[str, str]]) -> Context:
    says, asks = SAYS[kind]
    after = [int((n + 0.5) * LAST * len(sentences) / len(facts)) for n in range(len(facts))]
    parts: list[str] = []
    for number, sentence in enumerate(sentences):
        parts += [sentence, *(says.format(*fact) for fact, place in zip(facts, after, strict=True) if place == number)]
    text, front = " ".join(parts) + "\n\n", leading_ids(tokenizer)
    before = [read_text(tokenizer, text + asks.format(name), front).ids for name, _ in facts]
    whole = [read_text(tokenizer, f"{text}{asks.format(*fact)} {fact[1]}", front) for fact in facts]
    for start, read, (_, said) in zip(before, whole, facts, strict=True):
        if read.ids[: len(start)] != start:
            raise ValueError(f"tokenizer joins {said!r} with the text before it: use another wording or tokenizer")
    # The longest start that all share, and that ends before the question.
    inside = int((whole[0].first < len(text.rstrip())).sum())
    shared = next((n for n in range(inside) if len({read.ids[n] for read in whole}) > 1), inside)
    questions = []
    for start, read, fact in zip(before, whole, facts, strict=True):
        place = text.index(says.format(*fact)) + says.format(*fact).rindex(fact[1])
        inside_fact = np.flatnonzero((read.last >= place) & (read.first < place + len(fact[1])))
        source = int(inside_fact[0]), int(inside_fact[-1]) + 1
        questions.append(Question(tuple(read.ids[shared:]), len(read.ids) - len(start), source))
    return Context(tuple(whole[0].ids[:shared]), tuple(questions))


def contexts_hash(contexts: Sequence[Context]) -> str:
    """The hash of all token ids and answers."""
    known = [[each.ids, [[question.ids, question.answer] for question in each.questions]] for each in contexts]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()
