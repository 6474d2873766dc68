"""Scores of every head of a model on a prompt, from one forward pass, and the labelled dataset of many prompts.

Nothing of the size tokens x tokens is held for more than one layer's heads. With blocks, or many tokens, not even that: only
the blocks' logits at each other's places are computed, and those of tokens in small parts, for the last query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..measures.queries import QueryScores, query_positions, query_scores
from ..measures.registry import Measure, compute, measures
from ..measures.view import DRAWS, LAST_QUERIES, TAUS, LayerView
from ..models.adapter import Adapter, LayerRead, read_each
from ..models.adapter import device_of as module_device
from ..models.gptj import GPTJ
from ..tasks.prompts import Prompt

if TYPE_CHECKING:
    import xarray as xr

TOLERANCE = 1e-3
"""Default error that scores of long prompts and of planes may have."""

ABOUT_INPUTS = {
    "check_error": (("layer",), "largest difference between attention from M and the model's own"),
    "check_limit": (("layer",), "difference that rounding explains there"),
    "right": ((), "the most likely next token is the answer"),
    "right_among_choices": ((), "the most likely of the possible answers is the right one"),
    "tokens": ((), "length of the prompt"),
    "blocks": ((), "blocks that may move"),
}
"""Axes (after "input") and labels of what a profile holds beside the registered measures."""


@dataclass(frozen=True)
class Scoring:
    """How heads are scored, and what else to measure.

    tau           temperature of the weighting of swaps
    planes        scores of every RoPE plane alone
    sensitivity   how scores change with tau, with full permutations instead of swaps, with tokens instead of blocks
    permutations  how many random ones to draw
    seed          of permutations and of noise
    tolerance     error that scores of long prompts and of planes may have, each with its bound in the result; 0 for none
    """

    tau: float = 1e-4
    planes: bool = True
    sensitivity: bool = True
    permutations: int = 200
    seed: int = 0
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < 1:
            raise ValueError(f"tolerance must be at least 0 and below 1, not {self.tolerance}")

    def measures(self) -> list[Measure]:
        """The registered measures, without the groups that are left out."""
        left_out = {group for group, wanted in (("planes", self.planes), ("sensitivity", self.sensitivity)) if not wanted}
        return [measure for measure in measures().values() if measure.group not in left_out]


AT_QUERIES = "classical"
"""Group of measures that a profile of many queries has beside those of `QueryScores`: they are means over queries already."""

Row = dict[str, NDArray[Any]]
"""Measures of one prompt: (layer, head), (tau or draw, layer, head), (layer, head, plane), (layer,), (layer, plane) or ().

With several queries (layer, head, query), and their positions (query,).
"""


def with_queries(prompt: Prompt, count: int | None) -> Prompt:
    """The prompt with `count` queries to score, evenly spread over it; with its last alone if None."""
    if count is None:
        return prompt
    return replace(prompt, queries=tuple(query_positions(prompt.blocks, len(prompt), count)))


def measure(model: Adapter | GPTJ, prompt: Prompt, scoring: Scoring) -> Row:
    """All measures of one prompt, from one forward pass."""
    return measure_each(model, [prompt], scoring)[0]


@torch.inference_mode()
def measure_each(model: Adapter | GPTJ, prompts: Sequence[Prompt], scoring: Scoring) -> list[Row]:
    """All measures of each of several prompts, which may differ in length, from one forward pass over all of them."""
    chosen, means = scoring.measures(), list(measures(AT_QUERIES).values())
    found: list[list[dict[str, Tensor]]] = [[] for _ in prompts]
    inputs = [torch.from_numpy(prompt.ids).to(device_of(model)) for prompt in prompts]

    def on_layer(number: int, read: LayerRead) -> None:
        prompt, ids = prompts[number], inputs[number][None].to(read.heads.keys.device)
        settings = scoring.tau, scoring.permutations, scoring.seed, scoring.tolerance
        view = LayerView(read.heads, read.factors, prompt.blocks, ids, *settings, layer=read.layer)
        measured = {name: value[0] for name, value in compute(view, means if prompt.queries else chosen).items()}
        if prompt.queries:
            at_queries = query_scores(read.heads, prompt.queries, prompt.blocks, scoring.tau)._asdict()
            measured |= {name: value[0] for name, value in at_queries.items()}
        measured["frequency"] = torch.tensor(read.heads.rope.plane_frequencies, dtype=torch.float64)
        measured["check_error"] = torch.tensor(read.error, dtype=torch.float64)
        measured["check_limit"] = torch.tensor(read.limit, dtype=torch.float64)
        measured["layer"] = torch.tensor(read.layer)
        found[number].append({key: value.cpu() for key, value in measured.items()})

    last = max(LAST_QUERIES, *(len(prompt) - min(prompt.queries, default=len(prompt)) for prompt in prompts))
    logits = read_each(model, inputs, on_layer, queries=last)
    axes = {each.name: each.axes for each in chosen}
    return [_row(layers, axes, prompt, of) for layers, prompt, of in zip(found, prompts, logits, strict=True)]


def _row(layers: list[dict[str, Tensor]], axes: dict[str, tuple[str, ...]], prompt: Prompt, logits: Tensor) -> Row:
    row = {key: _stacked([layer[key] for layer in layers], axes.get(key, ("layer",)).index("layer")) for key in layers[0]}
    if prompt.queries:
        row["position"] = np.array(prompt.queries)
    row["tokens"], row["blocks"] = np.array(len(prompt.ids)), np.array(len(prompt.blocks))
    if prompt.answer is not None:
        row["right"] = np.array(int(logits.argmax()) == prompt.answer)
        if prompt.choices:
            choices = list(prompt.choices)
            row["right_among_choices"] = np.array(choices[int(logits[choices].argmax())] == prompt.answer)
    return row


def dataset(rows: Sequence[Row], about: dict[str, Any]) -> xr.Dataset:
    """The labelled dataset of all prompts. What was not measured is NaN; a prompt without an answer is not right.

    With several queries, the measures of `QueryScores` have the dimension "query", and the coordinate "position" has the
    positions of queries; where a prompt has fewer than others, they are -1 and measures NaN.
    """
    import xarray as xr  # noqa: PLC0415

    if not rows:
        raise ValueError("prompts must hold at least one prompt")
    frequency, queries = rows[0]["frequency"], max(len(row.get("position", ())) for row in rows)
    coords: dict[str, Any] = {
        "input": np.arange(len(rows)),
        "layer": rows[0]["layer"],
        "head": np.arange(rows[0]["entropy"].shape[1]),
        "plane": np.arange(1, frequency.shape[-1] + 1),
        "tau": np.array(TAUS),
        "draw": np.arange(DRAWS),
    }

    def values(name: str, dims: tuple[str, ...]) -> NDArray[Any]:
        if name in rows[0]:
            return np.stack([_padded(row[name], queries) if dims[-1] == "query" else row[name] for row in rows])
        blank = False if name.startswith("right") else np.nan
        return np.full([len(coords[dim]) for dim in dims], blank)

    described = {name: (each.axes, each.label) for name, each in measures().items()}
    if queries:
        at_queries = {name: (("layer", "head", "query"), _at_query(described[name][1])) for name in QueryScores._fields}
        described = at_queries | {name: described[name] for name in measures(AT_QUERIES)}
        coords["query"] = np.arange(queries)
        where = np.stack([_padded(row["position"], queries, -1) for row in rows])
        coords["position"] = (("input", "query"), where, {"long_name": "position of the query in its text"})
    described |= ABOUT_INPUTS
    variables = {
        name: (dims, values(name, dims), {"long_name": label})
        for name, dims, label in ((name, ("input", *axes), label) for name, (axes, label) in described.items())
    }
    variables["frequency"] = (("layer", "plane"), frequency, {"long_name": "radians per token"})
    return xr.Dataset(variables, coords=coords, attrs=about)


def _at_query(label: str) -> str:
    return label.replace("the last query", "the query")


def _padded(values: NDArray[Any], queries: int, blank: float = np.nan) -> NDArray[Any]:
    """The values of a prompt with fewer queries than others, filled up."""
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, queries - values.shape[-1])], constant_values=blank)


def over_queries(scores: xr.Dataset) -> xr.Dataset:
    """The dataset with one number per input: the mean over its queries. Without the dimension "query" it is unchanged.

    Queries of one text share its words, so inputs are what is independent. What only the last query has is NaN.
    """
    if "query" not in scores.dims:
        return scores
    import xarray as xr  # noqa: PLC0415

    means = scores.drop_vars("position").mean("query", keep_attrs=True)
    sizes = dict(means.sizes)
    missing = {name: each for name, each in measures().items() if name not in means}
    for name, each in missing.items():
        dims = ("input", *each.axes)
        means[name] = xr.DataArray(np.full([sizes[dim] for dim in dims], np.nan), dims=dims, attrs={"long_name": each.label})
    return means


def packed(scores: xr.Dataset) -> bytes:
    """A NetCDF file of the dataset, in single precision. Of planes and draws only the means over inputs."""
    means = {name: scores[name].mean("input", keep_attrs=True) for name in measures("planes", "redrawn") if name in scores}
    single = {name: {"dtype": "float32"} for name, value in scores.data_vars.items() if value.dtype == np.float64}
    return bytes(scores.assign(means).to_netcdf(engine="scipy", format="NETCDF3_64BIT", encoding=single))


def _stacked(values: list[Tensor], axis: int) -> NDArray[Any]:
    """One array of all layers, along a new axis; a layer with fewer planes than others has NaN in those it lacks."""
    width = max(value.shape[-1] if value.ndim else 0 for value in values)  # heads and queries are as many in each layer
    padded = [
        torch.nn.functional.pad(value, (0, width - value.shape[-1]), value=torch.nan) if value.ndim else value
        for value in values
    ]
    array: NDArray[Any] = torch.stack(padded, axis).numpy()
    return array


def device_of(model: Adapter | GPTJ) -> torch.device:
    """The device that a model computes on."""
    return module_device(model.model if isinstance(model, Adapter) else model)
