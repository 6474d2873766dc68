"""The table of choice.md, from recorded runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ropescope.runs import find_runs
from ropescope.studies.choice.tables import pooled

RESULTS = Path(__file__).parents[1] / "results"
SHOWN = ("12", "16", "32", "64", "100")


def choice_rows() -> list[str]:
    """Every recorded model in both forms: accuracy at some windows, and how many of all questions are right."""
    rows = []
    for run in find_runs(sorted(RESULTS.glob("choice-*"))):
        config, results = run.config, run.results
        late = results["late_symbolic"]
        for form, tasks in results["accuracy"].items():
            shown = [", ".join(f"{cells[n]['mean']:.2f}" if n in cells else "-" for n in SHOWN) for cells in tasks.values()]
            counts = [pooled(cells) for cells in tasks.values()]
            shown += [f"{right:.3g} of {count}, {by_chance:.1f}" for right, count, by_chance in counts]
            name = f"{config['model']['source']}, {config['model']['dtype']}"
            rows.append(f"| {name} | {form} | {' | '.join(shown)} | {late:.2f} |")
    return rows


TABLES: dict[str, Callable[[], list[str]]] = {"choice": choice_rows}
