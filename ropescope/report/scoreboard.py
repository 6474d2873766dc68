"""The scoreboard: every claim of both papers beside what the recorded runs say of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..runs import Run, find_runs
from .claims import canonical, chat, models, multihop, scores, theory
from .claims.rules import CASES, VERDICTS, Claim, Runs

PARTS = {
    "What a head does, and how to measure it": scores,
    "The number and letter tasks, and how they are learned": multihop,
    "Constructions and discrepancy": theory,
    "Canonical tasks and frequency control": canonical,
    "Real language models": models,
    "Chat models": chat,
}
"""Groups of rows, and the module that holds their rules."""


def scoreboard(folders: Sequence[Path]) -> list[Claim]:
    """One row for each claim, from the runs in these folders or below them; "not run" where they do not hold what is needed."""
    return judged(find_runs(folders))


def judged(found: Sequence[Run]) -> list[Claim]:
    """The same for runs that have been read."""
    runs = Runs(found)
    modules = [module.__name__ for module in PARTS.values()]
    cases = sorted(CASES.values(), key=lambda case: modules.index(case.rule.__module__))
    return [case.row(runs) for case in cases]


def grouped(rows: Sequence[Claim]) -> dict[str, list[Claim]]:
    """The rows under the names of their groups."""
    by_part = {module.__name__: title for title, module in PARTS.items()}
    found: dict[str, list[Claim]] = {title: [] for title in PARTS}
    for row in rows:
        found[by_part[CASES[row.claim].rule.__module__]].append(row)
    return {title: part for title, part in found.items() if part}


def counted(rows: Sequence[Claim]) -> dict[str, int]:
    """How many rows have each verdict."""
    found = Counter(row.verdict for row in rows)
    return {verdict: found[verdict] for verdict in VERDICTS}


def markdown(rows: Sequence[Claim]) -> str:
    """The scoreboard as tables, one for each group."""
    said = ", ".join(f"{count} {verdict}" for verdict, count in counted(rows).items() if count)
    lines = [f"{len(rows)} claims: {said}.", ""]
    for title, part in grouped(rows).items():
        lines += [f"## {title}", "", "| claim | what is said | by | its value | ours | verdict | how judged, what differs |"]
        lines += ["|---|---|---|---|---|---|---|"]
        for row in part:
            by = "ours" if row.paper == "ours" else f"{row.paper}, {row.where}"
            cells = (f"`{row.claim}`", row.statement, by, row.paper_value, row.ours or "-", f"**{row.verdict}**", row.note)
            lines.append("| " + " | ".join(_cell(text) for text in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Text that stays within its cell of a table."""
    return " ".join(text.replace("|", "\\|").split())
