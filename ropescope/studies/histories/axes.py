"""What the charts of a history share: width, steps, numbers."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from ...runs import Trajectory

WIDTH = 860


STEPS = "training step"
"""Title of the axis of steps."""


def number(value: Any, digits: int = 4) -> float | None:
    """For a chart: rounded, and nothing where there is no number."""
    return round(float(value), digits) if np.isfinite(value) else None


def step_axis(run: Trajectory, title: str | None = None) -> alt.X:
    """Steps of training, from the first look to the last. Of panels below each other only the last needs a title."""
    first, last = min(0, int(run.steps[0])), int(run.steps[-1])
    return alt.X("step:Q", title=title, scale=alt.Scale(domain=[first, max(last, first + 1)], nice=False)).axis(
        tickCount=8, tickMinStep=1
    )
