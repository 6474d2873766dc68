"""Runs as rules of claims, figures and tables read them: what was not measured cannot be taken for a number.

A rule reads `run.results["a"]["b"]`. If that is missing, None or NaN, or a list with such an entry, NotRunError is raised, and
the claim is "not run". Where None has a meaning (an accuracy that never falls below a level), the rule asks for it by `get`.
Figures, tables and headlines read runs in the same way: they leave out what they ask for by `get` and do not find, and of a
run that lacks anything else a ValueError in one sentence says that it is incomplete.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any

from ..runs import Run


class NotRunError(Exception):
    """The runs given do not hold what a rule needs."""


class Measured(Mapping[str, Any]):
    """Entries of a run, of which every one that is read by its name is there.

    values  the entries
    owner   name of the run
    path    names of the entries that hold these
    """

    def __init__(self, values: Mapping[str, Any], owner: str, path: tuple[str, ...] = ()) -> None:
        self._values, self._owner, self._path = values, owner, path
        self._whole: set[str] = set()  # names of entries that hold no None
        self._read: dict[str, Any] = {}  # what was read before: lists are long, and charts read them once per head

    def __getitem__(self, key: str) -> Any:
        """The entry; raises NotRunError if it is missing, None or NaN, or a list that holds None or NaN."""
        value = self._values.get(key)
        if key not in self._whole:
            if _missing(value):
                raise NotRunError(f"{self._owner} holds no {', '.join((*self._path, str(key)))}")
            self._whole.add(key)
        return self._wrapped_once(key, value)

    def get(self, key: str, default: Any = None) -> Any:
        """The entry, which may hold None; `default` if it is missing, None or NaN itself."""
        value = self._values.get(key)
        return default if _missing(value, deep=False) else self._wrapped_once(key, value)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def _wrapped_once(self, key: str, value: Any) -> Any:
        if key not in self._read:
            self._read[key] = self._wrapped(key, value)
        return self._read[key]

    def _wrapped(self, key: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return Measured(value, self._owner, (*self._path, str(key)))
        return [self._wrapped(key, item) for item in value] if isinstance(value, list) else value


def _missing(value: Any, deep: bool = True) -> bool:
    """Whether a value is None or NaN; if `deep`, also whether a list holds one that is."""
    if isinstance(value, list):
        return deep and any(map(_missing, value))
    return value is None or (isinstance(value, float) and math.isnan(value))


class MeasuredRun(Run):
    """A run folder whose results, settings and files are `Measured`."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings."""
        return Measured(self.summary["config"], self.name, ("setting",))

    @property
    def results(self) -> Mapping[str, Any]:
        """The results, as far as they are in the summary."""
        return Measured(self.summary["results"], self.name)

    def read(self, name: str) -> Any:
        """The content of a JSON file beside the summary; None if there is no such file."""
        found = super().read(name)
        return None if found is None else Measured({name: found}, self.name).get(name)


class ShownRun(MeasuredRun):
    """A run folder whose results and files are `Measured`; a setting may be None."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings."""
        found: Mapping[str, Any] = self.summary["config"]
        return found


def shown(describe: Callable[[Run], Any]) -> Callable[[Run], Any]:
    """The function of a run, which then reads it as a `ShownRun`; a ValueError in one sentence if the run is incomplete."""

    @wraps(describe)
    def call(run: Run) -> Any:
        try:
            return describe(ShownRun(run.folder, run.summary))
        except NotRunError as missing:
            raise ValueError(f"{run.folder} is incomplete ({missing}): run it again") from missing
        except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
            if str(run.folder) in str(error):  # says itself what is wrong with the folder
                raise
            raise ValueError(
                f"{run.folder} cannot be shown, as it lacks what a run of {run.command} holds ({error!r}): run it again"
            ) from error

    return call
