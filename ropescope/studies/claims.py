"""Claims of the papers and of our own, each with the one rule that judges it from recorded runs.

A rule reads the numbers of runs and returns what they say and a verdict. Rules live in the `claims.py` of the study whose runs
they read. The command's table, the page and the scoreboard all call `judge`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, get_args

from ..experiments.dynamics import dynamics
from ..runs import Run, Trajectory, read_trajectory

Verdict = Literal["reproduced", "partly", "not", "not run"]
Paper = Literal["A", "B", "ours"]
Section = Literal[
    "What a head does, and how to measure it",
    "The number and letter tasks, and how they are learned",
    "Constructions and discrepancy",
    "Canonical tasks and frequency control",
    "Real language models",
    "Chat models",
]
"""Parts of the scoreboard, in order."""
VERDICTS: tuple[Verdict, ...] = ("reproduced", "partly", "not", "not run")


@dataclass(frozen=True)
class Claim:
    """One row of the scoreboard."""

    claim: str
    """short and stable: paper, where, what"""
    paper: Paper
    where: str
    statement: str
    paper_value: str
    ours: str
    verdict: Verdict
    note: str
    """by which rule, and what differs from the paper"""
    run: str
    """name of the run folder whose section of the page shows it"""
    chart: str
    """which chart of that section; empty where there is none"""
    section: Section


class NotRunError(Exception):
    """The runs at hand do not hold what a rule needs."""


@dataclass(frozen=True)
class Found:
    """What the runs say of a claim."""

    ours: str
    verdict: Verdict
    run: Run
    chart: str = ""


@dataclass(frozen=True)
class Trained:
    """A training run: its history and what `ropescope dynamics` reads off it."""

    run: Run
    history: Trajectory
    said: dict[str, Any]

    @property
    def seed(self) -> int:
        """Of the run."""
        return int(self.run.config["seed"])


class Runs:
    """The runs at hand, by the command that made them."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.all = list(runs)

    def of(self, command: str) -> list[Run]:
        """Finished runs of a command; at least one."""
        found = [run for run in self.all if run.command == command and run.results]
        if not found:
            raise NotRunError(f"no run of `ropescope {command}` among those given")
        return found

    def one(self, command: str) -> Run:
        """The first run of a command."""
        return self.of(command)[0]

    def of_task(self, command: str, task: str) -> Run:
        """The first run of a command that has results of the number or the letter task."""
        for run in self.of(command):
            if task in run.results:
                return run
        raise NotRunError(f"no run of `ropescope {command}` on the {task} task among those given")

    def profiles(self) -> list[Run]:
        """Profiled models; first the one of which most is recorded, as its section of the page shows most."""

        def missing(run: Run) -> list[bool]:
            names = (("head_details.json", "closer.json"), ("profile.nc",))
            return [not any((run.folder / name).exists() for name in either) for either in names]

        return sorted(self.of("profile"), key=missing)

    @cached_property
    def _trained(self) -> list[Trained]:
        found = []
        for run in self.of("train"):
            history = read_trajectory(run.folder)
            found.append(Trained(run, history, dynamics(history)))
        return found

    def trained(self, task: str) -> list[Trained]:
        """Training runs of a task at paper B's size: 12 layers of one head, four hop counts."""
        of_task = [one for one in self._trained if one.history.task == task]
        if not of_task:
            raise NotRunError(f"no finished training run of the {task} task among those given")
        full = [one for one in of_task if len(one.said["learned_at"]) == 4 and _sizes(one.history) == (12, 1)]
        if not full:
            raise NotRunError(f"training runs of the {task} task are smaller than paper B's (12 layers, 4 hop counts)")
        return sorted(full, key=lambda one: one.seed)


def _sizes(history: Trajectory) -> tuple[int, ...]:
    return history.measures["positional"].shape[1:]


Rule = Callable[[Runs], Found]


@dataclass(frozen=True)
class Case:
    """A claim before the runs are asked."""

    claim: str
    paper: Paper
    where: str
    statement: str
    paper_value: str
    note: str
    rule: Rule
    section: Section

    @property
    def folder(self) -> str:
        """The folder of the study whose `claims.py` holds the rule."""
        return self.rule.__module__.split(".")[-2]

    def row(self, runs: Runs) -> Claim:
        """What the runs say; "not run" if they do not hold what the rule needs."""
        told = (self.claim, self.paper, self.where, self.statement, self.paper_value)
        try:
            found = self.rule(runs)
        except NotRunError as reason:
            return Claim(*told, "", "not run", f"{str(reason)[0].upper()}{str(reason)[1:]}.", "", "", self.section)
        except (LookupError, ValueError, TypeError, ArithmeticError) as missing:  # runs of other sizes, or older ones
            why = f"Cannot be judged from the runs given, which are older or smaller ({type(missing).__name__}: {missing})."
            return Claim(*told, "", "not run", why, "", "", self.section)
        return Claim(*told, found.ours, found.verdict, self.note, found.run.name, found.chart, self.section)


CASES: dict[str, Case] = {}
"""Every claim by name. `all_cases` loads the modules that fill it."""


def claims_in(section: Section) -> Callable[[str, Paper, str, str, str], Callable[[Rule], Rule]]:
    """The decorator that registers rules under a section of the scoreboard.

    It takes the claim's name, the paper, where the paper says it, the paper's value, and a note on how the verdict is given.
    The rule's docstring is the statement that it judges.
    """

    def claim(name: str, paper: Paper, where: str, paper_value: str, note: str) -> Callable[[Rule], Rule]:
        def register(rule: Rule) -> Rule:
            if name in CASES:
                raise ValueError(f"two claims are called {name}")
            statement = " ".join((rule.__doc__ or "").split())
            CASES[name] = Case(name, paper, where, statement, paper_value, note, rule, section)
            return rule

        return register

    return claim


OLD = ("chat", "multihop")


def all_cases() -> list[Case]:
    """Every claim, section by section and by name."""
    from . import FOLDERS  # noqa: PLC0415

    for old in OLD:
        import_module(f"ropescope.report.claims.{old}")
    for folder in FOLDERS:
        if find_spec(f"{__package__}.{folder}.claims"):
            import_module(f"{__package__}.{folder}.claims")
    sections = get_args(Section)
    return sorted(CASES.values(), key=lambda case: (sections.index(case.section), case.claim))


def judge(runs: Sequence[Run], folder: str | None = None) -> list[Claim]:
    """One row for each claim, or for those of one study's folder, judged by the runs given."""
    at_hand = Runs(runs)
    return [case.row(at_hand) for case in all_cases() if folder in (None, case.folder)]


def graded(whole: bool, part: bool = False) -> Verdict:
    """Reproduced if the whole holds, partly if the part does."""
    return "reproduced" if whole else "partly" if part else "not"


def every(holds: Iterable[bool]) -> Verdict:
    """Reproduced if it holds in all cases, partly if in some; there must be some."""
    cases = list(holds)
    if not cases:
        raise NotRunError("the runs given hold no case of it")
    return graded(all(cases), any(cases))


def span(values: Iterable[float], form: str = ".2f") -> str:
    """From the smallest to the largest, as one number if they look the same."""
    known = sorted(values)
    ends = [format(known[0], form), format(known[-1], form)]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def many(profiles: Sequence[object]) -> str:
    """How many profiles there are."""
    return f"{len(profiles)} profile{'' if len(profiles) == 1 else 's'}"


def tiny(value: float) -> str:
    """A difference that ought to be 0."""
    return f"{value:.0e}" if value else "0"


def listed(numbers: Iterable[int]) -> str:
    """Layers by name."""
    return ", ".join(f"L{n}" for n in numbers) or "none"
