"""The former name of `ropescope.runs.units`; it goes with the next release."""

from __future__ import annotations

from .runs.units import HERE, Engine, in_order, spread
from .runs.units import cached_units as kept

__all__ = ["HERE", "Engine", "in_order", "kept", "spread"]
