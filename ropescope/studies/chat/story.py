"""What chat models show, on the front of a page."""

from __future__ import annotations

from ...runs import Run
from ..claims import Runs
from ..story import Story, story


def title(run: Run) -> str:
    """What the page calls the run."""
    return f"{run.config['model']['source']}, asked number and letter questions"


@story("Do chat models show it?")
def chat(runs: Runs) -> Story:
    """Whether any model asked passes the screening, and what follows."""
    asked = [run for run in runs.of("llm") if run.results.get("screening") is not None]
    if not asked:
        asked = runs.of("llm")
    passed = [run for run in asked if run.results["screening"]["passed"]]
    best = max(asked, key=lambda run: float(run.results["screening"]["accuracy"]))
    found = best.results["screening"]
    text = (
        "Paper B asks large chat models the same questions in words and finds that letters go better than numbers. "
        f"Here {len(asked)} small model{' was' if len(asked) == 1 else 's were'} asked, and {len(passed) or 'none'} passed the "
        f"screening, which wants {found['least_accuracy']:.0%} on easy letter questions: the best, "
        f"{best.config['model']['source']}, reaches {found['accuracy']:.0%}."
    )
    then = (
        "The claims on chat models are therefore judged from those that passed."
        if passed
        else "So the claims on chat models are open: with a key, ropescope llm asks the models that the paper asked."
    )
    return Story(
        (text, then),
        best,
        "accuracy",
        "Black is this model, with its spread over runs; the coloured lines are the chat models of paper B.",
    )
