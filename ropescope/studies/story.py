"""What the page tells before it shows runs: questions, stories and findings. Their texts live in the studies' folders.

A study's folder may have a module `story.py`. Its functions take the runs at hand and return a `Story` or a `Finding`. All
numbers come from these runs: where one was not measured, the function raises NotRunError, and the page leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from .claims import Runs
from .measured import NotRunError

if TYPE_CHECKING:
    from ..charts import Figure
    from ..runs import Run

Question = Literal[
    "What do heads do?",
    "When do they form?",
    "Through which frequencies?",
    "How far does it hold?",
    "What is proved?",
    "Do chat models show it?",
    "How is it checked, and what does it cost?",
]
"""Sections of the page, in order."""
QUESTIONS: tuple[Question, ...] = get_args(Question)


@dataclass(frozen=True)
class View:
    """A part of the page that a study lays out itself.

    template  name of a template in `html/assets/templates`
    data      what the template shows; all text in it is escaped
    payload   data for a script, which the template places as `{{ payload }}` in `<script type="text/plain" class="payload">`

    The template also gets `id`, an id that no other part of the page has, and `link(run, chart="")`, which returns the id of a
    run's section, or of one of its charts, by the names of run and chart; empty if the page does not show it. Templates of
    `lead` and `tail` also get `figure(name)` and `playground()`, which place a chart of the run and its playground; what they
    place is not shown again below.
    """

    template: str
    data: Mapping[str, Any]
    payload: Any = None


@dataclass(frozen=True)
class Story:
    """The answer to a question in a few sentences, with the chart that shows it.

    text   paragraphs
    run    run whose chart is shown beside the text, large
    chart  name of that chart
    seen   what to see in the chart, in one sentence; instead of the chart's own reading
    """

    text: Sequence[str]
    run: Run | None = None
    chart: str = ""
    seen: str = ""


@dataclass(frozen=True)
class Finding:
    """One result in plain words.

    claim   one sentence that needs no other
    number  what the claim rests on, as short as "r = -0.88"
    unit    what the number is
    figure  a small chart
    run     run that shows it; None if it is about all of them
    chart   name of the chart there
    """

    claim: str
    number: str
    unit: str
    figure: Figure
    run: Run | None = None
    chart: str = ""


Told = TypeVar("Told", Story, Finding)
STORIES: dict[Question, list[Callable[[Runs], Story]]] = {}
FINDINGS: dict[int, Callable[[Runs], Finding]] = {}


def story(question: Question) -> Callable[[Callable[[Runs], Story]], Callable[[Runs], Story]]:
    """A decorator that registers a story for a section of the page."""

    def register(tell: Callable[[Runs], Story]) -> Callable[[Runs], Story]:
        STORIES.setdefault(question, []).append(tell)
        return tell

    return register


def finding(place: int) -> Callable[[Callable[[Runs], Finding]], Callable[[Runs], Finding]]:
    """A decorator that registers a finding; `place` is where it stands among the others."""

    def register(tell: Callable[[Runs], Finding]) -> Callable[[Runs], Finding]:
        if place in FINDINGS:
            raise ValueError(f"two findings stand at place {place}")
        FINDINGS[place] = tell
        return tell

    return register


def stories(runs: Sequence[Run]) -> dict[Question, list[Story]]:
    """The stories that the runs tell, by question."""
    _load()
    told = {question: _told(sorted(STORIES.get(question, []), key=_folder), runs) for question in QUESTIONS}
    return {question: found for question, found in told.items() if found}


def findings(runs: Sequence[Run]) -> list[Finding]:
    """The findings that the runs show, in their order."""
    _load()
    return _told([FINDINGS[place] for place in sorted(FINDINGS)], runs)


def _load() -> None:
    from . import FOLDERS  # noqa: PLC0415

    for folder in FOLDERS:
        if find_spec(f"{__package__}.{folder}.story"):
            import_module(f"{__package__}.{folder}.story")


def _folder(tell: Callable[[Runs], Story]) -> int:
    """Where the folder of a story stands among those of all studies."""
    from . import FOLDERS  # noqa: PLC0415

    return FOLDERS.index(tell.__module__.split(".")[-2])


def _told(tellers: Sequence[Callable[[Runs], Told]], runs: Sequence[Run]) -> list[Told]:
    found = []
    at_hand = Runs(runs).measured
    for tell in tellers:
        try:
            found.append(tell(at_hand))
        except NotRunError:
            continue
        except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError):  # runs of other sizes, or older ones
            continue
    return found
