"""Questions put to a model through Inspect AI. Its logs are where answers are stored, and where a run resumes from."""

from __future__ import annotations

import signal
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from inspect_ai import eval as evaluate
from inspect_ai.log import EvalSample, read_eval_log
from inspect_ai.model import Model

from ...console import first_line
from ...tasks.chat import Question
from .inspect_tasks import inspect_task
from .scores import Answer


@runtime_checkable
class Asked(Protocol):
    """A model to ask."""

    model: Model
    about: dict[str, Any]

    def fits(self, question: str, max_tokens: int) -> bool:
        """Whether the model has room for a question and its answer."""

    def why(self, question: str, message: str) -> str:
        """One sentence on why a question has no answer, given the message of Inspect AI's error."""


def ask(
    asked: Asked, questions: Sequence[Question], hops: int, max_tokens: int, concurrency: int, logs: Path
) -> dict[str, Answer]:
    """Answers by the question's key. Each is in a log in the folder `logs` as soon as it comes.

    Raises a ValueError in one sentence if a question cannot be answered, and KeyboardInterrupt at Ctrl-C.
    """
    with _interruptible():
        written = evaluate(
            inspect_task(questions, hops, max_tokens, "questions"),
            model=asked.model,
            log_dir=str(logs),
            display="none",
            max_samples=concurrency,
            fail_on_error=True,
            log_buffer=1,
            log_realtime=False,
            log_model_api=False,
            acp_server=False,
            ctl_server=False,
        )
    if not written or written[0].status == "cancelled":
        raise KeyboardInterrupt
    log = written[0]
    samples = log.samples or []
    if log.status != "success":
        texts = {question.key: question.text for question in questions}
        errors = [(texts[str(sample.id)], sample.error.message) for sample in samples if sample.error]
        errors = [(text, message) for text, message in errors if "Cancelled" not in message]  # because another one failed
        why = asked.why(*errors[0]) if errors else str(log.error and log.error.message)
        raise ValueError(f"{why}; answers so far are kept, run the same command again to resume")
    return {str(sample.id): _answer(sample) for sample in samples}


@contextmanager
def _interruptible() -> Iterator[None]:
    """Give Ctrl-C to asyncio, which ends what is under way in order if Python's own handler is in place."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def answers_in(logs: Path, questions: Sequence[Question], tell: Callable[[str], None]) -> dict[str, Answer]:
    """Answers to these questions by key, from all logs in a folder, finished or not.

    A damaged log is named and left out, so that its questions are asked again.
    """
    known = {question.key: question.text for question in questions}
    found: dict[str, Answer] = {}
    for path in sorted(logs.glob("*.eval")):
        try:
            samples = _samples(path)
        except Exception as error:  # a damaged file can fail anywhere in the reader
            tell(f"ropescope: {path} is damaged ({first_line(error)}): its questions are asked again")
            continue
        for sample in samples:
            if sample.error is None and sample.output.choices and known.get(str(sample.id)) == sample.input:
                found.setdefault(str(sample.id), _answer(sample))
    return found


def _samples(path: Path) -> list[EvalSample]:
    with zipfile.ZipFile(path) as file:  # Inspect AI's reader does not compare checksums
        if (damaged := file.testzip()) is not None:
            raise ValueError(f"{damaged} is not what was written")
    return read_eval_log(str(path)).samples or []


def _answer(sample: EvalSample) -> Answer:
    usage = sample.output.usage
    counts = (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens) if usage else (None, None, None)
    return Answer(sample.output.completion, *counts)
