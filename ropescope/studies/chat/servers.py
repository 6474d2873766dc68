"""Chat models behind a server, as models of Inspect AI whose logs hold no key.

Inspect AI reads keys from the environment, and sends requests again that fail for a while (429, 500, silence, a dropped
connection). What will not get better ends the run in one sentence.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import traceback
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from inspect_ai.model import GenerateConfig, Model, ModelAPI, ModelOutput, get_model

if TYPE_CHECKING:
    from . import Settings

REFUSED = {
    400: "refuses the request",
    401: "refuses the key",
    403: "refuses the key, or the model with this key",
    404: "does not know the model, or there is no such service at this address",
    422: "refuses the request",
}


class RedactedError(Exception):
    """An error of a provider that repeated a key, without it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(one_line(error))
        self.error = error
        self.status_code = getattr(error, "status_code", None)


class Server:
    """A model behind a server.

    model     for Inspect AI's `eval`
    about     what identifies it in the run's settings
    failures  the error of the last attempt to ask a question, by its text
    """

    def __init__(self, settings: Settings) -> None:
        if settings.base_url is not None:
            require_server(settings.base_url)
        logging.getLogger("inspect_ai").addHandler(logging.NullHandler())  # what matters is told in one sentence
        self.name, self.timeout = settings.model, settings.timeout
        where = {} if settings.base_url is None else {"base_url": settings.base_url}
        self.about: dict[str, Any] = {"source": settings.model, **where, "reasoning": settings.reasoning}
        self.failures: dict[str, Exception] = {}
        config = GenerateConfig(
            max_connections=settings.concurrency,
            max_retries=settings.retries,
            attempt_timeout=settings.timeout,
            reasoning_effort=settings.reasoning,  # type: ignore[arg-type]
        )
        provider, _, rest = settings.model.partition("/")
        # Other servers with OpenAI's API know its older form, in which this provider asks.
        named = f"openai-api/openai/{rest}" if provider == "openai" and settings.base_url is not None else settings.model
        try:
            self.model: Model = get_model(named, config=config, base_url=settings.base_url, memoize=False)
        except Exception as error:  # each provider's package has errors of its own
            raise ValueError(f"{settings.model} cannot be asked: {one_line(error)}") from None
        self._watch(self.model.api)

    def fits(self, question: str, max_tokens: int) -> bool:
        """Servers do not tell how much they can read."""
        return True

    def _watch(self, api: ModelAPI) -> None:
        """Note why attempts fail, and keep keys that a server repeats away from Inspect AI, which would log them."""
        generate, should_retry = api.generate, api.should_retry

        async def watched(input: Any, *given: Any, **named: Any) -> Any:
            question = input[-1].text
            try:
                result = await generate(input, *given, **named)
            except asyncio.CancelledError:
                self.failures[question] = TimeoutError(f"no answer within {self.timeout} seconds")
                raise
            except Exception as error:
                self.failures[question] = error
                if not _tells_key(error):
                    raise
                raise RedactedError(error) from None
            output = result[0] if isinstance(result, tuple) else result
            if isinstance(output, Exception):  # some providers return errors that will not get better
                self.failures[question] = output
                if _tells_key(output):
                    raise RedactedError(output) from None
                return result
            text = output.model_dump_json()
            return result if text == redacted(text) else ModelOutput.model_validate_json(redacted(text))

        api.generate = watched  # type: ignore[method-assign]
        api.should_retry = lambda ex: should_retry(ex.error if isinstance(ex, RedactedError) else ex)  # type: ignore[method-assign]

    def why(self, question: str, message: str) -> str:
        """One sentence on why a question has no answer."""
        error = self.failures.get(question) or RuntimeError(message)
        status = getattr(error, "status_code", None)
        what = REFUSED.get(status) if isinstance(status, int) else None
        what = what or ("fails again and again" if status is not None or message.startswith("RetryError") else "fails")
        return f"{self.name}: the server {what} ({one_line(error)})"


def _tells_key(error: Exception) -> bool:
    """Whether an error, as Inspect AI would log it, holds a key."""
    text = "".join(traceback.format_exception(error))
    return text != redacted(text)


def redacted(text: str) -> str:
    """A text without the keys that are in the environment, and without users and passwords in addresses."""
    text = re.sub(r"(?<=://)[^/\s]*@", "[redacted]@", text)
    for name, value in os.environ.items():
        if len(value) >= 6 and re.search(r"KEY|TOKEN|SECRET|PASSWORD", name.upper()):
            text = text.replace(value, "[redacted]")
    return text


def require_server(url: str) -> None:
    """Raise a ValueError in one sentence, at once rather than after many attempts, unless a server listens at this address."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        if not parts.hostname:
            raise ValueError
    except (ValueError, KeyError):
        raise ValueError("base_url must be an address like http://localhost:8000/v1") from None
    if re.search("[@?#]", url):  # also where it is no valid part of an address: a password may hold any character
        raise ValueError("base_url must hold no user, password or query, as it is stored: keys are read from the environment")
    try:
        socket.create_connection((parts.hostname, port), timeout=10).close()
    except OSError as error:
        raise ValueError(f"no server answers at {url} ({error.strerror or error}): start it first") from None


def one_line(error: BaseException) -> str:
    """An error's message on one line, without keys."""
    text = str(getattr(error, "provider_message", None) or getattr(error, "message", None) or error) or type(error).__name__
    text = re.sub(r"\[/?[a-z ]*\]|ERROR: ", "", text)  # Inspect AI writes for a terminal
    text = redacted(" ".join(text.split()))
    return text if len(text) < 300 else text[:300] + "…"
