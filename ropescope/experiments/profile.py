"""Profile of a language model: what every head does on a set of prompts, from one forward pass each.

Nothing of the size tokens x tokens is held for more than one layer's heads, and with blocks not even that: what is computed
are the blocks' logits where other blocks stood, for the last query alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..heads import Heads
from ..logits import LogitFactors
from ..measures.blocks import block_logits
from ..measures.plane_scores import AT_ONCE
from ..measures.registry import Measure, compute, measures
from ..measures.scores import swap_scores
from ..measures.view import LAST_QUERIES, TAUS, LayerView
from ..models.adapter import Adapter, LayerRead, read_layers
from ..models.gptj import GPTJ
from ..models.source import Source, open_source
from ..runs import HERE, Engine, cached_units, claim
from ..tasks.prompts import Prompt, as_prompt

if TYPE_CHECKING:
    import xarray as xr

ABOUT_INPUTS = {
    "check_error": (("layer",), "largest difference between attention from M and the model's own"),
    "right": ((), "the most likely next token is the answer"),
    "right_among_choices": ((), "the most likely of the possible answers is the right one"),
    "tokens": ((), "length of the prompt"),
    "blocks": ((), "blocks that may move"),
}
"""Axes (after "input") and labels of what a profile holds beside the registered measures."""


@dataclass(frozen=True)
class Settings:
    """What to measure, beside the scores of heads.

    planes       scores of every RoPE plane alone
    sensitivity  how scores change with tau, with full permutations instead of swaps, with tokens instead of blocks
    """

    tau: float = 1e-4
    planes: bool = True
    sensitivity: bool = True
    permutations: int = 200
    seed: int = 0

    def measures(self) -> list[Measure]:
        """The registered measures, without the groups that are left out."""
        left_out = {group for group, wanted in (("planes", self.planes), ("sensitivity", self.sensitivity)) if not wanted}
        return [measure for measure in measures().values() if measure.group not in left_out]


def profile(
    model: nn.Module | Adapter,
    prompts: Iterable[Prompt | Tensor | NDArray[np.int64] | Sequence[int]],
    *,
    tau: float = 1e-4,
    planes: bool = True,
    sensitivity: bool = True,
    name: str | None = None,
) -> xr.Dataset:
    """Scores of every head of a model on every prompt.

    model        a causal model of `transformers`, an `Adapter` to it, or one of our GPT-J
    prompts      `Prompt`s (see `binding_prompts`), or sequences of at least four token ids, whose tokens move one by one but
                 for the first, on which heads rest, and the last, which is the query
    tau          temperature of the weighting of swaps
    planes       score every RoPE plane alone, too, which takes several times as long
    sensitivity  try other temperatures, full permutations and swaps of single tokens, too
    name         what to call the model in the result

    The result is an `xarray.Dataset` with dimensions input, layer, head, plane (from 1 on, the fastest) and tau; what each
    variable is, its attribute `long_name` tells. What was not measured is NaN, and so are scores of a layer whose window
    holds fewer than two blocks.

    Raises RefusedError if the model cannot be opened or its attention does not follow from `M`, and ValueError if there is no
    prompt, or one is too short.

    >>> import torch, ropescope as rs
    >>> model = rs.bundled("number")
    >>> scores = rs.profile(model, [torch.randint(120, (17,)) for _ in range(4)], sensitivity=False)
    >>> dict(scores.positional.sizes)
    {'input': 4, 'layer': 12, 'head': 1}
    >>> scores.symbolic.long_name
    'symbolic score over swaps of two blocks'
    """
    door = model if isinstance(model, Adapter | GPTJ) else Adapter(model)
    settings = Settings(tau, planes, sensitivity)
    rows = [measure(door, as_prompt(prompt), settings) for prompt in prompts]
    return dataset(rows, {"model": name or _name(model)})


Row = dict[str, NDArray[Any]]
"""Measures of one prompt: (layer, head), (tau, layer, head), (layer, head, plane), (layer,), (layer, plane) or ()."""


@torch.inference_mode()
def measure(model: Adapter | GPTJ, prompt: Prompt, settings: Settings) -> Row:
    """All measures of one prompt, from one forward pass."""
    chosen, found = settings.measures(), []
    ids = torch.from_numpy(prompt.ids)[None].to(_device(model))

    def on_layer(read: LayerRead) -> None:
        view = LayerView(read.heads, read.factors, prompt.blocks, ids, settings.tau, settings.permutations, settings.seed)
        measured = {name: value[0] for name, value in compute(view, chosen).items()}
        measured["frequency"] = torch.tensor(read.heads.rope.plane_frequencies, dtype=torch.float64)
        measured["check_error"] = torch.tensor(read.error, dtype=torch.float64)
        measured["layer"] = torch.tensor(read.layer)
        found.append({key: value.cpu() for key, value in measured.items()})

    logits = read_layers(model, ids, on_layer, queries=LAST_QUERIES)[0]
    axes = {each.name: each.axes for each in chosen}
    row = {key: _stacked([layer[key] for layer in found], axes.get(key, ("layer",)).index("layer")) for key in found[0]}
    row["tokens"], row["blocks"] = np.array(len(prompt.ids)), np.array(len(prompt.blocks))
    if prompt.answer is not None:
        row["right"] = np.array(int(logits.argmax()) == prompt.answer)
        if prompt.choices:
            choices = list(prompt.choices)
            row["right_among_choices"] = np.array(choices[int(logits[choices].argmax())] == prompt.answer)
    return row


def dataset(rows: Sequence[Row], about: dict[str, Any]) -> xr.Dataset:
    """Measures of all prompts as one labelled dataset; what was not measured is NaN, an answer not asked for is not right."""
    import xarray as xr  # noqa: PLC0415

    if not rows:
        raise ValueError("prompts must hold at least one prompt")
    frequency = rows[0]["frequency"]
    coords = {
        "input": np.arange(len(rows)),
        "layer": rows[0]["layer"],
        "head": np.arange(rows[0]["entropy"].shape[-1]),
        "plane": np.arange(1, frequency.shape[-1] + 1),
        "tau": np.array(TAUS),
    }

    def values(name: str, dims: tuple[str, ...]) -> NDArray[Any]:
        if name in rows[0]:
            return np.stack([row[name] for row in rows])
        blank = False if name.startswith("right") else np.nan
        return np.full([len(coords[dim]) for dim in dims], blank)

    described = {name: (each.axes, each.label) for name, each in measures().items()} | ABOUT_INPUTS
    variables = {
        name: (dims, values(name, dims), {"long_name": label})
        for name, dims, label in ((name, ("input", *axes), label) for name, (axes, label) in described.items())
    }
    variables["frequency"] = (("layer", "plane"), frequency, {"long_name": "radians per token"})
    return xr.Dataset(variables, coords=coords, attrs=about)


def packed(scores: xr.Dataset) -> bytes:
    """As a NetCDF file, in single precision; of planes only their means over inputs, which would fill most of it."""
    means = {name: scores[name].mean("input", keep_attrs=True) for name in measures("planes")}
    single = {name: {"dtype": "float32"} for name, value in scores.data_vars.items() if value.dtype == np.float64}
    return bytes(scores.assign(means).to_netcdf(engine="scipy", format="NETCDF3_64BIT", encoding=single))


def estimate(model: Adapter | GPTJ, prompts: Sequence[Prompt], settings: Settings) -> dict[str, float]:
    """Seconds and bytes that a profile of these prompts will about take, from a few tokens of the first."""
    tokens = min(64, len(prompts[0].ids))
    ids = torch.from_numpy(prompts[0].ids[:tokens])[None].to(_device(model))
    largest: list[int] = []
    started = time.perf_counter()
    read_layers(model, ids, lambda read: largest.append(read.heads.queries.shape[1] * len(read.heads.rope.plane_frequencies)))
    seconds = (time.perf_counter() - started) / tokens * sum(len(prompt.ids) for prompt in prompts)
    blocks = max(len(prompt.blocks) for prompt in prompts)
    held = max(largest) * (blocks + 1) ** 2 if settings.planes else max(largest) ** 0.5 * (blocks + 1) ** 2
    return {"seconds": 1.5 * seconds, "bytes": 8 * 6 * min(held, 4 * AT_ONCE)}


def _stacked(values: list[Tensor], axis: int) -> NDArray[Any]:
    """Layers as one array, along a new axis; a layer with fewer planes than others has NaN in those it lacks."""
    width = max(value.shape[-1] if value.ndim else 0 for value in values)
    padded = [
        torch.nn.functional.pad(value, (0, width - value.shape[-1]), value=torch.nan) if value.ndim else value
        for value in values
    ]
    array: NDArray[Any] = torch.stack(padded, axis).numpy()
    return array


def _device(model: Adapter | GPTJ) -> torch.device:
    return next((model.model if isinstance(model, Adapter) else model).parameters()).device


def _name(model: nn.Module | Adapter) -> str:
    inner = model.model if isinstance(model, Adapter) else model
    name = str(getattr(getattr(inner, "config", None), "name_or_path", "") or type(inner).__name__)
    return Path(name).name if Path(name).exists() else name


def kept(
    model: Adapter | GPTJ | Source,
    prompts: Sequence[Prompt],
    settings: Settings,
    config: dict[str, Any],
    folder: Path,
    engine: Engine = HERE,
) -> Iterator[Row]:
    """Measures prompt by prompt, each kept in `folder/inputs` as it comes: what is there already is not computed again.

    An engine of other processes takes the model's `Source`, as each of them opens its own.
    """
    claim(folder, config, "profile", "a profile of another model, prompts or settings")
    paths = [folder / "inputs" / f"{number:05d}.safetensors" for number in range(len(prompts))]
    return cached_units(paths, measure_unit, (model, settings), prompts, engine)


def measure_unit(shared: tuple[Adapter | GPTJ | Source, Settings], prompt: Prompt) -> Row:
    """All measures of one prompt, in whatever process."""
    model, settings = shared
    return measure(_door(model) if isinstance(model, Source) else model, prompt, settings)


@lru_cache(maxsize=1)
def _door(source: Source) -> Adapter:
    """A worker's own model, opened once."""
    return Adapter(open_source(source))


KINDS = ("positional", "symbolic", "mixed")


def examples(scores: xr.Dataset) -> dict[str, tuple[int, int]]:
    """The most positional head, the most symbolic one, and one that is both as much as neither: (layer, head) of each.

    Out of the half of heads with most weight on blocks: others look elsewhere, whatever their scores.
    """
    mean = scores[["positional", "symbolic", "on_blocks"]].mean("input").stack(at=("layer", "head")).dropna("at")
    mean = mean.where(mean.on_blocks >= mean.on_blocks.median(), drop=True)
    lean = mean.positional - mean.symbolic
    at = {"positional": lean.idxmax(), "symbolic": lean.idxmin(), "mixed": (abs(lean) + mean.positional).idxmin()}
    return {kind: (int(place.item()[0]), int(place.item()[1])) for kind, place in at.items()}


@torch.inference_mode()
def closer(model: Adapter | GPTJ, prompt: Prompt, heads: dict[str, tuple[int, int]], tau: float) -> dict[str, Any]:
    """A closer look at a few heads on one prompt, as rows for charts.

    traces    weights of blocks before a swap and after it
    path      scores of the head when only its k planes with the largest logits are kept
    geometry  content query and keys in the plane with the largest logits
    """
    rows: dict[str, list[dict[str, Any]]] = {"traces": [], "path": [], "geometry": []}
    wanted = {layer for layer, _ in heads.values()}
    blocks = prompt.blocks

    def on_layer(read: LayerRead) -> None:
        if read.layer not in wanted:
            return
        factors = read.factors
        for kind, (layer, head) in heads.items():
            if layer == read.layer:
                one = factors.item(0, head)
                at = {"head": f"L{layer} H{head}", "kind": kind}
                sinks = None if read.heads.sinks is None else read.heads.sinks[head]
                M = block_logits(one, blocks, sinks)
                rows["traces"] += [at | row for row in _traces(M)]
                order = _by_size(one, blocks)
                rows["path"] += [at | row for row in _path(one, order, blocks, tau)]
                rows["geometry"] += [at | row for row in _geometry(read.heads, head, order[0], blocks)]

    read_layers(model, torch.from_numpy(prompt.ids)[None].to(_device(model)), on_layer)
    return rows


def _traces(M: Tensor) -> list[dict[str, Any]]:
    """Weights of blocks as they are, and after swaps of the heaviest block with the first, the middle and the last one."""
    number = len(M) - 1
    before = M.diagonal().softmax(-1)
    heaviest = int(before[:-1].argmax())
    rows = [{"swap": "as it is", "block": block, "weight": float(before[block]), "moved": False} for block in range(number)]
    for name, place in (("first", 0), ("middle", number // 2), ("last", number - 1)):
        other = place if place != heaviest else place + (1 if place == 0 else -1)
        logits = M.diagonal().clone()
        logits[heaviest], logits[other] = M[other, heaviest], M[heaviest, other]
        after = logits.softmax(-1)
        rows += [
            {
                "swap": f"heaviest and {name} swapped",
                "block": block,
                "weight": float(after[block]),
                "moved": block in (heaviest, other),
            }
            for block in range(number)
        ]
    return rows


def _by_size(one: LogitFactors, blocks: Sequence[tuple[int, int]]) -> list[int]:
    """Planes, those with the largest logits over keys that may move first."""
    keys = torch.cat([torch.arange(start, stop, device=one.content.device) for start, stop in blocks])
    order: list[int] = one.by_plane().select(keys).diagonal().square().mean(-1).argsort(descending=True).tolist()
    return order


def _path(one: LogitFactors, order: list[int], blocks: Sequence[tuple[int, int]], tau: float) -> list[dict[str, Any]]:
    rows = []
    for kept_planes in range(1, len(order) + 1):
        score = swap_scores(block_logits(one.only_planes(order[:kept_planes]), blocks), tau)
        rows.append({"kept": kept_planes, "positional": float(score.positional), "symbolic": float(score.symbolic)})
    return rows


def _geometry(heads: Heads, head: int, plane: int, blocks: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """Content query and keys in one plane; in that which never turns, their first two dimensions."""
    group = head // (heads.queries.shape[1] // heads.keys.shape[1])
    query, keys = heads.queries[0, head, -1], heads.keys[0, group]

    def in_plane(x: Tensor) -> list[list[float]]:
        turning, still = heads.rope.to_planes(x)
        flat = torch.view_as_real(turning[..., plane]) if plane < len(heads.rope.frequencies) else still[..., :2]
        points: list[list[float]] = flat.reshape(-1, 2).tolist()
        return points

    (x, y), places = in_plane(query)[0], in_plane(keys)
    rows: list[dict[str, Any]] = [
        {"plane": plane + 1, "what": "query", "x": x, "y": y, "position": heads.keys.shape[-2] - 1, "block": -1}
    ]
    rows += [
        {"plane": plane + 1, "what": "key", "x": places[p][0], "y": places[p][1], "position": p, "block": number}
        for number, (start, stop) in enumerate(blocks)
        for p in range(start, stop)
    ]
    return rows
