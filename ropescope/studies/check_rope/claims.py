"""Claims on checks of the rotation."""

from __future__ import annotations

from ...runs import Run
from ..claims import Found, NotRunError, Runs, claims_in, graded

claim = claims_in("Real language models")


def _of_tiny_models(runs: Runs) -> Run:
    found = [run for run in runs.of("rope-faults") if run.config["model"] == "tiny"]
    if not found:
        raise NotRunError("no run of `ropescope rope-faults tiny` among those given")
    return found[0]


@claim(
    "ours-6-rope-faults",
    "ours",
    "check-rope",
    "all",
    "Faults of rotation made on purpose: in one layer of a tiny random model of every family, and in all layers of trained "
    "models. Partly, if all are found but not every layer and cause is named.",
)
def faults(runs: Runs) -> Found:
    """Every fault of rotation that we know is found with 64 tokens, and layer and cause are named."""
    every = [_of_tiny_models(runs), *(run for run in runs.of("rope-faults") if run.config["model"] != "tiny")]
    totals = {name: sum(run.results[name] for run in every) for name in ("faulty", "detected", "layer_named", "cause_named")}
    told = [f"{totals[name]} {words}" for name, words in (("detected", "found"), ("layer_named", "layers"))]
    text = f"of {totals['faulty']}: {', '.join(told)} and {totals['cause_named']} causes named"
    whole = len(set(totals.values())) == 1
    return Found(text, graded(whole, totals["detected"] == totals["faulty"]), every[-1])


@claim(
    "ours-6-rope-alarms",
    "ours",
    "check-rope",
    "none",
    "Tiny random models of every family and scaling in float32, float16 and bfloat16. An alarm is real if the same weights, "
    "stored and loaded again, have none.",
)
def alarms(runs: Runs) -> Found:
    """A check of a model whose rotation is right never departs."""
    run = _of_tiny_models(runs)
    number, checks = run.results["false_alarms"], run.results["clean_checks"]
    return Found(f"{number} in {checks} checks", graded(number == 0), run)
