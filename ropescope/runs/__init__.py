"""Run folders and units of work: locks, files written whole, hashes, histories, and where work is done."""

from __future__ import annotations

from .files import sha256, write_whole
from .folder import Run, claim, find_runs, new_summary, plain, read_profile, read_run, write_summary
from .headers import read_header
from .history import History, HistoryFolder, Row, Trajectory, make_trajectory, read_trajectory
from .key import keyed, made_with, refuse_different, refuse_other
from .lock import locked, new_folder
from .sealed import SEAL, cached_arrays, packed_arrays, read_arrays, read_json, read_sealed, sealed
from .units import ENGINES, HERE, Engine, cached_batches, cached_units, in_order, spread

__all__ = [
    "ENGINES",
    "HERE",
    "SEAL",
    "Engine",
    "History",
    "HistoryFolder",
    "Row",
    "Run",
    "Trajectory",
    "cached_arrays",
    "cached_batches",
    "cached_units",
    "claim",
    "find_runs",
    "in_order",
    "keyed",
    "locked",
    "made_with",
    "make_trajectory",
    "new_folder",
    "new_summary",
    "packed_arrays",
    "plain",
    "read_arrays",
    "read_header",
    "read_json",
    "read_profile",
    "read_run",
    "read_sealed",
    "read_trajectory",
    "refuse_different",
    "refuse_other",
    "sealed",
    "sha256",
    "spread",
    "write_summary",
    "write_whole",
]
