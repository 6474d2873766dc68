"""Where the heads of a trained model attend at every node of a path, what is held there, and whether the answer depends on it.

A path leaves the query (node 0) and ends at the answer (node h). Ideal models make one hop per layer at every node: Index and
Retrieval attend to the next node, and a node that holds the answer keeps it (Reflexive). So after `l` layers the nodes at most
`l` hops from the answer hold it. A trained model is compared with that.

A node *holds* the answer when the model's own read-out, applied to the node's state after some layer, gives it. The read-out
was only ever trained on answers, so it tells nothing of integers or letter pairs on the way, and in early layers it may miss
what is there.

What a head does at a node is judged by its largest weight, and by what arrives from there:

    reflexive   it attends to itself, or it holds the answer already and attends to where the answer is held too
    hop         else, it attends to a later node of its path (Index in the number task, Retrieval in the letter task);
                delivered, if the answer is held there before the layer and here after it
                several, if it attends past the next node
    other       it attends elsewhere
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...models.gptj import GPTJ
from ...models.gptj_steps import OnWeights, read_out
from ...models.gptj_steps import run as run_model
from ...runs import plain
from ...tasks import MultihopTask, Samples
from ...tasks.functions import ideal_layers

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
    logits = run_model(model, ids, on_weights=lambda _, w: weights.append(w), on_state=lambda _, x: states.append(x))
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
        **{name: per_layer(looks[..., n]) for n, name in enumerate(LOOKS)},
        "explained": per_layer(1 - looks[..., LOOKS.index("other")]),
        "delivered": per_layer(flow.delivered.sum((2, 3)) / nodes),
        "hop_past_next": per_layer(flow.several.sum((2, 3)) / nodes),
        "weight_itself_ahead_elsewhere": per_layer(flow.weight.sum((2, 3)) / nodes),
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
        logits = run_model(model, torch.from_numpy(samples.tokens[part]), on_weights=_changed(change, ideal))
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


def per_layer(values: NDArray[Any]) -> Any:
    """Lists of values (layer, head, ...), without the axis of heads where layers have one."""
    return plain(values[:, 0] if values.shape[1] == 1 else values)


def example(model: GPTJ, task: MultihopTask, sample: Samples) -> dict[str, Any]:
    """One input (a single row) through the model and through the ideal layers: what nodes hold, where they attend."""
    ids, hops = torch.from_numpy(sample.tokens), int(sample.hops[0])
    states: list[Tensor] = []
    weights: list[Tensor] = []
    run_model(model, ids, on_weights=lambda _, w: weights.append(w), on_state=lambda _, x: states.append(x))
    path = sample.path[0, : hops + 1].tolist()
    read = [read_out(model, state[0]).softmax(-1).max(-1) for state in states]
    ideal = ideal_layers(task, sample, len(weights))
    edges, cells = [], []
    for layer, weight in enumerate(weights):
        for node in path[:-1]:
            row = weight[0].mean(0)[node]
            at = int(row.argmax())
            edges.append({"layer": layer, "from": at, "to": node, "weight": round(float(row[at]), 4), "of": "trained model"})
            at = int(ideal[layer].looks_at[0, node])
            edges.append({"layer": layer, "from": at, "to": node, "weight": 1.0, "of": "ideal"})
    for passed, (chance, token) in enumerate(read):
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
