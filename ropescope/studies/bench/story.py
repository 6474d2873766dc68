"""What scores cost, on the front of a page."""

from __future__ import annotations

from ...runs import Run
from ..claims import NotRunError, Runs, span
from ..story import Story, story

TITLES = {
    "scores": "What scores cost on small models",
    "training": "What training costs",
    "all": "What scores, data and training cost",
    "profile": "What a profile of {model} costs",
    "watch": "What watching {model} in training costs",
    "ray": "The same work on one machine and on a cluster",
    "memory": "How little memory {model} needs",
    "precision": "Scores of {model} in half precision",
}


def title(run: Run) -> str:
    """What the page calls the run."""
    model = run.config.get("model")
    return TITLES[run.config["what"]].format(model=model["source"] if isinstance(model, dict) else "a model")


@story("How is it checked, and what does it cost?")
def cost(runs: Runs) -> Story:
    """What it costs to score all heads of a language model."""
    found = [run for run in runs.of("bench") if run.config["what"] == "profile"]
    if not found:
        raise NotRunError("no benchmark of a profile among the runs given")
    rows = [row for row in found[0].results.values() if row["moves"] == "sentences"]
    ratios = [float(row["scored_over_plain"]) for row in rows]
    text = (
        f"Scoring every head of {found[0].config['model']['source']} takes as long as {span(ratios, '.1f')} plain passes over "
        f"the same prompts, at {span((row['tokens'] for row in rows), ',d')} tokens. Nothing is run again for any of the "
        f"{max(int(row['swaps']) for row in rows):,} swaps: all of them are read off one matrix."
    )
    return Story((text,), found[0], "cost", "Time over a plain forward pass: near 1 means that scores come almost free.")
