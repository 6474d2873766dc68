"""What the playground of the page needs: content queries and keys of one short prompt, from which a browser makes every `M`.

Stored are the query of the last position and all keys, per key head, not per query head; so size grows with heads times tokens,
never with tokens squared. Single precision is used where that loses nothing that can be seen: a model that runs in single
precision has keys of single precision, either before the rotation (ours) or after it (those of `transformers`). Which it is,
is found by trying: attention in the real order and in random ones, and the scores, must be the same as before.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from ..heads import Heads
from ..logits import layer_factors
from ..measures.scores import swap_scores
from ..models.adapter import Adapter, LayerRead, device_of, read_layers
from ..models.gptj import GPTJ
from ..rope import Rope
from ..tasks import MultihopTask, Samples
from ..tasks.prompts import Prompt
from ..weights import with_sinks

PAIRS = 6
"""Sentences of a binding prompt that is short enough to look at."""
LONGEST = 192
"""Tokens of the longest prompt that is stored."""
READABLE = 96
"""Tokens of a text of many queries that are stored: up to its last query among them."""
LARGEST = 4_000_000
"""Bytes of keys that are stored; of a larger model, every second (third, ...) layer."""
ORDERS = 12
"""Random orders in which attention is compared with that of full precision."""
ATTENTION_ERROR, SCORE_ERROR = 1e-9, 1e-6
"""What single precision may change. Scores weigh swaps by exp(difference / tau), so attention must be much closer than they."""
FORMS = ((True, "float32"), (False, "float32"), (False, "float64"))
"""How queries and keys may be stored, (after the rotation, type): the first that is exact enough, or the last."""


@torch.inference_mode()
def subject(
    model: Adapter | GPTJ, prompt: Prompt, name: str, about: Mapping[str, Any] | None = None, tau: float = 1e-4
) -> dict[str, Any]:
    """One model on one prompt, ready for JSON.

    name   by which it is chosen in the page
    about  where it comes from: source, hashes of weights, seed
    """
    if len(prompt) > LONGEST:
        raise ValueError(f"the playground takes prompts of at most {LONGEST} tokens, not {len(prompt):,}")
    found: list[tuple[int, Heads]] = []
    ids = torch.from_numpy(prompt.ids)[None].to(device_of(model.model if isinstance(model, Adapter) else model))

    def on_layer(read: LayerRead) -> None:
        if len(prompt) - read.heads.first_seen() > 2:  # else there is nothing to swap
            found.append((read.layer, _last_query(read.heads)))

    read_layers(model, ids, on_layer, queries=1)
    return subject_of_heads(found, prompt, name, about, tau)


def subject_of_heads(
    layers: Sequence[tuple[int, Heads]], prompt: Prompt, name: str, about: Mapping[str, Any] | None = None, tau: float = 1e-4
) -> dict[str, Any]:
    """The same from what numbered layers hand over of one input, for its last query."""
    size = sum(heads.keys.numel() * 4 for _, heads in layers)
    stored = layers[:: max(1, -(-size // LARGEST))]
    in_planes = [(layer, _in_planes(heads)) for layer, heads in stored]
    tables: list[Heads] = []  # one of each rotation: most models have one for all layers
    for _, heads in in_planes:
        if not any(_same_rotation(heads, other) for other in tables):
            tables.append(heads)
    result: dict[str, Any] = {
        "name": name,
        "about": dict(about or {}),
        "tokens": list(prompt.tokens),
        "blocks": [list(block) for block in prompt.blocks],
        "tau": tau,
        "layers_of_model": [layer for layer, _ in layers],
        "tables": [_packed_table(heads) for heads in tables],
    }
    result["examples"] = _examples(stored, result["blocks"], tau)
    for turned, kind in FORMS:
        result["layers"] = [_packed_layer(layer, heads, tables, turned, kind) for layer, heads in in_planes]
        result["check"] = _check(result, [heads for _, heads in stored])
        if result["check"]["attention"] <= ATTENTION_ERROR and result["check"]["scores"] <= SCORE_ERROR:
            break
    return result


def readable(prompt: Prompt) -> Prompt:
    """The prompt itself, or a text of many queries up to the last of them that is near its start.

    No token sees what follows it, so queries and keys are those of the whole text.
    """
    ends = [at for at in prompt.queries if at < READABLE]
    if len(prompt) <= READABLE or not ends:
        return prompt
    blocks = tuple(block for block in prompt.blocks if block[1] <= ends[-1])
    return Prompt(prompt.ids[: ends[-1] + 1], blocks, prompt.tokens[: ends[-1] + 1], about=prompt.about)


def task_prompt(task: MultihopTask, samples: Samples) -> tuple[Prompt, str]:
    """The first input with the longest path, whose tokens move one by one, and what it is, for people."""
    row = samples[np.flatnonzero(samples.hops == samples.hops.max())[:1]]
    names, hops = task.decode(row.tokens[0]), int(row.hops[0])
    path = " → ".join(names[at] for at in row.path[0, : hops + 1])
    return Prompt(row.tokens[0], (), tuple(names)), f"path of {hops} hops to the answer: {path}"


def playground(*subjects: dict[str, Any]) -> dict[str, Any]:
    """What `playground.json` of a run folder holds."""
    return {"subjects": list(subjects)}


def stored_heads(subject: Mapping[str, Any]) -> Iterator[tuple[int, Heads]]:
    """Layer by layer what was stored of a model, as a browser reads it: content queries and keys in planes, pair by pair."""
    tokens = len(subject["tokens"])
    for layer in subject["layers"]:
        table, size = subject["tables"][layer["table"]], layer["head_dim"]
        turns = torch.view_as_complex(_unpacked(table["turns"], (tokens, len(table["frequencies"]), 2)))
        queries = _unpacked(layer["queries"], (layer["heads"], 1, size))
        keys = _unpacked(layer["keys"], (layer["key_heads"], tokens, size))
        rope = Rope(size, pairing="interleaved", frequencies=table["frequencies"])
        if layer["turned"]:
            queries, keys = _turned(rope, queries, 1 / turns[-1:]), _turned(rope, keys, 1 / turns)
        options: dict[str, Any] = {key: layer[key] for key in ("scale", "soft_cap", "window")}
        for key in ("alibi", "sinks"):
            options[key] = None if layer[key] is None else torch.tensor(layer[key], dtype=torch.float64)
        yield layer["layer"], Heads(queries[None], keys[None], rope, turns=turns, **options)


def _examples(layers: Sequence[tuple[int, Heads]], blocks: Sequence[Sequence[int]], tau: float) -> dict[str, tuple[int, int]]:
    """The heads (layer, head) that show best on this prompt what it is to stay and to follow.

    Of those whose scores differ by more than a half, that with the largest difference times the weight on what may move: others
    look elsewhere. A model may have none of a kind.
    """
    found: dict[str, dict[tuple[int, int], float]] = {"positional": {}, "symbolic": {}}
    for layer, heads in layers:
        M = layer_factors(heads).matrix()[0]
        seen = visible_blocks(heads, blocks)
        moving = torch.zeros(M.shape[-1], dtype=torch.bool)
        for start, stop in seen or [(0, M.shape[-1] - 1)]:
            moving[start:stop] = True
        weight = with_sinks(M.diagonal(dim1=-2, dim2=-1)[None], heads.sinks)[0, :, moving].sum(-1)
        score = swap_scores(M, tau, seen or None)
        for head, lean in enumerate((score.positional - score.symbolic).tolist()):
            if abs(lean) > 0.5:
                found["positional" if lean > 0 else "symbolic"][layer, head] = abs(lean) * float(weight[head])
    return {kind: max(heads, key=lambda at: heads[at]) for kind, heads in found.items() if heads}


def visible_blocks(heads: Heads, blocks: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Blocks that the last query sees whole, if there are two: else none can change places."""
    seen = [(start, stop) for start, stop in blocks if start >= heads.first_seen()]
    return seen if len(seen) > 1 else []


def _last_query(heads: Heads) -> Heads:
    """What a layer hands over for its last query alone, wherever the model runs."""
    alibi, turns, sinks = (None if x is None else x.cpu() for x in (heads.alibi, heads.turns, heads.sinks))
    queries, keys = heads.queries[:, :, -1:].cpu(), heads.keys.cpu()
    first = heads.first_seen()  # for one query, a chunk is a window
    window = keys.shape[-2] - first if first else None
    return replace(heads, queries=queries, keys=keys, alibi=alibi, turns=turns, sinks=sinks, window=window, chunk=None)


def _in_planes(heads: Heads) -> Heads:
    """The same with the two numbers of each plane side by side, and with the rotation as a table."""
    rope = Rope(heads.rope.head_dim, pairing="interleaved", frequencies=heads.rope.frequencies)

    def side_by_side(x: Tensor) -> Tensor:
        return rope.from_planes(*heads.rope.to_planes(x.double()))

    turns = heads.turns
    if turns is None:
        angles = torch.arange(heads.keys.shape[-2])[:, None] * torch.tensor(rope.frequencies, dtype=torch.float64)
        turns = torch.polar(torch.ones_like(angles), angles)
    queries, keys = side_by_side(heads.queries), side_by_side(heads.keys)
    return replace(heads, queries=queries, keys=keys, rope=rope, turns=turns)


def _turned(rope: Rope, x: Float[Tensor, "*batch d"], turns: Complex[Tensor, "P F"]) -> Float[Tensor, "*batch d"]:
    turning, still = rope.to_planes(x)
    return rope.from_planes(turning * turns, still)


def _packed_layer(number: int, heads: Heads, tables: Sequence[Heads], turned: bool, kind: str) -> dict[str, Any]:
    assert heads.turns is not None
    queries, keys, turns = heads.queries[0], heads.keys[0], heads.turns
    if turned:
        queries, keys = _turned(heads.rope, queries, turns[-1:]), _turned(heads.rope, keys, turns)
    return {
        "layer": number,
        "heads": len(queries),
        "key_heads": len(keys),
        "head_dim": heads.rope.head_dim,
        "table": next(n for n, other in enumerate(tables) if _same_rotation(heads, other)),
        "scale": heads.scale,
        "soft_cap": heads.soft_cap,
        "window": heads.window,
        "alibi": None if heads.alibi is None else heads.alibi.tolist(),
        "sinks": None if heads.sinks is None else heads.sinks.tolist(),
        "turned": turned,
        "queries": _packed(queries, kind),
        "keys": _packed(keys, kind),
    }


def _packed_table(heads: Heads) -> dict[str, Any]:
    """The rotation of some layers: what planes are multiplied by at each position, and radians per token, for reading."""
    assert heads.turns is not None
    turns = torch.view_as_real(heads.turns)
    exact = torch.equal(turns.float().double(), turns)  # tables of transformers are of single precision
    return {"frequencies": list(heads.rope.frequencies), "turns": _packed(turns, "float32" if exact else "float64")}


def _same_rotation(one: Heads, other: Heads) -> bool:
    assert one.turns is not None
    assert other.turns is not None
    return one.turns.shape == other.turns.shape and torch.equal(one.turns, other.turns)


def _packed(values: Tensor, kind: str) -> dict[str, str]:
    array = values.contiguous().numpy().astype("<f4" if kind == "float32" else "<f8")
    return {"type": kind, "base64": base64.b64encode(array.tobytes()).decode()}


def _unpacked(packed: Mapping[str, str], shape: tuple[int, ...]) -> Tensor:
    kind = "<f4" if packed["type"] == "float32" else "<f8"
    array = np.frombuffer(base64.b64decode(packed["base64"]), kind).astype(np.float64)
    return torch.from_numpy(array).reshape(shape)


def _check(stored: Mapping[str, Any], heads: Sequence[Heads]) -> dict[str, Any]:
    """How far attention of any head in the real order and in random ones, and its scores, are from those of full precision."""
    tokens, blocks, tau = len(stored["tokens"]), stored["blocks"], stored["tau"]
    generator = torch.Generator().manual_seed(0)
    shuffled = torch.rand(ORDERS, tokens - 1, generator=generator).argsort(-1)
    orders = torch.nn.functional.pad(torch.cat((torch.arange(tokens - 1)[None], shuffled)), (0, 1), value=tokens - 1)
    attention = scores = 0.0
    for ours, (_, theirs) in zip(heads, stored_heads(stored), strict=True):
        (one, one_scores), (other, other_scores) = (_measured(each, orders, blocks, tau) for each in (ours, theirs))
        attention = max(attention, float((one - other).abs().max()))
        scores = max(scores, float((one_scores - other_scores).abs().max()))
    return {"orders": len(orders), "attention": attention, "scores": scores}


def _measured(
    heads: Heads, orders: Int[Tensor, "N T"], blocks: Sequence[Sequence[int]], tau: float
) -> tuple[Float[Tensor, "N H T"], Float[Tensor, "n H"]]:
    """Attention in every order, and the scores over swaps of tokens and of blocks."""
    M = layer_factors(heads).matrix()[0]
    logits = M[:, orders, torch.arange(orders.shape[-1])].transpose(0, 1)
    weights: Tensor = with_sinks(logits[..., None, :], heads.sinks)[..., 0, :]
    seen = visible_blocks(heads, blocks)
    found = [*swap_scores(M, tau)] + ([*swap_scores(M, tau, seen)] if seen else [])
    return weights, torch.stack(found)
