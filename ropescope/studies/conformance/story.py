"""Which families of models are read right, on the front of a page."""

from __future__ import annotations

from ...runs import Run
from ..claims import Runs
from ..story import Story, story


def title(_: Run) -> str:
    """What the page calls the run."""
    return "Which families of models are read right"


@story("How is it checked, and what does it cost?")
def families(runs: Runs) -> Story:
    """How many families are verified, refused and not built."""
    run = runs.one("conformance")
    verdicts = run.results["verdicts"]
    text = (
        "Scores are only as good as the reading of a model. A tiny model of every rotary family in transformers was built, its "
        f"tokens really moved, and its logits compared: {verdicts['verified']} families are read right, to "
        f"{run.results['worst_logit_error']:.0e} in double precision; {verdicts['refused']} are refused with a reason, instead "
        "of being scored wrongly."
    )
    return Story(
        (text,),
        run,
        "families",
        "Each mark is a family; the further left, the closer its logits are to those of the model itself.",
    )
