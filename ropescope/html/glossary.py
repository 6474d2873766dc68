"""Words of the field, explained where they are used: the first of each in a text gets its definition on hover and on focus."""

from __future__ import annotations

import re

PLANES = "RoPE turns pairs of coordinates, the planes, each at its own speed: fast ones tell neighbours apart, slow ones don't."
GLOSSARY = {
    "positional": "A positional head looks at places: when two tokens change places, its attention stays where it was.",
    "symbolic": "A symbolic head looks at things: when two tokens change places, its attention follows them.",
    "pure": "A pure head is one thing only: one of its two scores is near 1 and the other near 0.",
    "mixed": "A mixed head is neither clearly positional nor clearly symbolic on these prompts.",
    "purity": "How close a head is to being purely positional or purely symbolic: 1 if it is one of both.",
    "RoPE": "Rotary position embedding: queries and keys are turned by an angle that grows with their place, plane by plane.",
    "RoPE planes": PLANES,
    "planes": PLANES,
    "frequency": "How far RoPE turns a plane from one token to the next, in radians.",
    "frequencies": "How far RoPE turns each plane from one token to the next, in radians.",
    "attention head": "A part of a transformer layer that decides from which earlier tokens the current one takes information.",
    "logit": "What a head computes for a token before the softmax turns it into a weight: the higher, the more attention.",
    "logits": "What a head computes for tokens before the softmax turns them into weights: the higher, the more attention.",
    "binding prompts": "Short lists of facts, such as “Kelly likes yellow.”, with a question about one of them.",
    "Index": "A task about places: read the item that stands so many places back.",
    "Retrieval": "A task about things: read what stands beside a given symbol, wherever it is.",
    "partial induction": "A task about both: find the last occurrence of a symbol and read what follows it.",
    "number task": "Follow a path whose tokens say how many places to go back: it needs positional heads.",
    "letter task": "Follow a path whose tokens name the letter to go to: it needs symbolic heads.",
    "hop": "One step along the path of a number or letter task; inputs have one to four of them.",
    "hops": "Steps along the path of a number or letter task; inputs have one to four of them.",
    "swap": "Two tokens, or two sentences, change places; the scores compare attention before and after.",
    "temperature": "τ: how strongly the scores count swaps that move much attention more than those that move little.",
    "gap": "By how much the logit of the right token is above all others: a head with a larger gap makes fewer mistakes.",
    "log n": "The logarithm of the input's length: logits multiplied by it keep attention sharp on long inputs.",
    "screening": "A short test with easy questions that a chat model must pass before its answers say anything.",
    "scoreboard": "Every claim of both papers, and some of ours, with its value, ours and a verdict that a rule computes.",
    "perplexity": "How surprised a language model is by a text: the lower, the better.",
}  # fmt: skip
"""Definitions by word, as it stands in texts."""
WORDS = re.compile(r"(?<![\w-])(" + "|".join(map(re.escape, sorted(GLOSSARY, key=len, reverse=True))) + r")(?![\w-])")


def explained(text: str) -> list[tuple[str, bool]]:
    """A text in pieces; True for those that are words of the glossary, the first time that each of them occurs.

    >>> from ropescope.html.glossary import explained
    >>> explained("Is it positional, or not positional?")
    [('Is it ', False), ('positional', True), (', or not positional?', False)]
    """
    pieces: list[tuple[str, bool]] = []
    seen: set[str] = set()
    start = 0
    for found in WORDS.finditer(text):
        if (about := GLOSSARY[found[0]]) not in seen:
            seen.add(about)
            pieces += [(text[start : found.start()], False), (found[0], True)]
            start = found.end()
    return [(piece, known) for piece, known in [*pieces, (text[start:], False)] if piece]
