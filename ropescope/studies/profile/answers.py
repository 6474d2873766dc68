"""Answers from a dataset of scores: which heads are most positional and most symbolic, where they look, and charts of all."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...charts import Chart
from ...measures.intervals import LEAST_INPUTS, mean_interval
from ..head_scores import over_queries, packed
from ..result import Tables
from ..study import Outcome, Table
from .rows import LEAST_JUDGED

if TYPE_CHECKING:
    import xarray as xr


def top_heads(scores: xr.Dataset, count: int = 10) -> Tables:
    """Tables of the most positional and the most symbolic heads: their scores, where each looks, and what a swap does.

    scores  from `profile`, or the dataset of a run
    count   how many heads of each kind

    Only heads that can be judged at half of all queries or more are named, by the difference of their scores where they can be
    judged (`identifiable`). Intervals (95 %) are over texts, from eight texts on. "Looks at" is the most frequent
    distance or the most frequent token of the heaviest key, whichever is more frequent. `print` and notebooks show the tables.

    Raises ValueError if count is less than 1.

    >>> import ropescope as rs
    >>> scores = rs.profile(rs.bundled("number"), rs.NumberTask().sample(8, seed=0).tokens, planes=False)
    >>> print(rs.top_heads(scores, 2))
    most positional
    head ...
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    found = head_table(scores)
    kinds = leading(found, count)
    columns = ["head", "positional", "symbolic", "judged", "weight", "looks at", "a swap"]
    tables: list[Table | str] = []
    for kind, rows in kinds.items():
        title = f"most {kind}"
        tables.append(Table(columns, [_cells(scores, row) for row in rows], title) if rows else f"{title}: no head")
    unnamed = sum(row["judged"] < LEAST_JUDGED for row in found)
    tables.append(
        f"{unnamed} of {len(found)} heads cannot be judged here: at more than half of the queries they have too little weight "
        f"on what moves, or weights that are nearly equal"
        if unnamed
        else f"all {len(found)} heads can be judged here"
    )
    return Tables(tables)


def leading(rows: list[dict[str, Any]], count: int) -> dict[str, list[dict[str, Any]]]:
    """The most positional and the most symbolic of the heads that can be judged: rows of `head_table`, the first leads most."""
    order = sorted((row for row in rows if row["judged"] >= LEAST_JUDGED), key=lambda row: float(row["lead"]))
    return {
        "positional": [row for row in reversed(order) if row["lead"] > 0][:count],
        "symbolic": [row for row in order if row["lead"] < 0][:count],
    }


def head_table(scores: xr.Dataset) -> list[dict[str, Any]]:
    """One row per head that has scores: its means over the queries at which it can be judged, and the share of these.

    lead   positional minus symbolic
    judged share of all queries of all texts at which it is identifiable
    """
    names = ("positional", "symbolic", "positional_centred", "symbolic_centred", "on_blocks")
    tables = {name: _by_head(scores, name) for name in names}
    known = np.isfinite(tables["positional"])
    judged = _by_head(scores, "identifiable") == 1 if "identifiable" in scores else known
    rows = []
    for n, layer in enumerate(scores["layer"].values):
        for m, head in enumerate(scores["head"].values):
            if not known[n, m].any():
                continue
            here = judged[n, m] if judged[n, m].any() else known[n, m]
            means = {name: _mean(values[n, m][here]) for name, values in tables.items()}
            rows.append(
                {"name": f"L{layer} H{head}", "layer": int(layer), "head": int(head), **means}
                | {"lead": means["positional"] - means["symbolic"]}
                | {"judged": float(judged[n, m].sum() / known[n, m].sum())}
            )
    return rows


def _by_head(scores: xr.Dataset, name: str) -> NDArray[np.float64]:
    """A variable as (layer, head, every query of every input); NaN if it was not measured."""
    if name not in scores:
        return np.full((scores.sizes["layer"], scores.sizes["head"], scores.sizes["input"]), np.nan)
    values: NDArray[np.float64] = scores[name].transpose("layer", "head", "input", ...).values.astype(float)
    return values.reshape(*values.shape[:2], -1)


def _mean(values: NDArray[np.float64]) -> float:
    seen = values[np.isfinite(values)]
    return float(seen.mean()) if len(seen) else float("nan")


def swap_text(row: dict[str, Any]) -> str:
    """What a swap does to the weights of a head, in words; row of `head_table`. Empty if that was not measured."""
    if np.isnan(row["positional_centred"]):
        return ""
    kind = max((row["positional_centred"], "stays in place"), (row["symbolic_centred"], "follows"))
    both = "part stays, part follows"
    return f"weight {kind[1]} ({kind[0]:.2f})" if kind[0] >= 0.5 else both


def _cells(scores: xr.Dataset, row: dict[str, Any]) -> list[str]:
    one = scores.sel(layer=row["layer"], head=row["head"])
    return [
        row["name"],
        *(f"{row[name]:.2f}{_interval(one, name)}" for name in ("positional", "symbolic")),
        f"{row['judged']:.0%}",
        f"{row['on_blocks']:.2f}",
        looks_at(one),
        swap_text(row),
    ]


def _interval(one: xr.Dataset, name: str) -> str:
    """Interval of a head's mean over texts, each of which is the mean over its queries."""
    judged = one["identifiable"] == 1 if "identifiable" in one else one[name].notnull()
    chosen = one[name].where(judged)
    values = (chosen.mean("query") if "query" in chosen.dims else chosen).values
    values = values[np.isfinite(values)]
    if len(values) < LEAST_INPUTS:
        return ""
    _, low, high = mean_interval(values)
    return f" ({float(low):.2f} to {float(high):.2f})"


def looks_at(one: xr.Dataset) -> str:
    """Where the heaviest key of a head is, most frequently: how far before the query, or which token; empty if not known."""
    if "heaviest" not in one:
        return ""
    places = one["heaviest"].transpose("input", ...).values.reshape(one.sizes["input"], -1)
    at = one["position"].values if "position" in one.coords else one["tokens"].values[:, None] - 1
    judged = one["identifiable"].transpose("input", ...).values.reshape(places.shape) == 1
    judged = judged if judged.any() else np.isfinite(places)
    texts = json.loads(one.attrs["texts"]) if "texts" in one.attrs else None
    distances: Counter[int] = Counter()
    tokens: Counter[str] = Counter()
    for n, q in np.argwhere(judged):
        place = int(places[n, q])
        distances[int(at[n, q]) - place] += 1
        if texts is not None:
            tokens[texts[int(one["input"][n])][place]] += 1  # inputs may have been selected
    (distance, times), total = distances.most_common(1)[0], int(judged.sum())
    far = f"{distance} token{'' if distance == 1 else 's'} before ({times / total:.0%})"
    if not tokens or tokens.most_common(1)[0][1] <= times:
        return far
    token, times = tokens.most_common(1)[0]
    return f"{token!r} ({times / total:.0%})"


def plot(scores: xr.Dataset, name: str = "heads") -> Chart:
    """A chart of the scores of all heads, as an Altair chart. Notebooks show it; `.save("x.png")` writes it.

    scores  from `profile`, or the dataset of a run
    name    "heads": every head in the plane of both scores; "kinds": how many heads of each layer are of which kind;
            "heat-maps": layer by head; "depth": medians of layers

    Raises ValueError if there is no such chart.

    >>> import ropescope as rs
    >>> scores = rs.profile(rs.bundled("number"), rs.NumberTask().sample(4, seed=0).tokens, planes=False)
    >>> rs.plot(scores, "depth").to_dict()["title"]["text"]
    'Over depth: ...'
    """
    from .figures import OF_HEADS  # noqa: PLC0415

    if name not in OF_HEADS:
        raise ValueError(f"name must be one of {', '.join(OF_HEADS)}, not {name!r}")
    return OF_HEADS[name](results_of(scores), about_line(scores.attrs))


def about_line(attributes: Any) -> str:
    """Which model, precision and prompts a chart shows, as far as they are known."""
    known = [str(attributes[name]) for name in ("model", "precision") if attributes.get(name)]
    return "; ".join(part for part in (", ".join(known), str(attributes.get("prompts") or "")) if part)


def results_of(scores: xr.Dataset) -> dict[str, Any]:
    """Results for a summary: statistics with texts as what is drawn, and how many heads can be judged."""
    from .statistics import statistics  # noqa: PLC0415

    found = statistics(over_queries(scores))
    rows = head_table(scores)
    found["judged"] = {row["name"]: round(row["judged"], 4) for row in rows}
    found["not_judged"] = sum(row["judged"] < LEAST_JUDGED for row in rows)
    found["queries"] = int(scores.sizes.get("query", 0))
    found["asked"] = bool(scores.attrs.get("asked", 1))
    return found


def outcome_of(scores: xr.Dataset) -> Outcome:
    """What is written of a dataset whose model is not at hand."""
    known = scores.attrs
    model = {"source": known.get("model", "model"), "family": known.get("family", ""), "dtype": known.get("precision", "")}
    data = packed(scores)
    prompts = {"kind": "given", "count": scores.sizes["input"], "described": known.get("prompts", "")}
    prompts["scores_sha256"] = hashlib.sha256(data).hexdigest()  # another dataset is another run
    config = {"model": model, "prompts": prompts, "tau": known.get("tau"), "seed": known.get("seed", 0)}
    return Outcome(config, results_of(scores), {"profile.nc": data})


def write_scores(scores: xr.Dataset, folder: Path) -> None:
    """Write a dataset to a run folder, with figures and summary, as `ropescope profile` does."""
    from ...runs import claim  # noqa: PLC0415
    from .. import study_named  # noqa: PLC0415
    from ..runner import run_in_folder  # noqa: PLC0415
    from ..study import Work  # noqa: PLC0415

    outcome = outcome_of(scores)

    def compute(work: Work) -> Outcome:
        claim(work.folder, outcome.config, None, "profile", "a profile of another model, prompts or settings")
        return outcome

    run_in_folder(study_named("profile"), compute, folder)


class Answers:
    """`scores.ropescope`: answers from a dataset of scores. Each method is the function of the same purpose."""

    def __init__(self, scores: xr.Dataset) -> None:
        self._scores = scores

    def top(self, count: int = 10) -> Tables:
        """`top_heads(scores, count)`."""
        return top_heads(self._scores, count)

    def plot(self, name: str = "heads") -> Chart:
        """`plot(scores, name)`."""
        return plot(self._scores, name)

    def depth(self) -> Chart:
        """`plot(scores, "depth")`."""
        return plot(self._scores, "depth")


def register() -> None:
    """Make `scores.ropescope` available on datasets."""
    import xarray as xr  # noqa: PLC0415

    if not hasattr(xr.Dataset, "ropescope"):
        xr.register_dataset_accessor("ropescope")(Answers)  # type: ignore[no-untyped-call]
