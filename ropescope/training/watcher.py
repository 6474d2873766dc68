"""Old names of `training.probe` and `training.measuring`."""

from __future__ import annotations

from collections.abc import Callable

from ..models.gptj import GPTJ
from ..runs import Row
from ..tasks import Samples
from .measuring import task_measures as watched
from .probe import accuracy_per_hop, probe_row

__all__ = ["Watcher", "accuracy_per_hop", "watched"]


def Watcher(probe: Samples, tau: float = 1e-4) -> Callable[[GPTJ], Row]:  # noqa: N802
    """`probe_row` on fixed sequences, as a function of the model."""
    return lambda model: probe_row(model, probe, tau)
