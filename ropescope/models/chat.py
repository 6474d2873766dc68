"""Questions put to a local model of `transformers`: greedy, a few tokens, many questions at once.

What all questions begin with is read once and kept as keys and values. Only questions of equally many tokens go together, so
there is no padding, and a question is answered as it would be alone.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .load import Loaded
from .remote import Said

AT_ONCE = 8192
"""Tokens of questions read together."""


class LocalChat:
    """A loaded model that answers. With a chat template the question is what the user says, without one the text goes on.

    >>> import ropescope as rs
    >>> from ropescope.models.chat import LocalChat
    >>> chat = LocalChat(rs.load_model("weights/smollm2-135m"))
    >>> [said.text for said in chat.answers(["What is the capital of France?"])]
    ['The capital of France is Paris...']
    """

    def __init__(self, loaded: Loaded) -> None:
        if loaded.tokenizer is None:
            raise ValueError("the model has no tokenizer beside it: questions need one")
        self.model: Any = loaded.model
        self.tokenizer = loaded.tokenizer
        self.context = loaded.context
        self.template = getattr(loaded.tokenizer, "chat_template", None) is not None

    def ids(self, question: str) -> list[int]:
        """The tokens of a question as the model reads it."""
        if not self.template:
            return list(self.tokenizer(question)["input_ids"])
        said = [{"role": "user", "content": question}]
        # Some templates would write today's date, or have the model think first.
        settings = {"add_generation_prompt": True, "date_string": "1 Jan 2025", "enable_thinking": False}
        text = self.tokenizer.apply_chat_template(said, tokenize=False, **settings)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def fits(self, question: str, max_tokens: int) -> bool:
        """Whether the model has room for a question and its answer."""
        return self.context is None or len(self.ids(question)) + max_tokens <= self.context

    def answers(self, questions: Sequence[str], max_tokens: int = 8) -> Iterator[Said]:
        """Answers as they come, short questions first. Without a chat template an answer ends with its line."""
        read = [self.ids(question) for question in questions]
        shared = _beginning(read) if len(read) > 1 else []
        start = self._start(shared)
        by_size: dict[int, list[int]] = defaultdict(list)
        for number, ids in enumerate(read):
            by_size[len(ids)].append(number)
        for size, numbers in sorted(by_size.items()):
            together = max(1, AT_ONCE // (size - (len(shared) if start else 0)))
            for first in range(0, len(numbers), together):
                group = numbers[first : first + together]
                said = self._said([read[number] for number in group], start, max_tokens)
                for number, (text, tokens) in zip(group, said, strict=True):
                    yield Said(number, text, size, tokens)

    @torch.inference_mode()
    def _start(self, shared: list[int]) -> Any:
        """Keys and values of what all questions begin with; None where the model keeps something else (recurrent layers)."""
        from transformers import DynamicCache  # noqa: PLC0415

        if not shared:
            return None
        cache = self.model(torch.tensor([shared], device=self.model.device), use_cache=True).past_key_values
        return cache if type(cache) is DynamicCache and cache.get_seq_length() == len(shared) else None

    @torch.inference_mode()
    def _said(self, group: list[list[int]], start: Any, max_tokens: int) -> list[tuple[str, int]]:
        ids = torch.tensor(group, device=self.model.device)
        options: dict[str, Any] = {"do_sample": False, "max_new_tokens": max_tokens, "pad_token_id": self._end()}
        if start is not None:
            cache = copy.deepcopy(start)
            cache.batch_repeat_interleave(len(group))
            options["past_key_values"] = cache
        if not self.template:
            options |= {"stop_strings": ["\n"], "tokenizer": self.tokenizer}
        new = self.model.generate(ids, attention_mask=torch.ones_like(ids), **options)[:, ids.shape[1] :]
        return [self._text(row) for row in new.tolist()]

    def _end(self) -> int:
        """What fills up answers that ended early."""
        ends = self.model.generation_config.eos_token_id
        return int(ends[0] if isinstance(ends, list) else ends or 0)

    def _text(self, row: list[int]) -> tuple[str, int]:
        """An answer up to its end, and its length in tokens."""
        ends = self.model.generation_config.eos_token_id
        ends = set(ends if isinstance(ends, list) else [ends])
        length = next((at for at, token in enumerate(row) if token in ends), len(row))
        text = self.tokenizer.decode(row[:length], skip_special_tokens=True)
        return (text if self.template else text.partition("\n")[0]), length


def _beginning(read: list[list[int]]) -> list[int]:
    """The tokens with which all begin, short of the last token of each: there must be something left to read."""
    first, last = min(read), max(read)  # what the outermost two share, all share
    most = min(map(len, read)) - 1
    return first[: next((at for at in range(most) if first[at] != last[at]), most)]
