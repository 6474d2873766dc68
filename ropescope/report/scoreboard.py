"""The scoreboard: every claim of both papers, judged from recorded runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..runs import find_runs
from ..studies.claims import VERDICTS, Claim, judge


def scoreboard(folders: Sequence[Path]) -> list[Claim]:
    """One row for each claim, judged from the runs in these folders and below them; "not run" if they lack what is needed."""
    return judge(find_runs(folders))


def grouped(rows: Sequence[Claim]) -> dict[str, list[Claim]]:
    """The rows by section of the scoreboard."""
    found: dict[str, list[Claim]] = {}
    for row in rows:
        found.setdefault(row.section, []).append(row)
    return found


def counted(rows: Sequence[Claim]) -> dict[str, int]:
    """How many rows have each verdict."""
    found = Counter(row.verdict for row in rows)
    return {verdict: found[verdict] for verdict in VERDICTS}


def markdown(rows: Sequence[Claim]) -> str:
    """The scoreboard as Markdown tables, one for each section."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in counted(rows).items() if count)
    lines = [f"{len(rows)} claims: {counts}.", ""]
    for title, part in grouped(rows).items():
        lines += [f"## {title}", "", "| claim | statement | by | its value | ours | verdict | how judged, what differs |"]
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
