"""What the heads of small trained models do along a path, on the front of a page."""

from __future__ import annotations

from ...runs import Run
from ..claims import Runs
from ..story import Story, story


def title(run: Run) -> str:
    """What the page calls the run."""
    tasks = list(run.results)
    find = "models find their answers" if len(tasks) > 1 else "model finds its answers"
    return f"How the {' and the '.join(tasks)} {find}"


@story("What do heads do?")
def paths(runs: Runs) -> Story:
    """How heads pass information along a path."""
    run = runs.one("mechanisms")
    parts, chart = [], ""
    for task, found in run.results.items():
        layers, flow = found["layers"], found["flow"]
        kinds = " and ".join(f"{len(layers[kind])} {kind}" for kind in ("positional", "symbolic") if len(layers[kind]))
        parts.append(f"the {task} model uses {kinds} heads and solves {flow['solved']:,} of {flow['inputs']:,} test inputs")
        chart = chart or f"{task}-functions"
    text = (
        "In small models every head can be followed. Two of them were trained to walk along paths, by counting places back "
        f"(number task) or by looking for letters (letter task): {'; '.join(parts)}. Heads do one of two things at each node "
        "of a path: hop to a node ahead, or look at the node itself and wait."
    )
    return Story((text,), run, chart, "Each row is a layer: how often its head hops ahead, waits, or does neither.")
