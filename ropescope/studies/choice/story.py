"""What models choose among the items, on the front of a page."""

from __future__ import annotations

from ...runs import Run
from ..claims import NotRunError, Runs
from ..story import Story, story
from .tables import name_of


def title(run: Run) -> str:
    """What the page calls the run."""
    return f"{name_of(run)}, choosing among the items of number and letter questions"


@story("Do chat models show it?")
def choice(runs: Runs) -> Story:
    """The best model under forced choice, in words, on the letter task at 16."""
    found = []
    for run in runs.of("choice"):
        tasks = run.results["accuracy"].get("words", {})
        cells = [tasks.get(task, {}).get("16") for task in ("letter", "number")]
        if all(cells):
            found.append((*cells, run))
    if not found:
        raise NotRunError("no run of `ropescope choice` with both tasks at 16")
    letter, number, run = max(found, key=lambda each: float(each[0]["mean"]))
    text = (
        "A model that cannot say the answer alone can still choose it among the items of the list, by their log probability. "
        f"Of {len(found)} local models asked in words, {name_of(run)} chooses best among 16 pairs: {letter['mean']:.0%} are "
        f"right (by chance {letter['chance']:.0%}), and {number['mean']:.0%} in the number task (by chance "
        f"{number['chance']:.0%})."
    )
    return Story((text,), run, "accuracy", "Solid lines are the model's choices; broken ones guess by place.")
