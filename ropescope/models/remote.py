"""Questions put to a chat model behind a server, through Inspect AI: any provider it knows, many requests at once.

Keys are read from the environment by Inspect AI; nothing here takes, prints or keeps one. Requests that fail for a while (429,
500, a server that hangs or drops the line) are sent again after growing pauses; what will not get better ends the run in one
sentence.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

REFUSED = {
    400: "refuses the request",
    401: "refuses the key",
    403: "refuses the key, or the model with this key",
    404: "does not know the model, or there is no such service at this address",
    422: "refuses the request",
}


EFFORTS = ("none", "minimal", "low", "medium", "high")


@dataclass(frozen=True)
class Said:
    """An answer: the number of its question, its text, and tokens in, out and of reasoning, where they were counted."""

    question: int
    text: str
    tokens_in: int | None = None
    tokens_out: int | None = None
    reasoning: int | None = None


class RemoteChat:
    """A chat model by Inspect AI's name for it, as in openai/gpt-5.4 or openai-api/SERVICE/NAME.

    base_url     another server that speaks the provider's language
    concurrency  requests under way at any time
    retries      how often a request is sent again before the run ends
    timeout      seconds after which a request without an answer is sent again
    reasoning    effort of models that reason, as in "none"; not sent unless given, as others refuse it

    `RemoteChat("openai/gpt-5.4", reasoning="none").answers(["What is the capital of France?"], 8)` gives what was `Said`,
    one by one as answers come.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        concurrency: int = 8,
        retries: int = 6,
        timeout: int = 60,
        reasoning: str | None = None,
    ) -> None:
        for name, value, least in (("concurrency", concurrency, 1), ("retries", retries, 0), ("timeout", timeout, 1)):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        if reasoning not in (None, *EFFORTS):
            raise ValueError(f"reasoning must be one of {', '.join(EFFORTS)}, not {reasoning!r}")
        if base_url is not None:
            _require_server(base_url)
        try:
            from inspect_ai.model import GenerateConfig, get_model  # noqa: PLC0415
        except ImportError:
            raise ValueError("chat models behind a server need Inspect AI: pip install 'ropescope[llm]'") from None
        logging.getLogger("inspect_ai").addHandler(logging.NullHandler())  # what matters is said in one sentence
        self.name = model
        self.concurrency = concurrency
        self._config = GenerateConfig(
            temperature=0.0,
            max_connections=concurrency,
            max_retries=retries,
            attempt_timeout=timeout,
            reasoning_effort=reasoning,  # type: ignore[arg-type]
        )
        provider, _, rest = model.partition("/")
        # Other servers that speak OpenAI's language know its older words for things, with which this provider asks.
        asked = f"openai-api/openai/{rest}" if provider == "openai" and base_url is not None else model
        try:
            self._model = get_model(asked, config=self._config, base_url=base_url, memoize=False)
        except Exception as error:  # each provider's package has errors of its own
            raise ValueError(f"{model} cannot be asked: {_sentence(error)}") from None

    def answers(self, questions: Sequence[str], max_tokens: int) -> Iterator[Said]:
        """Answers as they come. When something goes wrong, those under way are waited for and handed over before it is said."""
        with asyncio.Runner() as runner:
            left = iter(enumerate(questions))
            under_way: set[asyncio.Task[Said]] = set()
            wrong: BaseException | None = None
            while True:
                while wrong is None and len(under_way) < self.concurrency and (item := next(left, None)) is not None:
                    under_way.add(runner.get_loop().create_task(self._ask(*item, max_tokens)))
                if not under_way:
                    break
                try:
                    done, under_way = runner.run(_first(under_way))
                except KeyboardInterrupt as interrupted:
                    if wrong is not None:  # a second time: they do not want to wait
                        raise
                    wrong = interrupted
                    continue
                for task in done:
                    if (error := task.exception()) is None:
                        yield task.result()
                    elif wrong is None:
                        wrong = error
            if isinstance(wrong, Exception):
                raise ValueError(f"{self.name}: {_why(wrong)}") from None
            if wrong is not None:
                raise wrong

    async def _ask(self, number: int, question: str, max_tokens: int) -> Said:
        output = await self._model.generate(question, config=self._config.merge({"max_tokens": max_tokens}))
        if output.error:
            raise RuntimeError(output.error)
        usage = output.usage
        counts = (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens) if usage else (None, None, None)
        return Said(number, redacted(output.completion), *counts)


async def _first(tasks: set[asyncio.Task[Said]]) -> tuple[set[asyncio.Task[Said]], set[asyncio.Task[Said]]]:
    return await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


def shown_url(url: str) -> str:
    """An address without what may be secret in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def redacted(text: str) -> str:
    """A text without the keys that are in the environment."""
    for name, value in os.environ.items():
        if len(value) >= 6 and re.search(r"KEY|TOKEN|SECRET|PASSWORD", name.upper()):
            text = text.replace(value, "[redacted]")
    return text


def _require_server(url: str) -> None:
    """Somebody listens at an address, or one sentence at once rather than after many attempts."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        if not parts.hostname:
            raise ValueError
    except (ValueError, KeyError):
        raise ValueError("--base-url must be an address like http://localhost:8000/v1") from None
    try:
        socket.create_connection((parts.hostname, port), timeout=10).close()
    except OSError as error:
        raise ValueError(f"no server answers at {shown_url(url)} ({error.strerror or error}): start it first") from None


def _why(error: Exception) -> str:
    """What ended the run, for people."""
    last = getattr(error, "last_attempt", None)  # of an error that came again and again
    if last is not None:
        error = last.exception() or error
    status = getattr(error, "status_code", None)
    what = REFUSED.get(status) if isinstance(status, int) else None
    what = what or ("fails again and again" if last is not None or status is not None else "fails")
    return f"the server {what} ({_sentence(error)}); answers so far are kept, run the same command again to go on"


def _sentence(error: BaseException) -> str:
    text = str(getattr(error, "provider_message", None) or getattr(error, "message", None) or error) or type(error).__name__
    text = re.sub(r"\[/?[a-z ]*\]|ERROR: ", "", text)  # Inspect AI writes for a terminal
    text = redacted(" ".join(text.split()))
    return text if len(text) < 300 else text[:300] + "…"
