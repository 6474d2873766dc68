"""What a page shows of each kind of run: under which heading, in one line, in figures, and which heads can be chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..charts import Figure
from ..runs import Run
from ..studies.study import Study
from . import llm


@dataclass(frozen=True)
class Kind:
    """How runs of one command are shown; `headline` says in one line what came out."""

    heading: str
    headline: Callable[[Run], str]
    figures: Callable[[Run], dict[str, Figure]]


def old_study(run: Run) -> Study:
    """How to show a run whose study has not moved to its folder."""
    kind = KINDS.get(run.command, Kind("Other runs", lambda run: f"ropescope {run.command}", lambda _: {}))
    return Study(run.command, kind.heading, kind.headline, figures=kind.figures)


def _llm(run: Run) -> str:
    found = run.results.get("screening")
    if not found:
        return f"{run.config['model']['source']} on the number and letter tasks"
    passed = "passes" if found["passed"] else "fails"
    name, at = run.config["model"]["source"], f"{found['accuracy']:.2f} on the {found['task']} task at length {found['length']}"
    return f"{name} {passed} the screening: {at}, {found['single']:.0%} of answers a single token"


KINDS = {
    "llm": Kind("Chat models", _llm, llm.of_run),
}
"""Commands, in the order in which their runs stand on a page."""
