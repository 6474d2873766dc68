"""Run types that tests record and no command makes: kills at random moments, damaged files, hostile text, and pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..study import Study

if TYPE_CHECKING:
    from ...runs import Run


def soak_headline(run: Run) -> str:
    """What kills did to run folders."""
    found = run.results["all"]
    wrong = ", ".join(f"{found[key]} {key.replace('_', ' ')}" for key in ("lost", "corrupt", "different", "left_over"))
    return f"killed {found['points']} times at random moments and resumed: of {found['files']} files {wrong}"


def fuzz_headline(run: Run) -> str:
    """How damaged files were met."""
    return f"{run.results['all']['examples']:,} damaged files: {run.results['all']['refused']:,} refused in one sentence"


def hostile_headline(run: Run) -> str:
    """What hostile text in run folders did to pages."""
    found = run.results["all"]
    return f"{found['opened']} pages of hostile text opened in a browser: {found['ran'] or 'nothing'} ran"


def page_headline(run: Run) -> str:
    """How fast the page of all runs opens."""
    found = run.results["both cores busy"]
    times = found["milliseconds"]
    return (
        f"{run.results['bytes'] / 1e6:.1f} MB of {run.results['runs']} runs; with both cores busy first paint after "
        f"{times['first_paint']['median'] / 1000:.1f} s and a live picture after {times['live']['median'] / 1000:.1f} s, "
        f"{found['complaints'] or 'no'} complaints in {found['loads']} loads"
    )


STUDIES = (
    Study("soak", heading="Checks and costs", headline=soak_headline, title=lambda _: "Killed at random moments, and resumed"),
    Study("fuzz", heading="Checks and costs", headline=fuzz_headline, title=lambda _: "Damaged files"),
    Study("page", heading="Checks and costs", headline=page_headline, title=lambda _: "How fast this page opens"),
    Study("hostile", heading="Checks and costs", headline=hostile_headline, title=lambda _: "Pages of hostile text"),
)
