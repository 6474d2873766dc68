"""What happens when planes are taken away, on the front of a page."""

from __future__ import annotations

from ...runs import Run
from ..claims import NotRunError, Runs
from ..story import Story, story


def title(run: Run) -> str:
    """What the page calls the run."""
    return f"Planes and heads taken away from {'the ' if 'bundled' in str(run.config['model']) else ''}{run.config['model']}"


@story("Through which frequencies?")
def knob(runs: Runs) -> Story:
    """Frequency as a knob of trained models."""
    for run in runs.of("control"):
        changes = run.results["changes"]
        if "number" in str(run.config["model"]) and "fast third dropped" in changes:
            before, after = (float(changes[name]["measures"]["accuracy"]) for name in ("nothing", "fast third dropped"))
            kept, dropped = changes["nothing"], changes["fast third dropped"]
            turned = all(s > 0.9 for p, s in zip(kept["positional"], dropped["symbolic"], strict=True) if p > 0.9)
            text = (
                "The same holds when planes are taken from a trained model: without its fast third the number model falls from "
                f"{before:.0%} to {after:.0%} of its answers{', and its positional heads turn symbolic' if turned else ''}."
            )
            return Story(
                (text,),
                run,
                "effects",
                "Each row is a change to the planes; grey marks show the same number of planes chosen at random.",
            )
    raise NotRunError("no number model with its fast planes dropped among the runs given")
