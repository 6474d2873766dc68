"""Claims of paper B judged on models by the recipe of its released code, with what models by our recipe say behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from weakref import WeakKeyDictionary

from ..runs import Run
from ..tasks import TASKS
from .claims import Found, NotRunError, Rule, Runs

RELEASED_BETAS = [0.95, 0.999]
"""Of preset `released`, in runs of training."""
RELEASED_ACTIVATION = "gelu"
"""Of preset `released`, in runs on its models."""
BY_OURS = ". By our recipe: "

Claims = Callable[..., Callable[[Rule], Rule]]
_known: WeakKeyDictionary[Runs, tuple[Runs, Runs]] = WeakKeyDictionary()
"""All runs with those by the released recipe first, and all but these."""


def is_released(run: Run) -> bool:
    """Whether a run is the training of a model by the released recipe, or tells the mechanisms of such models alone."""
    if run.command == "train":
        return bool(run.config["betas"] == RELEASED_BETAS)
    if run.command != "mechanisms":
        return False
    models = [run.config[task] for task in TASKS if task in run.config]
    return all(model.get("activation") == RELEASED_ACTIVATION for model in models)


def with_earlier(claim: Claims, *commands: str) -> Claims:
    """The decorator of rules that are judged on runs by the released recipe, with what runs by ours say behind.

    claim     the usual decorator
    commands  the runs that the rules read

    What ours say is "not run" where there are such runs, but they do not hold what the rule needs.
    """
    return lambda *told: lambda rule: claim(*told)(_with_earlier(rule, commands))


def _with_earlier(rule: Rule, commands: tuple[str, ...]) -> Rule:
    @wraps(rule)
    def judged(runs: Runs) -> Found:
        if runs not in _known:
            released = [run for run in runs.all if is_released(run)]
            ours = [run for run in runs.all if not any(run is other for other in released)]
            _known[runs] = (Runs([*released, *ours]) if released else runs), Runs(ours)
        ordered, others = _known[runs]
        found = rule(ordered)
        if ordered is runs or all(run.command not in commands for run in others.all):
            return found
        try:
            earlier = rule(others)
        except NotRunError:
            return replace(found, ours=f"{found.ours}{BY_OURS}not run")
        if earlier.run == found.run:  # no run by the released recipe that this rule reads
            return found
        return replace(found, ours=f"{found.ours}{BY_OURS}{earlier.ours} ({earlier.verdict})")

    return judged
