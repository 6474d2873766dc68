"""Claims of the papers and of our own. Each has one rule that judges it from recorded runs.

A rule reads numbers of runs and returns our value and a verdict; without a number there is no verdict (`measured`). It is in
the `claims.py` of the study whose runs it reads. The command's table, the page and the scoreboard all call `judge`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Literal, get_args

from ..runs import Run
from .measured import MeasuredRun
from .measured import NotRunError as NotRunError  # noqa: PLC0414

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


@dataclass(frozen=True)
class Found:
    """What a rule found: our value, the verdict, and the run and chart that show it."""

    ours: str
    verdict: Verdict
    run: Run
    chart: str = ""


class Runs:
    """The runs given, by command."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.all = list(runs)

    @cached_property
    def measured(self) -> Runs:
        """The same runs as rules read them: what was not measured raises NotRunError."""
        return Runs([MeasuredRun(run.folder, run.summary) for run in self.all])

    def of(self, command: str) -> list[Run]:
        """Finished runs of a command; raises NotRunError if there are none."""
        found = [run for run in self.all if run.command == command and run.results]
        if not found:
            raise NotRunError(f"no run of `ropescope {command}` among those given")
        return found

    def one(self, command: str) -> Run:
        """The first run of a command."""
        return self.of(command)[0]

    def of_task(self, command: str, task: str) -> Run:
        """The first run of a command with results for a task."""
        for run in self.of(command):
            if task in run.results:
                return run
        raise NotRunError(f"no run of `ropescope {command}` on the {task} task among those given")

    def profiles(self) -> list[Run]:
        """Profiles of binding prompts, those with most files first: their sections of the page show most.

        Paper A's claims are on such prompts, so a text of one's own judges none of them.
        """

        def missing(run: Run) -> list[bool]:
            names = (("head_details.json", "closer.json"), ("profile.nc",))
            return [not any((run.folder / name).exists() for name in either) for either in names]

        binding = [run for run in self.of("profile") if run.config.get("prompts", {}).get("kind") == "binding"]
        if not binding:
            raise NotRunError("no profile of binding prompts among the runs given")
        return sorted(binding, key=missing)


Rule = Callable[[Runs], Found]


@dataclass(frozen=True)
class Case:
    """A claim with its rule, before it is judged."""

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
        """The judged claim; "not run" if the runs do not hold what the rule needs."""
        told = (self.claim, self.paper, self.where, self.statement, self.paper_value)
        try:
            found = self.rule(runs.measured)
        except NotRunError as reason:
            return Claim(*told, "", "not run", f"{str(reason)[0].upper()}{str(reason)[1:]}.", "", "", self.section)
        except (LookupError, ValueError, TypeError, ArithmeticError):  # runs of other sizes, or older ones
            why = "Cannot be judged from the runs given: they are smaller than the rule needs, or of another version."
            return Claim(*told, "", "not run", why, "", "", self.section)
        return Claim(*told, found.ours, found.verdict, self.note, found.run.name, found.chart, self.section)


CASES: dict[str, Case] = {}
"""Every claim by name. `all_cases` loads the modules that fill it."""


def claims_in(section: Section) -> Callable[[str, Paper, str, str, str], Callable[[Rule], Rule]]:
    """A decorator that registers rules in a section of the scoreboard.

    It takes the claim's name, the paper, the place in the paper, the paper's value, and a note on how the claim is judged. The
    rule's docstring is the statement of the claim.
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


def all_cases() -> list[Case]:
    """Every claim, section by section and by name."""
    from . import FOLDERS  # noqa: PLC0415

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
    """The verdict "reproduced" if `whole` holds, "partly" if only `part` does, else "not"."""
    return "reproduced" if whole else "partly" if part else "not"


def every(holds: Iterable[bool]) -> Verdict:
    """The verdict "reproduced" if all cases hold, "partly" if some do, else "not"; without cases NotRunError."""
    cases = list(holds)
    if not cases:
        raise NotRunError("the runs given hold no case of it")
    return graded(all(cases), any(cases))


def span(values: Iterable[float], form: str = ".2f") -> str:
    """The range of the values as text; one number if both ends are printed alike."""
    known = sorted(values)
    ends = [format(known[0], form), format(known[-1], form)]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def many(profiles: Sequence[object]) -> str:
    """The number of profiles as text."""
    return f"{len(profiles)} profile{'' if len(profiles) == 1 else 's'}"


def small_p(value: float) -> str:
    """A p-value as text. Below 0.001 its size depends on how tails are shaped, which few observations do not show."""
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"


def tiny(value: float) -> str:
    """A difference that should be 0, as text."""
    return f"{value:.0e}" if value else "0"


def listed(numbers: Iterable[int]) -> str:
    """Names of layers, such as "L0, L3"."""
    return ", ".join(f"L{n}" for n in numbers) or "none"
