"""Which RoPE planes the heads of a trained model use, and how well positional ones tell places apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...heads import Heads
from ...logits import logit_factors
from ...measures.planes import mean_plane, plane_use, planes_in_use
from ...models.gptj import GPTJ
from ...runs import plain
from ...tasks import MultihopTask, Samples
from ...theory import packing_bound
from .flow import per_layer


class Geometry(NamedTuple):
    """Which planes each head uses, at the last query; means over inputs."""

    largest: NDArray[np.float64]  # (layer, head, plane)
    spread: NDArray[np.float64]


@torch.inference_mode()
def geometry(model: GPTJ, samples: Samples) -> Geometry:
    """Largest logit and spread of every RoPE plane of every head (paper B, figure 8)."""
    found: list[list[Tensor]] = []

    def on_heads(_: int, heads: Heads) -> None:
        use = plane_use(logit_factors(heads.queries[:, :, -1], heads.keys, heads.rope, scale=heads.scale))
        found.append([value.mean(1) for value in use])

    model(torch.from_numpy(samples.tokens), on_heads, last_only=True)
    largest, spread = (torch.stack(values).transpose(1, 2).numpy() for values in zip(*found, strict=True))
    return Geometry(largest, spread)


def geometry_summary(found: Geometry) -> dict[str, Any]:
    """Weighted mean plane per layer (paper B, table 1), by either weight, and how many planes share the work."""
    summary: dict[str, Any] = {}
    for name, use in found._asdict().items():
        planes = torch.from_numpy(use).movedim(-1, 0)
        summary[f"mean_plane_by_{name}"] = per_layer(mean_plane(planes).numpy())
        summary[f"planes_in_use_by_{name}"] = per_layer(planes_in_use(planes).numpy())
        summary[f"first_plane_by_{name}"] = per_layer(use.argmax(-1) + 1)
    return summary


@torch.inference_mode()
def plane_points(
    model: GPTJ, task: MultihopTask, samples: Samples, layer: int, plane: int, head: int = 0
) -> list[dict[str, Any]]:
    """Queries of path nodes and keys of all positions of one head in one RoPE plane, before rotation (paper B, figure 4).

    Queries are named by what they seek: an integer, or a second letter; keys by the kind of their token, or its first letter.
    """
    caught: list[Heads] = []
    model(torch.from_numpy(samples.tokens), lambda n, heads: caught.append(heads) if n == layer else None, last_only=True)
    heads = caught[0]
    queries, keys = (heads.rope.to_planes(x[:, head])[0][..., plane] for x in (heads.queries, heads.keys))
    rows = []
    for row, (tokens, path) in enumerate(zip(samples.tokens, samples.path, strict=True)):
        names = task.decode(tokens)
        rows += [_point("key", task.key_feature(name), keys[row, at]) for at, name in enumerate(names)]
        nodes = path[: samples.hops[row]]
        rows += [_point("query", task.query_feature(names[at]), queries[row, at]) for at in nodes]
    return rows


def _point(side: str, name: str, at: Tensor) -> dict[str, Any]:
    return {"side": side, "name": name, "x": round(float(at.real), 4), "y": round(float(at.imag), 4)}


REACH = (17, 33, 65, 129, 257, 513, 1025, 2049, 5000)


@torch.inference_mode()
def place_gaps(
    model: GPTJ, task: MultihopTask, samples: Samples, layers: Sequence[int], reach: Sequence[int] = REACH
) -> dict[str, Any]:
    """How well positional heads tell the place they seek from all others, as places grow in number: their discrepancy.

    Every place holds the same key, the mean over targets, so that places alone count. The last query seeks the place one hop
    back. `gap` is its logit minus the largest other one among so many places, `share` the same over the largest logit that
    the head's planes could give if all agreed; medians over inputs. Theory bounds the share for one, two or three planes.
    """
    back = torch.from_numpy(samples.path[:, 0] - samples.path[:, 1])
    targets = torch.from_numpy(samples.tokens < task.answers)
    found: dict[str, Any] = {"reach": list(reach)}

    def on_heads(layer: int, heads: Heads) -> None:
        if layer not in layers:
            return
        key = heads.keys[:, 0][targets].mean(0)
        query = heads.queries[:, 0, -1]
        factors = logit_factors(query, key.expand(len(query), reach[-1], -1), heads.rope, scale=heads.scale)
        logits = factors.diagonal().flip(-1)  # by distance
        lead = logits.gather(-1, back[:, None]) - logits.scatter(-1, back[:, None], -torch.inf).cummax(-1).values
        strength = heads.scale * (heads.rope.to_planes(query)[0].abs() * heads.rope.to_planes(key)[0].abs()).sum(-1)
        at = lead[:, torch.tensor(reach) - 1].double()
        gaps, shares = at.median(0).values, (at / strength[:, None]).median(0).values
        found[f"L{layer}"] = {"gap": plain(gaps.numpy()), "share": plain(shares.numpy())}

    model(torch.from_numpy(samples.tokens), on_heads, last_only=True)
    bounds = {
        f"{planes} plane{'s' * (planes > 1)}": [packing_bound(planes, n - 1) / planes for n in reach] for planes in (1, 2, 3)
    }
    return found | {"most_by_theory": {name: plain(np.array(values)) for name, values in bounds.items()}}
