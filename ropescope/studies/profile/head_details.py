"""Details of a few heads on one prompt: attention before and after swaps, scores by planes, queries and keys in a plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...heads import Heads
from ...logits import LogitFactors
from ...measures.blocks import block_logits
from ...measures.scores import swap_scores
from ...models.adapter import Adapter, LayerRead, read_layers
from ...models.gptj import GPTJ
from ...tasks.prompts import Prompt
from ..head_scores import device_of
from ..playground import visible_blocks

if TYPE_CHECKING:
    import xarray as xr


def examples(scores: xr.Dataset) -> dict[str, tuple[int, int]]:
    """The most positional head, the most symbolic one, and a mixed one: (layer, head) of each. Empty if no head has scores.

    They are chosen from the half of heads with most weight on blocks: others look elsewhere, whatever their scores.
    """
    mean = scores[["positional", "symbolic", "on_blocks"]].mean("input").stack(at=("layer", "head")).dropna("at")
    if not mean.sizes["at"]:
        return {}
    mean = mean.where(mean.on_blocks >= mean.on_blocks.median(), drop=True)
    lean = mean.positional - mean.symbolic
    at = {"positional": lean.idxmax(), "symbolic": lean.idxmin(), "mixed": (abs(lean) + mean.positional).idxmin()}
    found = {kind: (int(place.item()[0]), int(place.item()[1])) for kind, place in at.items()}
    return {kind: place for n, (kind, place) in enumerate(found.items()) if place not in list(found.values())[:n]}


@torch.inference_mode()
def head_details(model: Adapter | GPTJ, prompt: Prompt, heads: dict[str, tuple[int, int]], tau: float) -> dict[str, Any]:
    """Details of a few heads on one prompt, as rows for charts.

    traces    weights of blocks before a swap and after it
    path      scores of the head when only its k planes with the largest logits remain
    geometry  content query and keys in the plane with the largest logits
    """
    rows: dict[str, list[dict[str, Any]]] = {"traces": [], "path": [], "geometry": []}
    wanted = {layer for layer, _ in heads.values()}

    def on_layer(read: LayerRead) -> None:
        if read.layer not in wanted:
            return
        factors = read.factors
        blocks = [block for block in prompt.blocks if block[0] >= read.heads.first_seen()]
        if len(blocks) < 2:
            return
        for kind, (layer, head) in heads.items():
            if layer == read.layer:
                one = factors.item(0, head)
                at = {"head": f"L{layer} H{head}", "kind": kind}
                sinks = None if read.heads.sinks is None else read.heads.sinks[head]
                seen = visible_blocks(read.heads, prompt.blocks)
                if not seen:  # on other prompts it sees more of them
                    continue
                M = block_logits(one, seen, sinks)
                rows["traces"] += [at | row for row in _traces(M)]
                order = _by_size(one, seen)
                rows["path"] += [at | row for row in _path(one, order, seen, tau)]
                rows["geometry"] += [at | row for row in _geometry(read.heads, head, order[0], seen)]

    read_layers(model, torch.from_numpy(prompt.ids)[None].to(device_of(model)), on_layer)
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
