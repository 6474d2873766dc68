"""The scoreboard: every claim of both papers, judged from recorded runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import altair as alt
from markupsafe import Markup

from ..charts import Figure, chart_of
from ..html import render
from ..runs import find_runs
from ..studies.claims import VERDICTS, Claim, judge
from ..studies.story import Finding

SIGNS = {
    "reproduced": "\N{CHECK MARK}",
    "partly": "\N{CIRCLE WITH LEFT HALF BLACK}",
    "not": "\N{BALLOT X}",
    "not run": "\N{EN DASH}",
}
"""What a row of the scoreboard may say, with a sign that needs no colour."""
COLOURS = {"reproduced": "#00775A", "partly": "#E5B93C", "not": "#B34700", "not run": "#999999"}


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


def scoreboard_html(rows: Sequence[Claim], link: Callable[..., str]) -> Markup:
    """A tally of all claims by section and verdict, whose rows can be searched and open on demand.

    link  function of the names of a run and of its chart that returns an id on the page, or nothing
    """
    sections = [
        {
            "name": name,
            "rows": [(row, link(row.run, row.chart) if row.run else "") for row in part],
            "counts": counted(part),
        }
        for name, part in grouped(rows).items()
    ]
    papers = list(dict.fromkeys(row.paper for row in rows))
    counts = counted(rows)
    return render("scoreboard.html", sections=sections, counts=counts, total=len(rows), papers=papers, signs=SIGNS)


def not_reproduced(rows: Sequence[Claim]) -> Finding | None:
    """What of both papers does not hold in the runs, as a finding; None if nothing was judged."""
    judged = [row for row in rows if row.verdict != "not run"]
    wrong = [row for row in judged if row.verdict == "not"]
    if not judged:
        return None
    values = [
        {"section": name, "verdict": verdict, "rank": VERDICTS.index(verdict), "claims": count}
        for name, part in grouped(judged).items()
        for verdict, count in counted(part).items()
        if count
    ]
    present = [verdict for verdict in VERDICTS if any(row["verdict"] == verdict for row in values)]
    colour = alt.Color(
        "verdict:N", title=None, scale=alt.Scale(domain=present, range=[COLOURS[verdict] for verdict in present])
    )
    chart = (
        chart_of(values)
        .mark_bar()
        .encode(
            x=alt.X("claims:Q", title="claims").axis(tickMinStep=1),
            y=alt.Y("section:N", title=None, sort=list(grouped(judged))).axis(labelLimit=320),
            color=colour.legend(orient="top"),
            order=alt.Order("rank:O"),
            tooltip=["section:N", "verdict:N", "claims:Q"],
        )
        .properties(width=320, height=alt.Step(24), title="Verdicts by part of the papers")
    )
    papers = sum(row.paper != "ours" for row in wrong)
    claim = (
        f"Not everything reproduces: of {len(judged)} claims that could be judged {len(wrong)} fail, {papers} of them the "
        "papers' own."
    )
    reading = "Each bar is a part of both papers; green is what held, yellow what held in part, dark orange what failed."
    return Finding(claim, str(len(wrong)), "claims do not hold", Figure(chart, reading), None, "")


def _cell(text: str) -> str:
    """Text that stays within its cell of a table."""
    return " ".join(text.replace("|", "\\|").split())
