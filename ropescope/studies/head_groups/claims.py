"""Claims on several heads in a layer. Rules were written before any of the recorded models was trained, but for `FEW_KINDS`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scipy.stats import spearmanr

from ...runs import Run
from ..claims import Found, NotRunError, Runs, claims_in, every, span
from .sharing import degrees, layers_of
from .tables import of_setting, settings_of

claim = claims_in("The number and letter tasks, and how they are learned")
FEWEST = 2
"""Seeds without which nothing is judged."""
FEW_LAYERS = 6
"""Layers that do work, without which there is no rank correlation."""
FEW_KINDS = 2
"""Kinds of models with so many; this was added when one alone had them, as six layers tell nothing."""
CLEAR = -0.3
"""Rank correlations up to this count."""
ASKED = "paper B leaves it open"


def _learned(run: Run) -> dict[str, list[Mapping[str, Any]]]:
    """The models that have learned their task, by setting; raises NotRunError if the run has a single seed."""
    if run.config["seeds"] < FEWEST:
        raise NotRunError("the run has a single seed of each model")
    return {setting: [row for row in of_setting(run, setting) if row["learned"]] for setting in settings_of(run)}


def _several(run: Run) -> dict[str, list[Mapping[str, Any]]]:
    found = {setting: rows for setting, rows in _learned(run).items() if rows and rows[0]["heads"] > 1}
    if not found:
        raise NotRunError("no model with several heads in a layer has learned its task")
    return found


@claim(
    "ours-groups-purity",
    "ours",
    ASKED,
    "not asked",
    "How pure a head is: the smaller of one score and 1 minus the other, in the better sense; mean over the heads of a model. "
    "Lower with the most heads in a layer than with one, for every task, family and seed: reproduced; for some: partly. "
    "Only models that have learned their task; at least two seeds.",
)
def lower(runs: Runs) -> Found:
    """Heads that share a layer with others are less pure than heads that are alone in theirs."""
    run = runs.one("head-groups")
    learned = _learned(run)
    cases, told = [], []
    for setting, rows in learned.items():
        ours, _, heads = setting.rpartition(" ")
        alone = {row["seed"]: float(degrees(row).mean()) for row in learned.get(f"{ours} 1", [])}
        most = max(int(other.rpartition(" ")[2]) for other in learned if other.rpartition(" ")[0] == ours)
        if int(heads) != most or most == 1:
            continue
        pairs = [(alone[row["seed"]], float(degrees(row).mean())) for row in rows if row["seed"] in alone]
        cases += [several < one for one, several in pairs]
        if pairs:
            told.append(f"{ours} {span(one for one, _ in pairs)} with one, {span(several for _, several in pairs)} with {most}")
    if not cases:
        raise NotRunError("no task was learned both with one and with several heads in a layer")
    return Found("; ".join(told), every(cases), run, "purity")


@claim(
    "ours-groups-mix",
    "ours",
    ASKED,
    "not asked",
    "Layers that have both a pure positional and a pure symbolic head (tolerance 0.1): at least one in every number model with "
    "several heads in a layer: reproduced; in some: partly. Only models that have learned the task; at least two seeds.",
)
def mix(runs: Runs) -> Found:
    """With several heads in a layer, pure positional and pure symbolic heads stand side by side in one layer."""
    run = runs.one("head-groups")
    cases, told = [], []
    for setting, rows in _several(run).items():
        if rows[0]["task"] != "number":
            continue
        counts = [sum(layer.mixed for layer in layers_of(row)) for row in rows]
        cases += [count > 0 for count in counts]
        told.append(f"{setting}: {span(counts, 'd')} of {run.config['layers']} layers")
    if not cases:
        raise NotRunError("no number model with several heads in a layer has learned its task")
    return Found("; ".join(told), every(cases), run, "purity")


@claim(
    "ours-groups-shared",
    "ours",
    ASKED,
    "not asked",
    "Rank correlation, over all layers that do work, of their heads' mean purity with the share of the damage of removing all "
    f"heads of the layer that removing no single one does. At most {CLEAR} for every task and family: reproduced; for some: "
    f"partly. At least {FEW_LAYERS} layers each, in at least {FEW_KINDS} kinds of models; only models that have learned their "
    "task; at least two seeds.",
)
def shared(runs: Runs) -> Found:
    """Heads are less pure in layers whose heads share their work."""
    run = runs.one("head-groups")
    cases, told = [], []
    for setting, rows in _several(run).items():
        layers = [layer for row in rows for layer in layers_of(row) if layer.shared is not None]
        pure, shares = [layer.purity for layer in layers], [layer.shared for layer in layers if layer.shared is not None]
        if len(layers) < FEW_LAYERS or len({*pure}) == 1 or len({*shares}) == 1:  # of equal values there is no rank correlation
            continue
        found = float(spearmanr(pure, shares).statistic)
        cases.append(found <= CLEAR)
        told.append(f"{setting}: {found:.2f} over {len(layers)} layers")
    if len(cases) < FEW_KINDS:
        raise NotRunError(f"fewer than {FEW_KINDS} kinds of models have {FEW_LAYERS} layers that do work")
    return Found("; ".join(told), every(cases), run, "purity")
