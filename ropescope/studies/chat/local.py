"""Local models of `transformers` as models of Inspect AI: greedy answers, one question after another.

What a question shares with the one before it (the rule and the worked examples) is read once and stored as keys and values.
"""

from __future__ import annotations

import copy
from itertools import takewhile
from typing import Any

import torch
from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelAPI, ModelOutput, ModelUsage, get_model, modelapi
from inspect_ai.tool import ToolChoice, ToolInfo

from ...models.load import Loaded, load_model

PROVIDER = "ropescope_local"
CHANCE = 8
"""So many tokens more may two questions share by chance."""


class Local:
    """A loaded model. With a chat template the question is the user's message; without one the model continues its text.

    model  for Inspect AI's `eval`
    about  what identifies it in the run's settings

    >>> from ropescope.studies.chat.local import Local
    >>> Local("weights/smollm2-135m").answer("What is the capital of France?", max_tokens=8)[0]
    'The capital of France is Paris...'
    """

    def __init__(self, source: str) -> None:
        loaded: Loaded = load_model(source, "float32")
        if loaded.tokenizer is None:
            raise ValueError("the model has no tokenizer beside it: questions need one")
        self.network: Any = loaded.model
        self.tokenizer = loaded.tokenizer
        self.context = loaded.context
        self.template = getattr(loaded.tokenizer, "chat_template", None) is not None
        self.about: dict[str, Any] = loaded.about | {"chat": self.template}
        self._before: list[int] = []
        self._shared: list[int] = []
        self._cache: Any = None
        config = GenerateConfig(max_connections=1)
        self.model: Model = get_model(f"{PROVIDER}/{self.about['source']}", config=config, memoize=False)
        api = self.model.api
        assert isinstance(api, LocalAPI)
        api.local = self

    def ids(self, question: str) -> list[int]:
        """The tokens of a question as the model reads it."""
        if not self.template:
            return list(self.tokenizer(question)["input_ids"])
        message = [{"role": "user", "content": question}]
        # Some templates would write today's date, or have the model think first.
        settings = {"add_generation_prompt": True, "date_string": "1 Jan 2025", "enable_thinking": False}
        text = self.tokenizer.apply_chat_template(message, tokenize=False, **settings)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def fits(self, question: str, max_tokens: int) -> bool:
        """Whether the model has room for a question and its answer."""
        return self.context is None or len(self.ids(question)) + max_tokens <= self.context

    @torch.inference_mode()
    def answer(self, question: str, max_tokens: int) -> tuple[str, int, int]:
        """The answer, tokens in and tokens out. Without a chat template an answer ends with its line."""
        read = self.ids(question)
        ids = torch.tensor([read], device=self.network.device)
        ends = self.network.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        options: dict[str, Any] = {"do_sample": False, "max_new_tokens": max_tokens, "pad_token_id": ends[0] or 0}
        if (cache := self._start(read)) is not None:
            options["past_key_values"] = cache
        if not self.template:
            options |= {"stop_strings": ["\n"], "tokenizer": self.tokenizer}
        row = self.network.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, len(read) :].tolist()
        row = list(takewhile(lambda token: token not in ends, row))
        text = str(self.tokenizer.decode(row, skip_special_tokens=True))
        return (text if self.template else text.partition("\n")[0]), len(read), len(row)

    def why(self, question: str, message: str) -> str:
        """One sentence on why a question has no answer."""
        return f"{self.about['source']} fails ({' '.join(message.split())})"

    def _start(self, ids: list[int]) -> Any:
        """Keys and values of the tokens that this question begins with, where they are stored; None otherwise."""
        from transformers import DynamicCache  # noqa: PLC0415

        common = [one for one, _ in takewhile(lambda two: two[0] == two[1], zip(ids[:-1], self._before, strict=False))]
        self._before = ids
        if len(common) > len(self._shared) + CHANCE or ids[: len(self._shared)] != self._shared:
            self._shared, self._cache = common, None
            if common:
                cache = self.network(torch.tensor([common], device=self.network.device), use_cache=True).past_key_values
                # Recurrent layers store something else.
                self._cache = cache if type(cache) is DynamicCache and cache.get_seq_length() == len(common) else None
        return copy.deepcopy(self._cache)


class LocalAPI(ModelAPI):
    """Inspect AI's way to a local model."""

    local: Local

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """The answer to the last message."""
        text, read, written = self.local.answer(input[-1].text, config.max_tokens or 8)
        output = ModelOutput.from_content(self.model_name, text)
        output.usage = ModelUsage(input_tokens=read, output_tokens=written, total_tokens=read + written)
        return output


@modelapi(name=PROVIDER)
def _provider() -> type[ModelAPI]:
    return LocalAPI
