"""What the heads of a trained model do at every stop of a path, over many inputs, and whether the answer hangs on it.

A path leaves the query (node 0) and ends at the answer (node h). Ideal models make one hop per layer at every node: Index and
Retrieval look at the next node, and a node that holds the answer keeps it (Reflexive). So after `l` layers the nodes at most
`l` hops from the answer hold it. Here a trained model is held against that.

A node *holds* the answer when the model's own read-out, put on what the node has after some layer, says so. The read-out was
only ever trained on answers, so it tells nothing of integers or letter pairs on the way, and in early layers it may see less
than is there.

What a head does at a node is judged by where it looks, its largest weight, and by what arrives from there:

    reflexive   it looks at itself, or it holds the answer already and looks where the answer is held too
    hop         else, it looks at a later node of its path (Index in the number task, Retrieval in the letter task);
                delivered, if the answer is held there before the layer and here after it
                several, if it looks past the next node
    other       it looks elsewhere
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..heads import Heads
from ..logits import logit_factors
from ..measures.planes import mean_plane, plane_use, planes_in_use
from ..models.gptj import GPTJ
from ..models.gptj_steps import OnWeights, read_out, run
from ..runs import plain
from ..tasks import MultihopTask, NumberTask, Samples
from ..tasks.functions import ideal_layers
from ..theory import packing_bound
from ..training.trainer import probe_of
from ..training.watcher import Watcher

BATCH = 512
LOOKS = ("reflexive", "hop", "other")


class Flow(NamedTuple):
    """Counts and sums over solved inputs, by hop count of the input and node on its path (both from the left, padded)."""

    inputs: NDArray[np.int64]  # (hops,)
    right: NDArray[np.int64]  # (hops,)
    holds: NDArray[np.int64]  # (layers passed, hops, node)
    looks: NDArray[np.int64]  # (layer, head, hops, node, one of LOOKS)
    delivered: NDArray[np.int64]  # (layer, head, hops, node)
    several: NDArray[np.int64]  # (layer, head, hops, node)
    weight: NDArray[np.float64]  # (layer, head, hops, node, itself or nodes ahead or elsewhere)


def information_flow(model: GPTJ, samples: Samples) -> Flow:
    """Follow every solved input through the model."""
    layers, heads, hops = model.config.layers, model.config.heads, int(samples.hops.max())
    flow = Flow(
        np.zeros(hops, np.int64),
        np.zeros(hops, np.int64),
        np.zeros((layers + 1, hops, hops), np.int64),
        np.zeros((layers, heads, hops, hops, len(LOOKS)), np.int64),
        np.zeros((layers, heads, hops, hops), np.int64),
        np.zeros((layers, heads, hops, hops), np.int64),
        np.zeros((layers, heads, hops, hops, 3)),
    )
    for h in range(1, hops + 1):
        of_class = samples[np.flatnonzero(samples.hops == h)]
        for part in _batches(of_class):
            _follow(model, part, h, flow)
    return flow


def _follow(model: GPTJ, part: Samples, h: int, flow: Flow) -> None:
    ids, answer, path = (torch.from_numpy(x) for x in (part.tokens, part.answer, part.path[:, : h + 1]))
    states: list[Tensor] = []
    weights: list[Tensor] = []
    logits = run(model, ids, on_weights=lambda _, w: weights.append(w), on_state=lambda _, x: states.append(x))
    right = logits.argmax(-1) == answer
    flow.inputs[h - 1] += len(part)
    flow.right[h - 1] += int(right.sum())

    rows = torch.arange(len(ids))
    # The answer's own place holds it from the start, whatever the read-out says of it.
    held = [read_out(model, state).argmax(-1) == answer[:, None] for state in states]
    for place in held:
        place[rows, path[:, h]] = True
    for passed, place in enumerate(held):
        flow.holds[passed, h - 1, :h] += place[rows[:, None], path[:, :h]][right].sum(0).numpy()

    for layer, all_heads in enumerate(weights):
        for node in range(h):
            here, ahead = path[:, node], path[:, node + 1 :]
            weight = all_heads[rows, :, here]  # (input, head, key)
            look = weight.argmax(-1)
            holds, arrives = held[layer][rows, here][:, None], held[layer][rows[:, None], look]
            itself, later = look == here[:, None], (look[..., None] == ahead[:, None]).any(-1)
            reflexive = itself | (holds & arrives)
            jump = later & ~reflexive
            kinds = torch.stack((reflexive, jump, ~reflexive & ~jump), -1)
            on_ahead = weight.gather(-1, ahead[:, None].expand(-1, weight.shape[1], -1)).sum(-1)
            on_itself = weight.gather(-1, here[:, None, None].expand(-1, weight.shape[1], 1))[..., 0]
            parts = torch.stack((on_itself, on_ahead, 1 - on_itself - on_ahead), -1)
            flow.looks[layer, :, h - 1, node] += kinds[right].sum(0).numpy()
            flow.delivered[layer, :, h - 1, node] += (
                (jump & arrives & held[layer + 1][rows, here][:, None])[right].sum(0).numpy()
            )
            flow.several[layer, :, h - 1, node] += (jump & (look != ahead[:, :1]))[right].sum(0).numpy()
            flow.weight[layer, :, h - 1, node] += parts[right].double().sum(0).numpy()


def flow_summary(flow: Flow) -> dict[str, Any]:
    """Shares that can be read off the counts; every list has one entry per layer (and head, if there are several)."""
    solved = flow.right
    nodes = sum(int(count) * h for h, count in enumerate(solved, start=1))
    if nodes == 0:
        raise ValueError(
            f"the model solves none of {flow.inputs.sum()} inputs: there is no path to follow; is it of this task?"
        )
    looks = flow.looks.sum((2, 3)) / nodes
    layers = len(flow.looks)
    distance = _by_distance(flow.holds, solved)
    # Ideal: after l layers the nodes at most l hops away hold the answer.
    ideal = np.arange(layers + 1)[:, None] >= np.arange(1, len(solved) + 1)
    cells = np.where(ideal, distance, 1 - distance)
    sizes = np.array([sum(int(count) for count in solved[d:]) for d in range(len(solved))])
    early = [
        sum(int(flow.holds[passed, h, node]) for h in range(len(solved)) for node in range(h + 1) if h + 1 - node > passed)
        for passed in range(layers + 1)
    ]
    return {
        "inputs": int(flow.inputs.sum()),
        "solved": int(solved.sum()),
        "nodes": nodes,
        **{name: _per_layer(looks[..., n]) for n, name in enumerate(LOOKS)},
        "explained": _per_layer(1 - looks[..., LOOKS.index("other")]),
        "delivered": _per_layer(flow.delivered.sum((2, 3)) / nodes),
        "hop_past_next": _per_layer(flow.several.sum((2, 3)) / nodes),
        "weight_itself_ahead_elsewhere": _per_layer(flow.weight.sum((2, 3)) / nodes),
        "holds_answer_by_distance": plain(distance),
        "ideal_by_distance": ideal.astype(int).tolist(),
        "agreement_with_ideal": plain((cells * sizes).sum(1) / sizes.sum()),
        "holds_earlier_than_ideal": [round(count / nodes, 6) for count in early],
    }


def _by_distance(holds: NDArray[np.int64], solved: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share of nodes that hold the answer, by layers passed and hops still to go."""
    hops = len(solved)
    found = np.zeros((len(holds), hops))
    for distance in range(1, hops + 1):
        count = sum(holds[:, h - 1, h - distance] for h in range(distance, hops + 1))
        found[:, distance - 1] = count / max(1, solved[distance - 1 :].sum())
    return found


def ideal_weights(looks_at: NDArray[np.int64]) -> Tensor:
    """Attention that puts everything on one key; rows with -1 are NaN, to be filled with the model's own weights."""
    rows = torch.from_numpy(looks_at)
    weights = torch.nn.functional.one_hot(rows.clamp(min=0), rows.shape[1]).float()
    weights[rows < 0] = torch.nan
    return weights


def accuracy_with(model: GPTJ, samples: Samples, looks_at: NDArray[np.int64], change: dict[int, str]) -> list[float]:
    """Accuracy per hop count when all heads of some layers are changed: `change` maps a layer to one of

    out        the layer attends to nothing: its attention adds nothing
    reflexive  every position attends to itself alone
    hop        every position attends to `looks_at` alone, and as it did where that is -1
    """
    right = np.zeros(len(samples), bool)
    for start in range(0, len(samples), BATCH):
        part = slice(start, start + BATCH)
        ideal = ideal_weights(looks_at[part])[:, None] if "hop" in change.values() else None
        logits = run(model, torch.from_numpy(samples.tokens[part]), on_weights=_changed(change, ideal))
        right[part] = logits.argmax(-1).numpy() == samples.answer[part]
    return [float(right[samples.hops == h].mean()) for h in range(1, int(samples.hops.max()) + 1)]


def _changed(change: dict[int, str], ideal: Tensor | None) -> OnWeights:
    def on_weights(layer: int, weights: Tensor) -> Tensor | None:
        kind = change.get(layer)
        if kind == "out":
            return torch.zeros_like(weights)
        if kind == "reflexive":
            return torch.eye(weights.shape[-1]).expand_as(weights)
        if kind == "hop" and ideal is not None:
            return torch.where(ideal.isnan(), weights, ideal)
        return None

    return on_weights


def interventions(layers: int, positional: Sequence[int], symbolic: Sequence[int]) -> dict[str, dict[int, str]]:
    """The changes to try: each layer alone, positional ones together from either end, and whole groups made ideal."""
    tried: dict[str, dict[int, str]] = {"none": {}}
    for kind in ("out", "reflexive", "hop"):
        tried |= {f"L{layer} {kind}": {layer: kind} for layer in range(layers)}
    for name, order in (("first", positional), ("last", positional[::-1])):
        for count in range(2, len(order) + 1):
            together = dict.fromkeys(order[:count], "out")
            if together not in tried.values():  # all of them are the same from either end
                tried[f"{name} {count} positional out"] = together
    groups = {"positional hop": dict.fromkeys(positional, "hop"), "symbolic reflexive": dict.fromkeys(symbolic, "reflexive")}
    groups["symbolic hop"] = dict.fromkeys(symbolic, "hop")
    if positional and symbolic:
        groups["positional hop, symbolic reflexive"] = groups["positional hop"] | groups["symbolic reflexive"]
    return tried | {name: change for name, change in groups.items() if change}


def _batches(samples: Samples) -> Iterator[Samples]:
    for start in range(0, len(samples), BATCH):
        yield samples[start : start + BATCH]


def _per_layer(values: NDArray[Any]) -> Any:
    """Lists of values (layer, head, ...), without the axis of heads where layers have one."""
    return plain(values[:, 0] if values.shape[1] == 1 else values)


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
        summary[f"mean_plane_by_{name}"] = _per_layer(mean_plane(planes).numpy())
        summary[f"planes_in_use_by_{name}"] = _per_layer(planes_in_use(planes).numpy())
        summary[f"first_plane_by_{name}"] = _per_layer(use.argmax(-1) + 1)
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


def example(model: GPTJ, task: MultihopTask, sample: Samples) -> dict[str, Any]:
    """One input (a single row) through the model and through the ideal layers: what nodes hold, where they look."""
    ids, hops = torch.from_numpy(sample.tokens), int(sample.hops[0])
    states: list[Tensor] = []
    weights: list[Tensor] = []
    run(model, ids, on_weights=lambda _, w: weights.append(w), on_state=lambda _, x: states.append(x))
    path = sample.path[0, : hops + 1].tolist()
    said = [read_out(model, state[0]).softmax(-1).max(-1) for state in states]
    ideal = ideal_layers(task, sample, len(weights))
    edges, cells = [], []
    for layer, weight in enumerate(weights):
        for node in path[:-1]:
            row = weight[0].mean(0)[node]
            at = int(row.argmax())
            edges.append({"layer": layer, "from": at, "to": node, "weight": round(float(row[at]), 4), "of": "trained model"})
            at = int(ideal[layer].looks_at[0, node])
            edges.append({"layer": layer, "from": at, "to": node, "weight": 1.0, "of": "ideal"})
    for passed, (chance, token) in enumerate(said):
        held = sample.tokens if passed == 0 else ideal[passed - 1].holds
        for position in range(ids.shape[1]):
            shown = {"passed": passed, "position": position, "on_path": position in path}
            cells.append(
                {**shown, "token": task.vocabulary[int(token[position])], "chance": round(float(chance[position]), 4)}
                | {"answer": bool(token[position] == int(sample.answer[0])), "of": "trained model"}
            )
            cells.append(
                {**shown, "token": task.vocabulary[int(held[0, position])], "chance": 1.0}
                | {"answer": bool(held[0, position] == sample.answer[0]), "of": "ideal"}
            )
    return {
        "tokens": task.decode(sample.tokens[0]),
        "path": path,
        "answer": task.vocabulary[int(sample.answer[0])],
        "edges": edges,
        "cells": cells,
    }


CHOSEN = 1024
"""Inputs for scores and planes, which are means; looks are counted on all."""


def mechanisms(model: GPTJ, task: MultihopTask, samples: Samples, changed: int) -> Iterator[tuple[str, Any]]:
    """Everything about one model as (name, result), in the order of the work; `changed` inputs are tried with each change."""
    few = probe_of(samples, CHOSEN)
    row = Watcher(few)(model)
    positional, symbolic = (row[name].mean(-1) for name in ("positional", "symbolic"))
    yield "scores", {"positional": plain(positional), "symbolic": plain(symbolic)}
    yield "flow", flow_summary(information_flow(model, samples))
    planes = geometry(model, few)
    yield "planes", geometry_summary(planes) | {"spread": _per_layer(planes.spread), "largest": _per_layer(planes.largest)}
    kinds = {
        "positional": np.flatnonzero((positional > 0.5) & (symbolic < 0.5)).tolist(),
        "symbolic": np.flatnonzero((symbolic > 0.5) & (positional < 0.5)).tolist(),
    }
    yield "layers", kinds
    if kinds["positional"] and isinstance(task, NumberTask):
        yield "place_gaps", place_gaps(model, task, few, kinds["positional"])
    tried = probe_of(samples, changed)
    looks_at = task.ideal_hop(tried.tokens).looks_at
    for name, change in interventions(model.config.layers, **kinds).items():
        yield f"change {name}", accuracy_with(model, tried, looks_at, change)
    longest = samples[np.flatnonzero(samples.hops == samples.hops.max())[:1]]
    yield "example", example(model, task, longest)
    for kind, layers in kinds.items():
        if layers:
            pure = np.abs(positional - symbolic)
            layer = next(n for n in layers if pure[n] >= pure[layers].max() - 0.1)  # the first: its tokens are still themselves
            plane = int(planes.spread[layer, 0].argmax())
            points = plane_points(model, task, few[:48], layer, plane)
            yield f"points of {kind}", {"layer": layer, "plane": plane + 1, "points": points}


def result_count(layers: int) -> int:
    """About how many results `mechanisms` yields, for a progress bar."""
    return 3 * layers + 15
