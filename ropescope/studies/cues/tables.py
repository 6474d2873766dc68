"""Headline, tables and the labelled dataset of a run on cues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runs import Run
from ..claims import span
from ..study import Table

if TYPE_CHECKING:
    import xarray as xr


def of_setting(run: Run, setting: str) -> list[Mapping[str, Any]]:
    """The models of a setting, one for each seed."""
    return [row for row in run.results["models"] if row["setting"] == setting]


def preferences(run: Run, setting: str) -> list[float]:
    """Cue preference of the models of a setting, of those that follow either cue."""
    return [row["preference"] for row in of_setting(run, setting) if row.get("preference") is not None]


def headline(run: Run) -> str:
    """Preference of the default model, and of the settings with most and least of it, with the range over seeds."""
    known = {setting: preferences(run, setting) for setting in run.results["settings"]}
    ranked = sorted((setting for setting, found in known.items() if found), key=lambda setting: float(np.mean(known[setting])))
    seeds = run.config["seeds"]
    if not ranked:
        return "no model follows either cue where they disagree"
    names = dict.fromkeys(["default", ranked[-1], ranked[0]])
    parts = [f"{span(known[name])} with {name}" for name in names if known[name]]
    over = "one seed" if seeds == 1 else f"range over {seeds} seeds"
    text = f"share of answers by letters where the two cues disagree ({over}): {', '.join(parts)}"
    found = run.results["predicts"]
    if found.get("lead") is None:
        return text
    tokens, many = run.results["lengths"][-1], f"{found['models']} models"
    return f"{text}; scores of heads and accuracy at {tokens} tokens: rank correlation {found['lead']:.2f} ({many})"


def tables(run: Run) -> list[Table | str]:
    """What the command prints."""
    length, *_, longest = run.results["lengths"]
    titles = ["setting", "learned", f"accuracy, {length} tokens", "letters decide", "letters alone", "integers alone"]
    titles += ["positional", "symbolic", f"accuracy, {longest} tokens"]
    return [Table(titles, [_row(run, setting) for setting in run.results["settings"]], _about(run)), predicted(run)]


def predicted(run: Run) -> str:
    """Whether outcomes at the training length predict accuracy beyond it."""
    found, longest = run.results["predicts"], run.results["lengths"][-1]
    names = {"lead": "symbolic minus positional score", "preference": "cue preference"}
    values = [f"{text} {'-' if found.get(name) is None else format(found[name], '.2f')}" for name, text in names.items()]
    return (
        f"rank correlation with accuracy at {longest} tokens over {found['models']} models that learned the task "
        f"(of {found['of']}): {', '.join(values)}"
    )


def _about(run: Run) -> str:
    return f"Range over seeds ({run.config['seeds']}); accuracies are means of both hop counts"


def _row(run: Run, setting: str) -> list[str]:
    rows = of_setting(run, setting)

    def mean(name: str) -> str:
        return span(float(np.mean(row[name])) for row in rows)

    decided = preferences(run, setting)
    near, far = (span(float(np.mean(row["accuracy"][at])) for row in rows) for at in (0, -1))
    alone = [mean(name) for name in ("letters_alone", "integers_alone")]
    learned = f"{sum(row['learned'] for row in rows)} of {len(rows)}"
    return [setting, learned, near, span(decided) if decided else "-", *alone, mean("positional"), mean("symbolic"), far]


def dataset(run: Run) -> xr.Dataset:
    """Outcomes of every model."""
    import xarray as xr  # noqa: PLC0415

    rows: Sequence[Mapping[str, Any]] = run.results["models"]

    def values(name: str) -> Any:
        return [np.nan if row.get(name) is None else row[name] for row in rows]

    described = {
        "preference": ((), "share of answers that follow letters, of those that follow either cue"),
        "follows_either": ((), "share of answers to conflicting cues that follow either"),
        "lead": ((), "symbolic minus positional score, mean over heads"),
        "learned": ((), "accuracy is at least 0.9 at every hop count"),
        "accuracy": (("length", "hops"), "accuracy with both cues"),
        "letters_alone": (("hops",), "accuracy with integers scrambled"),
        "integers_alone": (("hops",), "accuracy with letters scrambled"),
    }
    variables = {name: (("model", *dims), values(name), {"long_name": label}) for name, (dims, label) in described.items()}
    for name in ("positional", "symbolic"):  # layers differ in their number of heads between models
        means = [np.mean(row[name], axis=1) for row in rows]
        variables[name] = (("model", "layer"), means, {"long_name": f"{name} score, mean over a layer's heads"})
    coords = {name: ("model", [row[name] for row in rows]) for name in ("setting", "knob", "value", "seed")}
    hops = range(1, len(rows[0]["letters_alone"]) + 1)
    return xr.Dataset(variables, {**coords, "length": list(run.results["lengths"]), "hops": list(hops)})
