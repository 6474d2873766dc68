"""Chat models on the number and letter tasks (paper B, section 3.7): the grid, its journal, and what comes out.

Every answer is written down the moment it comes, so a run that stops goes on where it was and no question is asked, or counted,
twice. Who answers (a local model, a server) is not known here.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..models.remote import Said
from ..runs import locked, read_run, write_whole
from ..tasks import task_class, task_names
from ..tasks.chat import LENGTHS, RUNS, Question, is_right, is_single, preamble, questions
from ..tasks.multihop import require_at_least

PAPER_LENGTHS = (12, 16, 24, 32, 48, 64, 80, 100, 200, 300)
PAPER: dict[str, dict[str, tuple[float, ...]]] = {
    "GPT 5.4": {
        "number": (0.98, 0.87, 0.73, 0.45, 0.17, 0.14, 0.10, 0.08, 0.08, 0.06),
        "letter": (0.96, 0.98, 1.0, 0.99, 0.99, 0.98, 0.96, 0.85, 0.52, 0.40),
    },
    "GPT 5.5": {
        "number": (0.55, 0.56, 0.42, 0.23, 0.21, 0.12, 0.10, 0.07, 0.06, 0.04),
        "letter": (0.87, 0.95, 0.96, 0.96, 0.77, 0.84, 0.75, 0.66, 0.55, 0.50),
    },
    "Claude Sonnet 3.7": {
        "number": (0.40, 0.34, 0.22, 0.15, 0.11, 0.08, 0.06, 0.06, 0.05, 0.05),
        "letter": (0.92, 0.89, 0.88, 0.88, 0.80, 0.87, 0.89, 0.86, 0.77, 0.80),
    },
}
"""Mean accuracy over five runs in table 3 of paper B (arXiv 2605.31558, section 3.7 and appendix H), one value per length."""

SCREENED = ("letter", 16)
"""The cell of the grid that decides whether a model is measured at all."""
LEAST_RIGHT = 0.85
LEAST_SINGLE = 0.95
"""Paper B wants answers that stay single tokens and gives no number; this one is ours."""


@dataclass(frozen=True)
class Settings:
    """The grid: tasks x lengths of the target window x runs x samples. Runs are numbered from `seed`, which is their seed."""

    tasks: tuple[str, ...] = task_names()
    lengths: tuple[int, ...] = LENGTHS
    runs: int = RUNS
    samples: int = 20
    hops: int = 1
    max_tokens: int = 8
    seed: int = 1

    def __post_init__(self) -> None:
        for task in self.tasks:
            task_class(task)
        if not self.lengths or list(self.lengths) != sorted(set(self.lengths)):
            raise ValueError("lengths must grow, and there must be one at least")
        for name, least in (("runs", 1), ("samples", 1), ("hops", 1), ("max_tokens", 1), ("seed", 1)):
            require_at_least(name, getattr(self, name), least)

    def numbers(self) -> range:
        """Of the runs."""
        return range(self.seed, self.seed + self.runs)

    def cell(self, task: str, length: int) -> list[Question]:
        """All questions of one task and length."""
        return [question for run in self.numbers() for question in questions(task, length, run, self.samples, self.hops)]

    def cells(self) -> Iterator[tuple[str, int]]:
        """The grid, short lengths first."""
        for length in self.lengths:
            for task in self.tasks:
                yield task, length


@dataclass(frozen=True)
class Answer:
    """What came back: the text as it is, tokens in and out as the model or its server counts them (None if it does not)."""

    text: str
    tokens_in: int | None = None
    tokens_out: int | None = None
    reasoning: int | None = None


@runtime_checkable
class Chat(Protocol):
    """Somebody who answers."""

    def answers(self, questions: Sequence[str], max_tokens: int) -> Iterable[Said]:
        """Answers in the order in which they come; each knows the number of its question."""


# The journal


class Journal:
    """All answers so far, in a file that only grows. One process at a time; a line cut off by a crash is cut away.

    Every line carries the hash of its content and of the question's text, so nothing foreign or damaged is taken for an answer.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from ropescope.experiments.llm import Answer, Journal
    >>> from ropescope.tasks.chat import questions
    >>> folder, question = Path(tempfile.mkdtemp()), questions("number", length=12, run=1, samples=1)[0]
    >>> with Journal(folder, {"model": "somebody"}) as journal:
    ...     journal.add(question, Answer("b"))
    >>> with Journal(folder, {"model": "somebody"}) as journal:  # another time
    ...     question.key in journal.answers
    True
    """

    NAME = "answers.jsonl"

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        """`config` is what all answers of a folder must have in common."""
        self.path = folder / self.NAME
        self.answers: dict[str, Answer] = {}
        self._asked: dict[str, str] = {}
        with ExitStack() as held:
            held.enter_context(locked(folder))
            self._claim(folder, json.loads(json.dumps(dict(config))))
            self._file = held.enter_context(self.path.open("a+b"))
            self._read()
            self._held = held.pop_all()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._held.close()

    def _claim(self, folder: Path, wanted: Mapping[str, Any]) -> None:
        kept = folder / "config.json"
        if kept.exists():
            try:
                same = json.loads(kept.read_text()) == wanted
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{kept} is damaged ({error}): choose another folder for --out") from None
            if not same:
                raise ValueError(f"{folder} holds answers of another model or other settings: choose another folder for --out")
        elif any(not entry.name.startswith(".") for entry in folder.glob("*")):
            raise ValueError(f"{folder} holds other files but no config.json: choose another folder for --out")
        else:
            write_whole(kept, json.dumps(wanted, indent=1) + "\n")

    def _read(self) -> None:
        self._file.seek(0)
        whole = 0
        lines = self._file.read().splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            row = _checked(line)
            if row is None:
                if number < len(lines):
                    raise ValueError(f"line {number} of {self.path} is damaged: remove that line to ask its question again")
                break
            whole += len(line)
            self._asked.setdefault(row["key"], row.pop("question"))
            self.answers.setdefault(row.pop("key"), Answer(**row))
        self._file.truncate(whole)

    def add(self, question: Question, answer: Answer) -> None:
        """Keep an answer for good."""
        if question.key in self.answers:
            return
        row = {"key": question.key, "question": text_hash(question.text), **asdict(answer)}
        content = json.dumps(row, ensure_ascii=False)
        line = json.dumps(row | {"sha256": text_hash(content)}, ensure_ascii=False)
        self._file.write(line.encode("utf-8", "backslashreplace") + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.answers[question.key] = answer
        self._asked[question.key] = row["question"]

    def missing(self, asked: Iterable[Question]) -> list[Question]:
        """Questions without an answer; one that was answered to another text is refused."""
        left = []
        for question in asked:
            if question.key not in self.answers:
                left.append(question)
            elif self._asked[question.key] != text_hash(question.text):
                raise ValueError(f"{self.path} holds answers to other questions: choose another folder for --out")
        return left


def _checked(line: bytes) -> dict[str, Any] | None:
    """A line of the journal, or None if it is not whole."""
    try:
        row: dict[str, Any] = json.loads(line)
        found = row.pop("sha256")
    except (ValueError, KeyError, AttributeError, RecursionError):
        return None
    whole = line.endswith(b"\n") and found == text_hash(json.dumps(row, ensure_ascii=False))
    return row if whole else None


def text_hash(text: str) -> str:
    """By which a text is recognised."""
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def shared_config(model: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """What answers of one folder must have in common. Tasks, lengths and runs may be added to later."""
    wording = {task: text_hash(preamble(task, settings.hops)) for task in task_names()}
    same = {key: getattr(settings, key) for key in ("samples", "hops", "max_tokens", "seed")}
    return {"model": dict(model), **same, "wording": wording}


def ask(chat: Chat, journal: Journal, asked: Sequence[Question], max_tokens: int) -> Iterator[Question]:
    """Have all questions answered that are not yet, each written down as it comes; yields those that now are."""
    left = journal.missing(asked)
    if not left:
        return
    for said in chat.answers([question.text for question in left], max_tokens):
        question = left[said.question]
        journal.add(question, Answer(said.text, said.tokens_in, said.tokens_out, said.reasoning))
        yield question


def plan(settings: Settings, chat: Chat) -> tuple[list[list[Question]], dict[str, list[int]]]:
    """Questions in the order in which to ask them: those that screen a model, then all others by task; what is too long.

    Too long are lengths of a task whose questions do not all fit into the context of a model that tells it.
    """
    fits = getattr(chat, "fits", None)
    too_long: dict[str, list[int]] = defaultdict(list)
    rest: dict[str, list[Question]] = {task: [] for task in settings.tasks}
    for task, length in settings.cells():
        cell = settings.cell(task, length)
        if fits is not None and not all(fits(question.text, settings.max_tokens) for question in cell):
            too_long[task].append(length)
        elif (task, length) != SCREENED:
            rest[task] += cell
    screened = [] if SCREENED[1] in too_long[SCREENED[0]] else settings.cell(*SCREENED)
    return [screened, *rest.values()], {task: lengths for task, lengths in too_long.items() if lengths}


# What it costs


def check_prices(price_in: float | None, price_out: float | None) -> None:
    """Both or none, and no less than nothing."""
    if (price_in is None) != (price_out is None):
        raise ValueError("--price-in and --price-out belong together: give both or none")
    if price_in is not None and price_out is not None and not (0 <= price_in < float("inf") and 0 <= price_out < float("inf")):
        raise ValueError("--price-in and --price-out must be prices of a million tokens, at least 0")


def estimate_said(
    total: int, left: Sequence[Question], max_tokens: int, price_in: float | None, price_out: float | None
) -> str:
    """The estimate for people, before anything is sent."""
    cost = estimate(left, max_tokens, price_in, price_out)
    price = "" if cost["cost_at_most"] is None else f", {cost['cost_at_most']:,.2f} at the prices given"
    return (
        f"{total:,} questions, {total - len(left):,} of them answered already; {len(left):,} to ask: about "
        f"{cost['tokens_in']:,} tokens in, at most {cost['tokens_out_at_most']:,} out{price}"
    )


def estimate(asked: Sequence[Question], max_tokens: int, price_in: float | None, price_out: float | None) -> dict[str, Any]:
    """Requests, tokens in (reckoned from the text, as tokenizers differ) and out (at most), and what they cost."""
    tokens_in = sum(reckoned_tokens(question.text) for question in asked)
    tokens_out = len(asked) * max_tokens
    cost = None if price_in is None or price_out is None else (tokens_in * price_in + tokens_out * price_out) / 1e6
    return {"requests": len(asked), "tokens_in": tokens_in, "tokens_out_at_most": tokens_out, "cost_at_most": cost}


def reckoned_tokens(text: str) -> int:
    """About as many tokens as common tokenizers make of it: one for each word, digit, sign and end of a line, and a frame."""
    return len(re.findall(r"[^\W\d]+|\d|[^\w\s]|\n+", text)) + 20


# What comes out


def accuracy(settings: Settings, answers: Mapping[str, Answer]) -> dict[str, dict[str, Any]]:
    """Of each task and length that was answered in full: mean and standard deviation over runs, and what answers were like."""
    found: dict[str, dict[str, Any]] = {task: {} for task in settings.tasks}
    for task, length in settings.cells():
        if (cell := cell_result(settings, answers, task, length)) is not None:
            found[task][str(length)] = cell
    return found


def cell_result(settings: Settings, answers: Mapping[str, Answer], task: str, length: int) -> dict[str, Any] | None:
    """One cell of the grid; None unless all its questions are answered."""
    asked = settings.cell(task, length)
    if any(question.key not in answers for question in asked):
        return None
    right, single, sizes = defaultdict(list), [], []
    for question in asked:
        said = answers[question.key].text
        right[question.run].append(is_right(question, said))
        single.append(is_single(question, said, settings.hops))
        sizes.append(len(said.strip()))
    runs = [float(np.mean(right[run])) for run in settings.numbers()]
    return {
        "mean": float(np.mean(runs)),
        "std": float(np.std(runs, ddof=1)) if len(runs) > 1 else None,
        "runs": runs,
        "samples": len(asked),
        "right": sum(map(sum, right.values())),
        "single": float(np.mean(single)),
        "characters": float(np.mean(sizes)),
    }


def screening(settings: Settings, answers: Mapping[str, Answer]) -> dict[str, Any] | None:
    """Whether a model does the task at all: right on the letter task at length 16, with single tokens. None if not asked."""
    task, length = SCREENED
    cell = cell_result(settings, answers, task, length)
    if cell is None:
        return None
    return {
        "task": task,
        "length": length,
        "accuracy": cell["mean"],
        "least_accuracy": LEAST_RIGHT,
        "single": cell["single"],
        "least_single": LEAST_SINGLE,
        "passed": cell["mean"] >= LEAST_RIGHT and cell["single"] >= LEAST_SINGLE,
    }


def usage(answers: Mapping[str, Answer]) -> dict[str, Any]:
    """Tokens of all answers kept, as counted by who gave them."""

    def total(name: str) -> int | None:
        counts = [value for answer in answers.values() if (value := getattr(answer, name)) is not None]
        return sum(counts) if counts else None

    return {"answers": len(answers), **{name: total(name) for name in ("tokens_in", "tokens_out", "reasoning")}}


def results(settings: Settings, answers: Mapping[str, Answer], too_long: Mapping[str, list[int]]) -> dict[str, Any]:
    """All that goes into the summary."""
    found, screened = accuracy(settings, answers), screening(settings, answers)
    return {
        "screening": screened,
        "accuracy": found,
        "too_long": dict(too_long),
        "with_length": with_length(found),
        "claims": claims(found, screened is not None and screened["passed"]),
        "paper": {"lengths": list(PAPER_LENGTHS), "accuracy": {model: dict(tasks) for model, tasks in PAPER.items()}},
        "usage": usage(answers),
    }


def claims(found: Mapping[str, Mapping[str, Any]], screened: bool) -> list[dict[str, Any]]:
    """What paper B says of its three models, beside the model measured. One that fails the screening says nothing."""

    def ours(task: str, first: int, last: int) -> dict[int, float]:
        return {int(n): cell["mean"] for n, cell in found.get(task, {}).items() if first <= int(n) <= last}

    def theirs(task: str, first: int, last: int) -> list[float]:
        at = [i for i, n in enumerate(PAPER_LENGTHS) if first <= n <= last]
        return [model[task][i] for model in PAPER.values() for i in at]

    lead = [
        let - num
        for model in PAPER.values()
        for n, num, let in zip(PAPER_LENGTHS, model["number"], model["letter"], strict=True)
        if n >= 16
    ]
    far = 10**9
    number, letter = ours("number", 16, far), ours("letter", 16, far)
    leads = [letter[n] - number[n] for n in sorted(number.keys() & letter.keys())]
    rows = [("letter above number at every length from 16 on", "smallest lead", min(lead), min(leads, default=None), "> 0")]
    for said, task, first, last, sign, limit in (
        ("number below 0.5 from 32 on", "number", 32, far, "<", 0.5),
        ("number below 0.1 from 100 on", "number", 100, far, "<", 0.1),
        ("letter above 0.65 at 100", "letter", 100, 100, ">", 0.65),
    ):
        pick = max if sign == "<" else min
        values = list(ours(task, first, last).values())
        kind = "largest" if sign == "<" else "smallest"
        rows.append((said, kind, pick(theirs(task, first, last)), pick(values) if values else None, f"{sign} {limit}"))
    return [
        {
            "claim": claim,
            "paper": f"{kind} {paper:.2f}",
            "ours": None if value is None else f"{kind} {value:.2f}",
            "holds": _holds(value, rule) if screened and value is not None else None,
        }
        for claim, kind, paper, value, rule in rows
    ]


def _holds(value: float, rule: str) -> bool:
    sign, limit = rule.split()
    return value > float(limit) if sign == ">" else value < float(limit)


def with_length(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What each task's accuracy is at both ends of the lengths measured, and what is lost between them."""
    lost = {}
    for task, cells in found.items():
        if len(cells) > 1:
            short, long = min(cells, key=int), max(cells, key=int)
            first, last = cells[short]["mean"], cells[long]["mean"]
            mean = float(np.mean([cell["mean"] for cell in cells.values()]))
            lost[task] = {"shortest": [int(short), first], "longest": [int(long), last], "lost": first - last, "mean": mean}
    return lost


def profile_beside(folder: Path, weights: Mapping[str, str] | None) -> dict[str, Any]:
    """Late layers' median scores from a run folder of `ropescope profile`; one of other weights is refused."""
    try:
        summary = read_run(folder).summary
        depth, model = summary["results"]["depth"], summary["config"]["model"]
    except (ValueError, LookupError, TypeError):
        raise ValueError(f"--profile {folder} holds no profile: give a folder of `ropescope profile`") from None
    if weights and model["weights"] and dict(weights) != model["weights"]:
        raise ValueError(f"--profile {folder} is of other weights ({model['source']}): profile the same model")
    return {
        "model": model["source"],
        "prompts": summary["results"]["prompts"],
        "layers": model["layers"],
        **{f"{score}_{half}": depth[score][key] for score in ("positional", "symbolic") for half, key in HALVES.items()},
    }


def brief(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Of a model's results, what is needed to set it beside others."""
    return {"model": name, **{key: found[key] for key in ("accuracy", "with_length", "profile", "screening")}}


def run_beside(folder: Path) -> dict[str, Any]:
    """Another model's results from its run folder; its profile must be among them."""
    try:
        summary = read_run(folder).summary
        return brief(summary["config"]["model"]["source"], summary["results"])
    except (ValueError, LookupError, TypeError):
        raise ValueError(f"--beside {folder} holds no run of `ropescope llm` with a profile: make one with --profile") from None


HALVES = {"early": "first", "late": "second"}
