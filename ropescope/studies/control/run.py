"""The study of changes: the model as it is, then each change of the plan, stored one by one in the run folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...models.adapter import Adapter
from ...models.adapter.edits import Changes
from ...models.adapter.interventions import intervene, parse_changes
from ...models.gptj import GPTJ
from ...runs import plain, read_sealed, sealed, write_whole
from ...tasks import task_names
from ..study import Outcome, Work
from . import KINDS, Settings
from .changes import KEPT, Table, Unit, classes, default_units, head_units, plane_units
from .subjects import Subject, task_subject, text_subject

Row = dict[str, Any]
"""Of one unit: name, against, drawn, how much was changed, measures, and scores per layer unless it was drawn."""
Plan = Callable[[Mapping[str, Table]], list[Unit]]
"""Scores of heads of the unchanged model to what to try."""


def run(settings: Settings, work: Work) -> Outcome:
    """Measures of the model as it is and after every change, beside those of random changes."""
    own = settings.model in task_names()
    subject, about = task_subject(settings.model, settings.inputs) if own else text_subject(settings)
    asked = {name: value for name in ASKED if (value := getattr(settings, name)) is not None}
    share = 1.0 if own else settings.head_share
    config = about | {"asked": asked, "heads": settings.heads, "head_share": share}
    config |= {"draws": settings.draws, "seed": settings.seed}
    plan, most = _plan(subject.model, settings, asked, share)
    work.resumed(config, __name__, "study", "a study of another model or other settings")
    rows = list(work.progress(_rows(subject, plan, work), most, "changes"))
    if len(rows) == 1:
        raise ValueError(f"the model has no {settings.heads} head: there is nothing to ablate")
    return Outcome(config, {"kinds": kinds_found(subject.model, rows[0]["heads"]), "changes": summary(rows)})


ASKED = ("drop", "keep", "scale", "stop", "p_rope")
"""Settings that change planes."""


def _plan(model: Adapter | GPTJ, settings: Settings, asked: Mapping[str, Any], share: float) -> tuple[Plan, int]:
    """What to try, given the scores of heads, and at most how much that is."""
    draws, seed, heads = settings.draws, settings.seed, settings.heads
    changes = parse_changes(model, **asked)
    everything = not asked and heads is None

    def plan(scores: Mapping[str, Table]) -> list[Unit]:
        units: list[Unit] = []
        if everything:
            kept = KEPT if isinstance(model, GPTJ) else KEPT[:1]  # with fewer a language model is lost anyway
            units += default_units(model, draws, seed, kept)
        elif asked:
            name = ", ".join(f"{key.replace('_', '-')} {value}" for key, value in asked.items())
            units += plane_units(model, {name: changes}, draws, seed)
        if everything or heads is not None:
            wanted = KINDS if heads in (None, "all") else (heads,)
            found = classes(model, scores, share)
            units += head_units(model, {kind: found[kind] for kind in wanted}, draws, seed)
        return units

    return plan, (27 + 7 * draws if everything else 1 + draws) + 3 * (draws + 1)


def _rows(subject: Subject, plan: Plan, work: Work) -> Iterator[Row]:
    """The model as it is, then each change of the plan; finished ones are read from the folder."""
    none = _cached(subject, Unit("nothing", {}), "000", work)
    yield none
    scores = {name: np.array(none["heads"][name], dtype=float) for name in ("positional", "symbolic")}
    for number, unit in enumerate(plan(scores), start=1):
        yield _cached(subject, unit, f"{number:03d}", work)


def _cached(subject: Subject, unit: Unit, name: str, work: Work) -> Row:
    """The row of a unit, from the folder if it is there and whole; otherwise measured and stored."""
    path = work.folder / "units" / f"{name}.json"
    if path.exists():
        try:
            row: Row = read_sealed(path, "it is not used but made again")
        except ValueError as error:
            work.tell(f"ropescope: {error}")
            row = {}
        if row.get("name") == unit.name and isinstance(row.get("measures"), dict):
            return row
    with intervene(subject.model, unit.changes):
        row = {"name": unit.name, "against": unit.against, "drawn": unit.drawn, "changed": _changed(unit.changes)}
        row["measures"] = {name: round(value, 6) for name, value in subject.measures().items()}
        if not unit.drawn:
            scores = subject.scores()
            row |= {name: [_number(x) for x in table.mean(1)] for name, table in scores.items()}
            if not unit.changes:
                row["heads"] = {name: plain(table) for name, table in scores.items()}
    write_whole(path, sealed(row, indent=1))
    return row


def _number(x: np.float64) -> float | None:
    return round(float(x), 6) if np.isfinite(x) else None


def _changed(changes: Changes) -> dict[str, Any]:
    """Which planes (from 1 on, of the first layer that has any changed) and how many heads."""
    planes = [
        [n + 1 for n in range(len(change.gains or ())) if change.gains and change.gains[n] != 1]
        + [n + 1 for n in change.stopped]
        for change in changes.values()
    ]
    return {
        "planes": next((sorted(set(own)) for own in planes if own), []),
        "heads": [[layer, head] for layer, change in changes.items() for head in change.out],
    }


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Measures of every change beside mean, least and most of the random ones that it is compared with."""
    drawn: dict[str, list[dict[str, float]]] = defaultdict(list)
    for row in rows:
        if row["drawn"]:
            drawn[row["name"].rsplit(" ", 1)[0]].append(row["measures"])
    result: dict[str, Any] = {}
    for row in rows:
        if row["drawn"]:
            continue
        entry = {key: row[key] for key in ("changed", "measures", "positional", "symbolic")}
        if others := drawn.get(row["against"] or ""):
            entry["against"], entry["draws"] = row["against"], len(others)
            entry["random"] = {
                name: {
                    "mean": round(float(np.mean([other[name] for other in others])), 6),
                    "least": min(other[name] for other in others),
                    "most": max(other[name] for other in others),
                }
                for name in row["measures"]
            }
        result[row["name"]] = entry
    return result


def kinds_found(model: Adapter | GPTJ, heads: Mapping[str, Any]) -> dict[str, int]:
    """How many heads of each kind the unchanged model has."""
    scores = {name: np.array(heads[name], dtype=float) for name in ("positional", "symbolic")}
    return {kind: len(own) for kind, own in classes(model, scores).items()}
