"""Rotations fitted to queries and keys, as arrays of any runtime: which dimensions turn, how fast, and where that departs.

planes     which dimensions form planes, from their energies
fit        the frequency of every plane
scaling    what scaling of frequencies that is, with its constants
positions  which position numbers, in which precision, explain angles that do not fit
compare    a fitted rotation against the one that is claimed: what departs, where, and why
"""

from .compare import Claim, Departure, agreement, departures
from .fit import Rotation, anchored, fit_rotation
from .planes import Planes, find_planes
from .scaling import Scaling, name_scaling

__all__ = [
    "Claim",
    "Departure",
    "Planes",
    "Rotation",
    "Scaling",
    "agreement",
    "anchored",
    "departures",
    "find_planes",
    "fit_rotation",
    "name_scaling",
]
