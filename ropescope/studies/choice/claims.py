"""Our own claims on language models that choose the answer among the items of the window, apart from paper B's."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

from ...runs import Run
from ..claims import Found, NotRunError, Runs, claims_in, every, graded, span
from .scores import LONG, rank_correlation

claim = claims_in("Chat models")

FROM = 16
"""Paper B's claims on chat models begin at this window."""
FEWEST = 4
"""Fewest models whose ranks are compared."""
ENOUGH = 8
"""Fewest models from which the comparison can be called reproduced."""
STRONG = 0.5


def _leads(runs: Runs, form: str) -> Iterator[tuple[Run, list[float]]]:
    """Letter minus number at every window from 16 on, for every model that was asked both in this form."""
    for run in runs.of("choice"):
        tasks = run.results["accuracy"].get(form, {})
        number, letter = ({int(n): cell["mean"] for n, cell in tasks.get(task, {}).items()} for task in ("number", "letter"))
        leads = [letter[n] - number[n] for n in sorted(number) if n >= FROM and n in letter]
        if leads:
            yield run, leads


def _letter_above(runs: Runs, form: str) -> Found:
    found = list(_leads(runs, form))
    if not found:
        raise NotRunError(f"no model was asked both tasks ({form}) at windows from {FROM} on")
    told = [
        f"{run.config['model']['source']} {sum(lead > 0 for lead in leads)} of {len(leads)} ({span(leads)})"
        for run, leads in found
    ]
    verdict = every(all(lead > 0 for lead in leads) for _, leads in found)
    return Found(f"windows where letter is above: {'; '.join(told)}", verdict, found[0][0], "accuracy")


NOTE = (
    "Every model asked, at every window from 16 on that fits; partly if in some models. No screening: these are base and small "
    "chat models, and the item of the highest log probability counts as the answer."
)


@claim("ours-choice-letter", "ours", "section 3.7, forced choice", "letter above number in three chat models", NOTE)
def letter_in_words(runs: Runs) -> Found:
    """Forced choice in words: letter is above number at every length from 16 on."""
    return _letter_above(runs, "words")


@claim("ours-choice-python", "ours", "section 3.7, forced choice", "letter above number in three chat models", NOTE)
def letter_as_python(runs: Runs) -> Found:
    """Forced choice as Python: letter is above number at every length from 16 on."""
    return _letter_above(runs, "python")


@claim(
    "ours-choice-late",
    "ours",
    "section 3.7, forced choice",
    "asked without numbers",
    f"Rank correlation of the mean symbolic score of late heads with the mean letter accuracy above chance at windows of "
    f"{', '.join(map(str, LONG))}, at least {STRONG} in both forms, over at least {ENOUGH} models; partly if it is in one "
    f"form, or over fewer models (at least {FEWEST}), which decide little.",
)
def late_heads(runs: Runs) -> Found:
    """Models with more symbolic late heads hold longer on the letter task."""
    told, holds, counts, shown = [], [], [], None
    for form in ("words", "python"):
        rows = []
        for run in runs.of("choice"):
            late, reached = run.results.get("late_symbolic"), run.results["held"].get(form, {}).get("letter")
            if late is not None and reached is not None:
                rows.append((late, reached, run))
        if len(rows) < FEWEST:
            continue
        rho = rank_correlation([row[0] for row in rows], [row[1] for row in rows])
        if not isnan(rho):  # accuracies differ
            told.append(f"{form}: {rho:.2f} over {len(rows)} models")
            holds.append(rho >= STRONG)
            counts.append(len(rows))
            shown = shown or rows[0][2]
    if shown is None:
        raise NotRunError(f"fewer than {FEWEST} models with a profile were asked the letter task at windows up to {LONG[-1]}")
    whole = len(holds) == 2 and all(holds) and min(counts) >= ENOUGH
    return Found(f"rank correlation, {'; '.join(told)}", graded(whole, any(holds)), shown, "accuracy")
