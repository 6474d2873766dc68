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

from ..engine import HERE, Engine
from ..engine import kept as kept_units
from ..heads import Heads
from ..logits import LogitFactors, attention_weights, with_sinks
from ..measures.blocks import block_logits
from ..measures.layer import SCORES, attention_scores, block_scores, seen_blocks
from ..measures.scores import permutation_scores, swap_scores
from ..measures.shares import exclusion
from ..models.adapter import Adapter, LayerRead, read_layers
from ..models.gptj import GPTJ
from ..models.source import Source, open_source
from ..runs import claim
from ..tasks.prompts import Prompt, as_prompt

if TYPE_CHECKING:
    import xarray as xr

HEAD = (*SCORES, "exclusion_variance", "exclusion_bound")
ATTENTION = ("entropy", "previous_token", "induction", "sink", "on_blocks")
OTHERWISE = ("positional_permuted", "symbolic_permuted", "positional_by_token", "symbolic_by_token")
BY_TAU = ("positional_by_tau", "symbolic_by_tau")
PLANE = ("plane_positional", "plane_symbolic", "plane_norm", "plane_spread", "plane_largest")
TAUS = (1e-4, 1e-3, 1e-2, 0.1, 1.0)
ROWS = 64
"""Queries, the last ones, over which the classical scores are averaged."""
AT_ONCE = 1 << 19
"""Numbers of one kind held at once while planes are scored."""
LONGEST_SQUARE = 1024
"""Longest prompt for which full permutations and swaps of single tokens are tried too."""


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
    found: list[dict[str, Tensor]] = []
    ids = torch.from_numpy(prompt.ids)[None].to(_device(model))

    def on_layer(read: LayerRead) -> None:
        measured = _layer(read, ids[0], prompt.blocks, settings)
        measured["check_error"] = torch.tensor(read.error, dtype=torch.float64)
        measured["layer"] = torch.tensor(read.layer)
        found.append({key: value.cpu() for key, value in measured.items()})

    logits = read_layers(model, ids, on_layer, queries=ROWS)[0]
    row = {key: _stacked([layer[key] for layer in found]) for key in found[0]}
    for key in BY_TAU:
        if key in row:
            row[key] = row[key].swapaxes(0, 1)  # layers came first
    row["tokens"], row["blocks"] = np.array(len(prompt.ids)), np.array(len(prompt.blocks))
    if prompt.answer is not None:
        row["right"] = np.array(int(logits.argmax()) == prompt.answer)
        if prompt.choices:
            choices = list(prompt.choices)
            row["right_among_choices"] = np.array(choices[int(logits[choices].argmax())] == prompt.answer)
    return row


def _layer(read: LayerRead, ids: Tensor, blocks: Sequence[tuple[int, int]], settings: Settings) -> dict[str, Tensor]:
    """Measures of one layer's heads at the last query; NaN where a window leaves fewer than two blocks."""
    heads, factors = read.heads, read.factors
    seen, sinks = seen_blocks(heads, blocks), heads.sinks
    rows = torch.arange(max(1, len(ids) - ROWS), len(ids), device=ids.device)
    last = with_sinks(factors.diagonal(), sinks)[0]
    result = _attention(last, attention_weights(heads, rows, single=True)[0], ids, rows, seen)
    number = heads.queries.shape[1]
    planes = len(heads.rope.plane_frequencies)
    result["frequency"] = torch.tensor(heads.rope.plane_frequencies, dtype=torch.float64)
    if len(seen) < 2:
        blank = torch.full((number,), torch.nan, dtype=torch.float64)
        result |= dict.fromkeys(HEAD, blank)
        result |= (
            dict.fromkeys(BY_TAU, blank.expand(len(TAUS), -1)) | dict.fromkeys(OTHERWISE, blank) if settings.sensitivity else {}
        )
        return result | (dict.fromkeys(PLANE, blank[:, None].expand(-1, planes)) if settings.planes else {})
    M = block_logits(factors, seen, sinks)[0]
    result |= block_scores(M, settings.tau) | dict(zip(HEAD[-2:], exclusion(M), strict=True))
    if settings.sensitivity:
        result |= dict(zip(BY_TAU, swap_scores(M, TAUS), strict=True))
        result |= _otherwise(factors, seen, sinks, settings)
    if settings.planes:
        result |= _planes(factors, seen, settings.tau)
    return result


def _attention(
    last: Tensor, weights: Tensor, ids: Tensor, rows: Tensor, blocks: Sequence[tuple[int, int]]
) -> dict[str, Tensor]:
    """Entropy and where attention goes at the last query; classical scores are means over the last queries."""
    # Induction: what followed the same token before.
    earlier = (ids[rows][:, None] == ids[:-1]) & (torch.arange(len(ids) - 1, device=ids.device) < rows[:, None] - 1)
    repeated = earlier.any(-1)
    followed = torch.linalg.vecdot(weights[..., 1:], earlier.to(weights.dtype))[:, repeated]
    return {
        **attention_scores(last, blocks),
        "previous_token": weights[:, torch.arange(len(rows), device=ids.device), rows - 1].mean(-1),
        "induction": followed.mean(-1),  # NaN where nothing repeats
        "sink": weights[:, :, 0].mean(-1),
    }


def _otherwise(
    factors: LogitFactors, blocks: Sequence[tuple[int, int]], sinks: Tensor | None, settings: Settings
) -> dict[str, Tensor]:
    """The same scores over full permutations, and over swaps of single tokens."""
    tokens = factors.content.shape[-2]
    blank = torch.full(factors.content.shape[1:-2], torch.nan, dtype=torch.float64)
    if tokens > LONGEST_SQUARE:
        return dict.fromkeys(OTHERWISE, blank)
    M = factors.matrix()[0]
    if sinks is not None:  # what never moves may hold them
        M[:, -1, -1] = torch.logaddexp(M[:, -1, -1], sinks)
    permuted = permutation_scores(M, settings.permutations, settings.tau, blocks, settings.seed)
    single = [(p, p + 1) for start, stop in blocks for p in range(start, stop)]
    return dict(zip(OTHERWISE, (*permuted, *swap_scores(M, settings.tau, single)), strict=True))


def _planes(factors: LogitFactors, blocks: Sequence[tuple[int, int]], tau: float) -> dict[str, Tensor]:
    """Scores of each plane alone, with its own softmax, and how large its logits are over the keys that may move."""
    by_plane = factors.by_plane()
    keys = torch.cat([torch.arange(start, stop, device=by_plane.content.device) for start, stop in blocks])
    logits = by_plane.select(keys).diagonal()[:, 0]
    planes, heads = logits.shape[:2]
    step = max(1, AT_ONCE // (heads * (len(blocks) + 1) ** 2))
    scores: list[Tensor] = []
    for start in range(0, planes, step):
        part = by_plane.some(slice(start, start + step))
        scores.append(torch.stack(swap_scores(block_logits(part, blocks)[:, 0], tau)))
    positional, symbolic = torch.cat(scores, 1)
    sizes = logits.square().mean(-1).sqrt(), logits.var(-1, correction=0), logits.amax(-1)
    return {key: value.T for key, value in zip(PLANE, (positional, symbolic, *sizes), strict=True)}


LONG_NAMES = {
    "positional": "positional score over swaps of two blocks",
    "symbolic": "symbolic score over swaps of two blocks",
    "symbol_share": "share of the variance of M that depends on the content",
    "position_share": "share of the variance of M that depends on the place",
    "binding_share": "share of the variance of M that depends on which content stands where",
    "exclusion_variance": "variance of the real logits of blocks",
    "exclusion_bound": "its bound by the exclusion principle",
    "entropy": "entropy of attention at the last query, 0 to 1",
    "previous_token": "weight on the token before, mean over the last queries",
    "induction": "weight on what followed the same token earlier, mean over those of the last queries whose token repeats",
    "sink": "weight on the first token, mean over the last queries",
    "on_blocks": "weight of the last query on all blocks together",
    "positional_permuted": "positional score over random permutations of all blocks",
    "symbolic_permuted": "symbolic score over random permutations of all blocks",
    "positional_by_token": "positional score over swaps of two tokens of any blocks",
    "symbolic_by_token": "symbolic score over swaps of two tokens of any blocks",
    "positional_by_tau": "positional score at other temperatures",
    "symbolic_by_tau": "symbolic score at other temperatures",
    "plane_positional": "positional score of one RoPE plane alone",
    "plane_symbolic": "symbolic score of one RoPE plane alone",
    "plane_norm": "root mean square of the plane's logits over keys that may move",
    "plane_spread": "variance of the plane's logits over keys that may move",
    "plane_largest": "largest of the plane's logits over keys that may move",
    "frequency": "radians per token",
    "check_error": "largest difference between attention from M and the model's own",
    "right": "the most likely next token is the answer",
    "right_among_choices": "the most likely of the possible answers is the right one",
    "tokens": "length of the prompt",
    "blocks": "blocks that may move",
}


DIMENSIONS = {
    **dict.fromkeys((*HEAD, *ATTENTION, *OTHERWISE), ("input", "layer", "head")),
    **dict.fromkeys(BY_TAU, ("input", "tau", "layer", "head")),
    **dict.fromkeys(PLANE, ("input", "layer", "head", "plane")),
    "check_error": ("input", "layer"),
    **dict.fromkeys(("right", "right_among_choices", "tokens", "blocks"), ("input",)),
}


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

    variables = {name: (dims, values(name, dims), {"long_name": LONG_NAMES[name]}) for name, dims in DIMENSIONS.items()}
    variables["frequency"] = (("layer", "plane"), frequency, {"long_name": LONG_NAMES["frequency"]})
    return xr.Dataset(variables, coords=coords, attrs=about)


def packed(scores: xr.Dataset) -> bytes:
    """As a NetCDF file, in single precision; of planes only their means over inputs, which would fill most of it."""
    means = {name: scores[name].mean("input", keep_attrs=True) for name in PLANE}
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


def _stacked(values: list[Tensor]) -> NDArray[Any]:
    """Layers as one array; a layer with fewer planes than others has NaN in those it lacks."""
    width = max(value.shape[-1] if value.ndim else 0 for value in values)
    padded = [
        torch.nn.functional.pad(value, (0, width - value.shape[-1]), value=torch.nan) if value.ndim else value
        for value in values
    ]
    array: NDArray[Any] = torch.stack(padded).numpy()
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
    return kept_units(paths, measure_unit, (model, settings), prompts, engine)


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
