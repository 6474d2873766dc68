"""Statistics of a profile: means, correlations and trends over heads, layers and planes, as plain numbers.

Only prompts are drawn, so only means over prompts have intervals. A model's heads and layers are all there are: what is said of
them describes this model. A relation between heads has a p-value within layers, as layers drift with depth, and the correlation
of both scores is set beside that of noise (`measures.intervals`, `measures.redrawn`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import pearsonr, rankdata, spearmanr

from ...measures.intervals import LEAST_INPUTS, beyond_noise, mean_interval, mean_of_known, within_layers
from ...measures.purity import POSITIONAL, SYMBOLIC, Kinds, head_kinds, purity

Table = NDArray[np.float64]

SCORES = ("positional", "symbolic")
CLASSICAL = ("previous_token", "induction", "sink")


def statistics(dataset: xr.Dataset, seed: int = 0) -> dict[str, Any]:
    """Statistics of the heads of a profile (`ropescope.profile`), as JSON can hold them; None where numbers are missing.

    Scores of a head are means over the inputs on which it has them. Tables of heads are lists of layers, each a list of heads.
    """
    values = {name: by_input(dataset, name) for name in SCORES}
    means = {name: mean_of_known(x) for name, x in values.items()}
    difference = means["symbolic"] - means["positional"]
    kind = head_kinds(means["positional"], means["symbolic"])
    pure = purity(means["positional"], means["symbolic"])
    right = np.asarray(dataset["right"].values, dtype=bool)
    counts = Counter(kind.ravel().tolist())
    shares = mean_of_known(by_input(dataset, "symbol_share") - by_input(dataset, "position_share"))
    result = {
        **{name: dataset.attrs.get(name) for name in ("model", "precision", "prompts", "seed")},
        "inputs": len(right),
        "right": int(right.sum()),
        "right_among_choices": int(dataset["right_among_choices"].values.sum()),
        "tokens": [int(dataset["tokens"].min()), int(dataset["tokens"].max())],
        "blocks": [int(dataset["blocks"].min()), int(dataset["blocks"].max())],
        "layer": [int(n) for n in dataset["layer"].values],
        "head": [int(n) for n in dataset["head"].values],
        "heads": head_means(values),
        "heads_when_right": head_means({name: x[right] for name, x in values.items()}) if right.sum() > 1 else None,
        "kind": kind.tolist(),
        "kinds": {name: counts[name] for name in ("positional", "symbolic", "mixed", "unscored")},
        "pure": {"positional": int((pure == POSITIONAL).sum()), "symbolic": int((pure == SYMBOLIC).sum())},
        "over_inputs": _over_inputs(values),
        "correlation": related(*paired_means(values["positional"], values["symbolic"]), seed),
        "noise": _noise(dataset),
        "depth": {
            "positional": _depth(values["positional"], dataset["layer"].values, -1),
            "symbolic": _depth(values["symbolic"], dataset["layer"].values, 1),
        },
        "sensitivity": _sensitivity(dataset, values),
        "right_only": _right_only(values, right),
        "frequency": _frequency(dataset, difference, kind, seed),
        "classical": {
            name: {score: related(mean_of_known(by_input(dataset, name)), means[score], seed) for score in SCORES}
            for name in CLASSICAL
        },
        "shares": related(shares, difference, seed),
        "on_blocks": _quartiles(mean_of_known(by_input(dataset, "on_blocks"))),
        "exclusion": _exclusion(dataset),
        "worst_check_error": _largest(dataset["check_error"].values),
    }
    found: dict[str, Any] = plain(result)
    return found


def head_means(values: Mapping[str, Table]) -> dict[str, Any]:
    """Mean of each score, and of symbolic minus positional, over inputs, with the interval had other inputs been drawn."""
    difference = values["symbolic"] - values["positional"]
    return {**{name: _interval(x, 0) for name, x in values.items()}, "difference": _interval(difference, -1)}


def related(x: Table, y: Table, seed: int = 0) -> dict[str, Any] | None:
    """Pearson and Spearman correlation of two tables (layer, head) over heads; None when nothing varies.

    within_layers  rank correlation with each layer's mean taken off, and its p-value (see `measures.intervals`)
    """
    both = np.isfinite(x) & np.isfinite(y)
    if both.sum() < 3 or not (_varies(x[both]) and _varies(y[both])):
        return None
    return {
        "heads": int(both.sum()),
        "pearson": {"r": pearsonr(x[both], y[both]).statistic},
        "spearman": {"r": spearmanr(x[both], y[both]).statistic},
        "within_layers": within_layers(*_ranked(x, y), seed)._asdict(),
    }


def _ranked(x: Table, y: Table) -> tuple[Table, Table]:
    """Ranks over the heads that have both; NaN for the others."""
    both = np.isfinite(x) & np.isfinite(y)
    ranks = np.full((2, *x.shape), np.nan)
    ranks[:, both] = rankdata([x[both], y[both]], axis=1)
    return ranks[0], ranks[1]


def _noise(dataset: xr.Dataset) -> dict[str, Any] | None:
    """Pearson's r of both scores over heads with logits drawn anew: of every draw, and how often it is at least as low as ours.

    None if that was not measured. Heads count where they have scores in every draw.
    """
    if not {f"{name}_redrawn" for name in SCORES} <= set(dataset.data_vars):
        return None
    drawn = [mean_of_known(dataset[f"{name}_redrawn"].transpose("input", "draw", ...).values.astype(float)) for name in SCORES]
    scores = paired_means(*(by_input(dataset, name) for name in SCORES))
    known = np.isfinite(np.stack([*drawn[0], *drawn[1], *scores])).all(0)
    tables = [np.stack([*noise, ours])[:, known] for noise, ours in zip(drawn, scores, strict=True)]
    if known.sum() < 3 or not all(_varies(row) for table in tables for row in table):
        return None
    r = pearsonr(*tables, axis=1).statistic
    return {"heads": int(known.sum()), "r": r[:-1], "mean": r[:-1].mean(), "p_value": beyond_noise(r[-1], r[:-1])}


def _depth(values: Table, layers: NDArray[np.int64], sign: int) -> dict[str, Any] | None:
    """A score in the first half of the layers against the second; `sign` is the trend paper A finds, 1 rising.

    The middle one of an odd number of layers belongs to neither half. A model has one course over depth, and neighbouring
    layers resemble each other: the trend has no p-value. In how many prompts it holds says how far it depends on them.
    """
    means, half = mean_of_known(values), values.shape[1] // 2
    first, second = (x[np.isfinite(x)] for x in (means[:half], means[-half:] if half else means[:0]))
    if not len(first) or not len(second):
        return None
    trend = np.array([sign * (_median(x[-half:]) - _median(x[:half])) for x in values])
    return {
        "first": _median(first),
        "second": _median(second),
        "with_layer": _spearman(np.broadcast_to(layers[:, None], means.shape).astype(float), means),
        "by_layer": np.array([_median(layer) for layer in means]),
        "prompts_with_trend": int((trend > 0).sum()),
        "prompts": int(np.isfinite(trend).sum()),
    }


def _over_inputs(values: Mapping[str, Table]) -> dict[str, Any]:
    """How much the scores of one head differ between inputs, and how many heads are of either kind on some input each."""
    kinds = head_kinds(values["positional"], values["symbolic"])
    spread = {name: np.sqrt(mean_of_known((x - mean_of_known(x)) ** 2)) for name, x in values.items()}
    return {
        **{f"{name}_deviation": _median(x) for name, x in spread.items()},
        "heads_of_both_kinds": int(((kinds == "positional").any(0) & (kinds == "symbolic").any(0)).sum()),
    }


def agreement(first: Table, second: Table) -> dict[str, Any] | None:
    """How well two ways to score agree over heads, each head's mean taken over the inputs that have both; None without any."""
    return _compare(*paired_means(first, second))


def paired_means(first: Table, second: Table) -> tuple[Table, Table]:
    """Mean of either over the inputs that have both."""
    both = np.isfinite(first) & np.isfinite(second)
    return mean_of_known(np.where(both, first, np.nan)), mean_of_known(np.where(both, second, np.nan))


def _varies(values: Table) -> bool:
    """Whether values differ by more than rounding: correlations of others say nothing."""
    return bool(np.ptp(values) > 1e-12 * max(1.0, np.abs(values).max()))


def _compare(x: Table, y: Table) -> dict[str, Any] | None:
    both = np.isfinite(x) & np.isfinite(y)
    a, b = x[both], y[both]
    if not len(a):
        return None
    varies = len(a) > 2 and _varies(a) and _varies(b)
    return {
        "heads": len(a),
        "pearson": pearsonr(a, b).statistic if varies else np.nan,
        "spearman": spearmanr(a, b).statistic if varies else np.nan,
        "mean_difference": (b - a).mean(),
        "mean_absolute_difference": np.abs(b - a).mean(),
        "largest_absolute_difference": np.abs(b - a).max(),
    }


def _sensitivity(dataset: xr.Dataset, values: Mapping[str, Table]) -> dict[str, Any]:
    """What the scores would have been with another temperature, single tokens for blocks, permutations for swaps."""
    found: dict[str, Any] = {"tau": []}
    for n, tau in enumerate(dataset["tau"].values):
        tables = {name: by_input(dataset.isel(tau=n), f"{name}_by_tau") for name in SCORES}
        found["tau"].append({"tau": float(tau), **{name: agreement(values[name], tables[name]) for name in SCORES}})
    for way, suffix in (("tokens", "by_token"), ("permutations", "permuted")):
        found[way] = {name: agreement(values[name], by_input(dataset, f"{name}_{suffix}")) for name in SCORES}
    return found


def _right_only(values: Mapping[str, Table], right: NDArray[np.bool_]) -> dict[str, Any]:
    """All prompts against those the model answers right, and wrong ones against right ones, which share no prompt."""
    groups = {"all_and_right": np.full(len(right), True), "wrong_and_right": ~right}
    return {
        name: {score: _compare(mean_of_known(x[chosen]), mean_of_known(x[right])) for score, x in values.items()}
        if right.sum() > 1 and chosen.sum() > 1
        else None
        for name, chosen in groups.items()
    }


def plane_means(dataset: xr.Dataset, name: str) -> Table:
    """`plane_<name>` (layer, head, plane), mean over inputs; NaN where a layer does not turn: its one plane is no fastest."""
    turns = dataset["frequency"].transpose("layer", "plane").values[:, 0] > 0
    return np.where(turns[:, None, None], mean_of_known(by_input(dataset, f"plane_{name}")), np.nan)


def plane_bands(planes: int) -> dict[str, slice]:
    """Where paper A's kinds of planes lie, none of which it gives numbers for: fastest eighth, slowest third, the rest."""
    fastest, slow = max(1, planes // 8), planes - max(1, planes // 3)
    return {"fastest": slice(0, fastest), "middle to fast": slice(fastest, slow), "slow": slice(slow, planes)}


def _frequency(dataset: xr.Dataset, lead: Table, kind: Kinds, seed: int) -> dict[str, Any]:
    """How plane scores change from fast to slow planes, and where the largest logits of each kind of head lie.

    Means are over heads; lower and upper are quartiles over layers. Trends have no p-value: neighbouring planes resemble each
    other.
    """
    tables = {name: plane_means(dataset, name) for name in SCORES}
    tables["difference"] = tables["symbolic"] - tables["positional"]
    by_layer = {name: mean_of_known(np.moveaxis(table, 1, 0)) for name, table in tables.items()}
    numbers = np.asarray(dataset["plane"].values, dtype=float)
    slopes = np.array([[_spearman(numbers, head) for head in layer] for layer in tables["difference"]])
    seen = slopes[np.isfinite(slopes)]
    largest = {name: _largest_planes(plane_means(dataset, name), tables, lead, kind, seed) for name in ("norm", "spread")}
    return {
        "plane": [int(n) for n in numbers],
        "frequency": _turning(dataset),
        **{name: _over_layers(table) for name, table in by_layer.items()},
        "bands": {
            band: {
                "planes": [int(n) for n in numbers[which][[0, -1]]],
                **{name: _over_layers(mean_of_known(np.moveaxis(table[:, which], 1, 0))) for name, table in by_layer.items()},
            }
            for band, which in plane_bands(len(numbers)).items()
            if len(numbers[which])
        },
        "trend_of_means": {"r": _spearman(numbers, mean_of_known(by_layer["difference"]))},
        "trend_of_heads": {
            "heads": len(seen),
            "median": _median(seen),
            "share_rising": (seen > 0).mean() if len(seen) else np.nan,
        },
        "largest": largest,
        "use_and_selectivity": _use_and_selectivity(plane_means(dataset, "spread"), tables),
    }


def _use_and_selectivity(spread: Table, tables: Mapping[str, Table]) -> dict[str, float]:
    """Over the planes of a head: how the variance of a plane's logits goes with how far its lower score is from 1.

    A plane whose logits hardly vary attends to all keys alike, and is high on both scores whatever its frequency.
    """
    lower = np.minimum(tables["positional"], tables["symbolic"]).reshape(-1, spread.shape[-1])
    found = np.array([_spearman(x, 1 - y) for x, y in zip(spread.reshape(lower.shape), lower, strict=True)])
    return {"median": _median(found[np.isfinite(found)])}


def _turning(dataset: xr.Dataset) -> list[float]:
    """Frequency of each plane: the median over the layers that turn."""
    table = dataset["frequency"].transpose("layer", "plane").values
    return [_median(column) for column in table[table[:, 0] > 0].T]


def _largest_planes(use: Table, tables: Mapping[str, Table], lead: Table, kind: Kinds, seed: int) -> dict[str, Any]:
    """In which plane each head's logits are largest, and whether that plane, alone, does what the head does."""
    known = np.isfinite(use).any(-1)
    top = np.where(known, np.where(np.isfinite(use), use, -np.inf).argmax(-1), 0)
    number = np.where(known, top + 1.0, np.nan)
    there = np.where(known, np.take_along_axis(tables["difference"], top[..., None], -1)[..., 0], np.nan)
    groups = {name: number[(kind == name) & known] for name in ("positional", "symbolic", "mixed")}
    return {
        "plane": number,
        "median": {name: _median(planes) for name, planes in groups.items()},
        "with_lead": related(lead, number, seed),
        "score_there": related(lead, there, seed),
    }


def _exclusion(dataset: xr.Dataset) -> dict[str, Any]:
    """On how many heads and inputs the exclusion principle is broken: none, unless something is computed wrongly."""
    variance, bound = by_input(dataset, "exclusion_variance"), by_input(dataset, "exclusion_bound")
    seen = np.isfinite(variance) & np.isfinite(bound)
    broken = variance[seen] > bound[seen] * (1 + 1e-9) + 1e-12
    return {"cases": int(seen.sum()), "violations": int(broken.sum()), "share": broken.mean() if len(broken) else np.nan}


def by_input(dataset: xr.Dataset, name: str) -> Table:
    """A variable with its axes in the order input, layer, head and, if it has them, planes."""
    found: Table = dataset[name].transpose("input", "layer", "head", ...).values.astype(float)
    return found


def _interval(values: Table, least: float) -> dict[str, Any]:
    """Mean over inputs with its interval, column by column over what is there; NaN ends where inputs are too few for one.

    Ends stay between `least` and 1, between which every mean lies.
    """
    flat = values.reshape(len(values), -1)
    low, high = np.full((2, flat.shape[1]), np.nan)
    patterns, which = np.unique(np.isfinite(flat), axis=1, return_inverse=True)
    for n, seen in enumerate(patterns.T):
        if seen.sum() >= LEAST_INPUTS:
            columns = which.ravel() == n
            _, low[columns], high[columns] = mean_interval(flat[seen][:, columns])
    shape = values.shape[1:]
    ends = {"low": np.clip(low, least, 1).reshape(shape), "high": np.clip(high, least, 1).reshape(shape)}
    return {"mean": mean_of_known(values), **ends}


def _over_layers(values: Table) -> dict[str, Any]:
    """Mean and quartiles along the first axis, over what is there."""
    flat = values.reshape(len(values), -1).T
    quartiles = np.array([_quartiles(column) for column in flat]).reshape(*values.shape[1:], 3)
    return {"mean": mean_of_known(values), "lower": quartiles[..., 0], "upper": quartiles[..., 2]}


def _median(values: Table) -> float:
    seen = values[np.isfinite(values)]
    return float(np.median(seen)) if len(seen) else np.nan


def _quartiles(values: Table) -> list[float]:
    seen = values[np.isfinite(values)]
    return np.quantile(seen, [0.25, 0.5, 0.75]).tolist() if len(seen) else [np.nan] * 3


def _largest(values: Table) -> float:
    seen = values[np.isfinite(values)]
    return float(seen.max()) if len(seen) else np.nan


def _spearman(x: Table, y: Table) -> float:
    """Rank correlation over what both have; NaN when nothing varies."""
    both = np.isfinite(x) & np.isfinite(y)
    if both.sum() < 3 or not (_varies(x[both]) and _varies(y[both])):
        return np.nan
    return float(spearmanr(x[both], y[both]).statistic)


def plain(value: Any) -> Any:
    """As JSON can hold it: lists and dicts of Python's own numbers, None for what is not known."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return None if isinstance(value, float) and not np.isfinite(value) else value
