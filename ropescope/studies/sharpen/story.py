"""What sharpening heads of a language model does past its trained length, on the front of a page."""

from __future__ import annotations

from ...runs import Run
from ..claims import NotRunError, Runs
from ..story import Story, story
from .names import ALL, BASE, POSITIONAL, SYMBOLIC


def title(run: Run) -> str:
    """What the page calls the run."""
    return f"Heads of {run.config['model']} sharpened past its trained length of {run.config['trained']:,} tokens"


@story("How far does it hold?")
def sharper(runs: Runs) -> Story:
    """Whether the cure of small models helps a language model."""
    for run in runs.of("sharpen"):
        choices, usual = run.results["choices"], run.config["start"] == run.config["trained"]
        if usual and SYMBOLIC in choices and POSITIONAL in choices:
            break
    else:
        raise NotRunError("no run of `ropescope sharpen` on a model with symbolic and positional heads")
    parts = [f"{_changed(choices[name]['gain']['mean'])} in {name} heads" for name in (SYMBOLIC, POSITIONAL, ALL)]
    text = (
        f"Logits times log n are no cure by themselves for a language model: past {run.config['trained']:,} tokens the loss of "
        f"{run.config['model']} is {{}}"
        if max(choices[name]["gain"]["mean"] for name in (SYMBOLIC, POSITIONAL, ALL)) <= 0
        else f"Logits times log n also help a language model: past {run.config['trained']:,} tokens the loss of "
        f"{run.config['model']} is {{}}"
    ).format(", ".join(parts))
    if BASE in choices:
        text += f". A larger base instead makes it {_changed(choices[BASE]['gain']['mean'])}"
    return Story((f"{text}.",), run, "loss", "Lines above the black one lose more than the model as it is.")


def _changed(gain: float) -> str:
    return f"{abs(gain):.2f} nats {'lower' if gain > 0 else 'higher'}"
