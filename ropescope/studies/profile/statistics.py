"""Statistics of a profile: means, correlations and trends over heads, layers and planes, as plain numbers.

Heads of one layer resemble each other, so 270 heads are fewer than 270 independent observations. Every relation over heads is
therefore given twice: with the usual p-value, as in paper A, and with layers as what was drawn, shuffled and redrawn whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu, pearsonr, rankdata, spearmanr

from ...measures.intervals import mean_interval, mean_of_known
from ...measures.purity import POSITIONAL, SYMBOLIC, Kinds, head_kinds, purity

Table = NDArray[np.float64]

SCORES = ("positional", "symbolic")
CLASSICAL = ("previous_token", "induction", "sink")
SHUFFLES = 9_999
"""Enough that the smallest p-value they can give, 1 / (shuffles + 1), is the 1e-4 that paper A speaks of."""


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
        "correlation": _score_correlation(values, seed),
        "depth": {
            "positional": _depth(values["positional"], dataset["layer"].values, -1, seed),
            "symbolic": _depth(values["symbolic"], dataset["layer"].values, 1, seed),
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
    found: dict[str, Any] = _plain(result)
    return found


def head_means(values: Mapping[str, Table]) -> dict[str, Any]:
    """Mean of each score, and of symbolic minus positional, over inputs, with the interval had other inputs been drawn."""
    named = {**values, "difference": values["symbolic"] - values["positional"]}
    return {name: _interval(x) for name, x in named.items()}


def related(x: Table, y: Table, seed: int = 0) -> dict[str, Any] | None:
    """Pearson and Spearman correlation of two tables (layer, head) over heads; None when nothing varies.

    p_value   of the correlation, heads taken as independent
    p_layers  how often whole layers of `y`, dealt anew to those of `x`, correlate as much: two-sided
    low, high of Pearson's r, had other layers been drawn (95 %)
    """
    both = np.isfinite(x) & np.isfinite(y)
    x, y = np.where(both, x, np.nan), np.where(both, y, np.nan)
    if both.sum() < 3 or np.ptp(x[both]) == 0 or np.ptp(y[both]) == 0:
        return None
    draws = np.random.default_rng(seed)
    orders = draws.permuted(np.tile(np.arange(len(x)), (SHUFFLES, 1)), axis=1)
    ranked = np.full((2, *x.shape), np.nan)
    ranked[:, both] = rankdata([x[both], y[both]], axis=1)
    found: dict[str, Any] = {"heads": int(both.sum())}
    usual = {"pearson": pearsonr(x[both], y[both]), "spearman": spearmanr(x[both], y[both])}
    shuffled = {"pearson": _shuffled_correlation(x, y, orders), "spearman": _shuffled_correlation(ranked[0], ranked[1], orders)}
    for name, test in usual.items():
        r, p_value = float(test.statistic), float(test.pvalue)
        found[name] = {"r": r, "p_value": p_value, "p_layers": _share_as_large(shuffled[name], r)}
    drawn = draws.multinomial(len(x), np.full(len(x), 1 / len(x)), size=2000)
    sums = [drawn @ part.sum(1) for part in _products(x, y)]
    found["pearson"]["low"], found["pearson"]["high"] = _quantiles(_correlation(*sums))
    return found


def _score_correlation(values: Mapping[str, Table], seed: int) -> dict[str, Any] | None:
    """Positional against symbolic over heads; also with other prompts drawn, and within layers.

    Drawing prompts anew adds noise to the means of heads, which pulls r towards 0: r itself may lie near an end of it.
    Within layers, each layer's mean is taken off both scores first, so that no trend over depth is left to correlate.
    """
    x, y = values["positional"], values["symbolic"]
    seen = np.isfinite(x) & np.isfinite(y)
    means = paired_means(x, y)
    found = related(*means, seed)
    if found is None:
        return None
    count = len(x)
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=2000).astype(float)
    times = np.tensordot(drawn, seen.astype(float), 1)
    redrawn = [np.tensordot(drawn, np.where(seen, part, 0), 1) for part in (x, y)]
    with np.errstate(invalid="ignore", divide="ignore"):
        sums = [part.sum((1, 2)) for part in _products(redrawn[0] / times, redrawn[1] / times)]
    low, high = _quantiles(_correlation(*sums)) if count > 1 else (np.nan, np.nan)
    return {**found, "prompts": {"low": low, "high": high}, "within_layers": _within_layers(*means, seed)}


def _within_layers(x: Table, y: Table, seed: int) -> dict[str, Any] | None:
    """Correlation of what is left without layer means; p-value by shuffling heads inside their layer."""
    both = np.isfinite(x) & np.isfinite(y)
    draws = np.random.default_rng(seed)
    product, shuffled = 0.0, np.zeros(SHUFFLES)
    sizes = np.zeros(2)
    for xs, ys, seen in zip(x, y, both, strict=True):
        if seen.sum() < 2:
            continue
        a, b = xs[seen] - xs[seen].mean(), ys[seen] - ys[seen].mean()
        product += a @ b
        sizes += a @ a, b @ b
        shuffled += draws.permuted(np.tile(b, (SHUFFLES, 1)), axis=1) @ a
    if not sizes.all():
        return None
    scale = np.sqrt(sizes.prod())
    return {"r": product / scale, "p_shuffled": _share_as_large(shuffled / scale, product / scale)}


def _depth(values: Table, layers: NDArray[np.int64], sign: int, seed: int) -> dict[str, Any] | None:
    """A score in the first half of the layers against the second; `sign` is the trend paper A finds, 1 rising.

    The middle one of an odd number of layers belongs to neither half. One-sided p-values by Mann and Whitney, over heads, and
    over the medians of layers. In how many prompts the trend holds says nothing of other heads, so it has no p-value.
    """
    means, half = mean_of_known(values), values.shape[1] // 2
    first, second = (x[np.isfinite(x)] for x in (means[:half], means[-half:] if half else means[:0]))
    if not len(first) or not len(second):
        return None
    by_layer = np.array([_median(layer) for layer in means])
    halves = [x[np.isfinite(x)] for x in (by_layer[:half], by_layer[-half:])]
    trend = np.array([sign * (_median(x[-half:]) - _median(x[:half])) for x in values])
    return {
        "first": _median(first),
        "second": _median(second),
        "p_value": _larger(second, first) if sign > 0 else _larger(first, second),
        "p_layers": _larger(halves[1], halves[0]) if sign > 0 else _larger(halves[0], halves[1]),
        "with_layer": related(np.broadcast_to(layers[:, None], means.shape).astype(float), means, seed),
        "by_layer": by_layer,
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


def _compare(x: Table, y: Table) -> dict[str, Any] | None:
    both = np.isfinite(x) & np.isfinite(y)
    a, b = x[both], y[both]
    if not len(a):
        return None
    varies = len(a) > 2 and np.ptp(a) > 0 and np.ptp(b) > 0
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

    Intervals are over layers. The p-value of the trend of means takes planes as independent, which neighbours are not; that of
    heads comes from turning the sign of whole layers at random.
    """
    tables = {name: plane_means(dataset, name) for name in SCORES}
    tables["difference"] = tables["symbolic"] - tables["positional"]
    by_layer = {name: mean_of_known(np.moveaxis(table, 1, 0)) for name, table in tables.items()}
    numbers = np.asarray(dataset["plane"].values, dtype=float)
    slopes = np.array([[_spearman(numbers, head)[0] for head in layer] for layer in tables["difference"]])
    seen = slopes[np.isfinite(slopes)]
    over_planes = _spearman(numbers, mean_of_known(by_layer["difference"]))
    largest = {name: _largest_planes(plane_means(dataset, name), tables, lead, kind, seed) for name in ("norm", "spread")}
    return {
        "plane": [int(n) for n in numbers],
        "frequency": _turning(dataset),
        **{name: _interval(table) for name, table in by_layer.items()},
        "bands": {
            band: {
                "planes": [int(n) for n in numbers[which][[0, -1]]],
                **{name: _interval(mean_of_known(np.moveaxis(table[:, which], 1, 0))) for name, table in by_layer.items()},
            }
            for band, which in plane_bands(len(numbers)).items()
            if len(numbers[which])
        },
        "trend_of_means": {"r": over_planes[0], "p_value": over_planes[1]},
        "trend_of_heads": {
            "heads": len(seen),
            "median": _median(seen),
            "share_rising": (seen > 0).mean() if len(seen) else np.nan,
            "p_layers": _turned_p_value(mean_of_known(slopes.T), seed),
        },
        "largest": largest,
        "use_and_selectivity": _use_and_selectivity(plane_means(dataset, "spread"), tables),
    }


def _use_and_selectivity(spread: Table, tables: Mapping[str, Table]) -> dict[str, float]:
    """Over the planes of a head: how the variance of a plane's logits goes with how far its lower score is from 1.

    A plane whose logits hardly vary attends to all keys alike, and is high on both scores whatever its frequency.
    """
    lower = np.minimum(tables["positional"], tables["symbolic"]).reshape(-1, spread.shape[-1])
    found = np.array([_spearman(x, 1 - y)[0] for x, y in zip(spread.reshape(lower.shape), lower, strict=True)])
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
        "p_value": _larger(groups["symbolic"], groups["positional"]),
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


def _interval(values: Table) -> dict[str, Any]:
    """Mean over the first axis with its interval, column by column over what is there; NaN without two values."""
    flat = values.reshape(len(values), -1)
    low, high = np.full((2, flat.shape[1]), np.nan)
    patterns, which = np.unique(np.isfinite(flat), axis=1, return_inverse=True)
    for n, seen in enumerate(patterns.T):
        if seen.sum() > 1:
            columns = which.ravel() == n
            _, low[columns], high[columns] = mean_interval(flat[seen][:, columns])
    shape = values.shape[1:]
    return {"mean": mean_of_known(values), "low": low.reshape(shape), "high": high.reshape(shape)}


def _median(values: Table) -> float:
    seen = values[np.isfinite(values)]
    return float(np.median(seen)) if len(seen) else np.nan


def _quartiles(values: Table) -> list[float]:
    seen = values[np.isfinite(values)]
    return np.quantile(seen, [0.25, 0.5, 0.75]).tolist() if len(seen) else [np.nan] * 3


def _quantiles(values: Table) -> tuple[float, float]:
    """Ends of the interval that holds the middle 95 %."""
    seen = values[np.isfinite(values)]
    low, high = np.quantile(seen, [0.025, 0.975]) if len(seen) else (np.nan, np.nan)
    return float(low), float(high)


def _largest(values: Table) -> float:
    seen = values[np.isfinite(values)]
    return float(seen.max()) if len(seen) else np.nan


def _spearman(x: Table, y: Table) -> tuple[float, float]:
    """Rank correlation and p-value over what both have; NaN when nothing varies."""
    both = np.isfinite(x) & np.isfinite(y)
    if both.sum() < 3 or np.ptp(x[both]) == 0 or np.ptp(y[both]) == 0:
        return np.nan, np.nan
    found = spearmanr(x[both], y[both])
    return float(found.statistic), float(found.pvalue)


def _turned_p_value(values: Table, seed: int) -> float:
    """Two-sided p-value of a mean of 0 by turning signs at random."""
    seen = values[np.isfinite(values)]
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(SHUFFLES, len(seen)))
    return _share_as_large(signs @ seen, seen.sum())


def _larger(first: Table, second: Table) -> float:
    """One-sided p-value, by Mann and Whitney, of the first being larger; NaN when either is empty."""
    return float(mannwhitneyu(first, second, alternative="greater").pvalue) if len(first) and len(second) else np.nan


def _share_as_large(shuffled: Table, found: float) -> float:
    """Two-sided p-value: how often a shuffle gives as much. What was found counts as one, so it is never 0."""
    as_large = int((np.abs(shuffled) >= abs(found) - 1e-9).sum())
    return (1 + as_large) / (1 + len(shuffled))


def _products(x: Table, y: Table) -> tuple[Table, ...]:
    """What a correlation is summed up from, 0 where either is missing: 1, x, y, xx, yy, xy."""
    seen = np.isfinite(x) & np.isfinite(y)
    a, b = np.where(seen, x, 0), np.where(seen, y, 0)
    return seen.astype(float), a, b, a * a, b * b, a * b


def _correlation(n: Table, x: Table, y: Table, xx: Table, yy: Table, xy: Table) -> Table:
    """Pearson's r from sums; NaN when nothing varies."""
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = (xx - x * x / n) * (yy - y * y / n)
        found: Table = np.where(spread > 0, (xy - x * y / n) / np.sqrt(spread), np.nan)
    return found


def _shuffled_correlation(x: Table, y: Table, orders: NDArray[np.int64]) -> Table:
    """Correlation with each order of the layers of `y`. Sums over heads of each pair of layers are made once and looked up."""
    seen_x, seen_y = np.isfinite(x).astype(float), np.isfinite(y).astype(float)
    a, b = (np.nan_to_num(table - table[np.isfinite(table)].mean()) for table in (x, y))
    pairs = ((seen_x, seen_y), (a, seen_y), (seen_x, b), (a * a, seen_y), (seen_x, b * b), (a, b))
    rows = np.arange(len(x))
    return _correlation(*((left @ right.T)[rows, orders].sum(1) for left, right in pairs))


def _plain(value: Any) -> Any:
    """As JSON can hold it: lists and dicts of Python's own numbers, None for what is not known."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    return None if isinstance(value, float) and not np.isfinite(value) else value
