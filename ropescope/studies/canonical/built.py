"""Heads built by hand: right on every small input, scored, and what pure heads cannot do (paper A, theorems 2 to 7)."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from ...logits import layer_factors, layer_logits
from ...measures.scores import swap_scores
from ...models.built import OneHead, h_mix, h_pos, h_single, h_sym, heads_of
from ...rope import Rope
from ...tasks.canonical import CanonicalTask, IndexTask, PairTask, PartialInductionTask, RetrievalTask
from ...theory import (
    attribute_counterexample,
    index_weights,
    latest_gap,
    order_counterexample,
    place_counterexample,
    retrieval_weights,
    single_best,
)
from . import Settings
from .sweeps import ONE, task_of


class Case(NamedTuple):
    """A built head and the task it is right on, small enough to try every input."""

    head: str
    task: CanonicalTask
    angle: float | None

    def build(self) -> OneHead:
        """The head, at the temperature it asks for."""
        task = self.task
        if not isinstance(task, PairTask):
            return h_pos(task.items, task.symbols, self.angle or 0.0)
        if self.head == "H_SYM":
            return h_sym(task.items, task.symbols, task.attributes, self.angle or 0.0)
        make = h_mix if self.head == "H_MIX" else h_single
        return make(task.items, task.symbols, task.attributes, self.angle)


def _of(kind: type[PairTask], items: int, symbols: int, attributes: int) -> PairTask:
    return kind(items=items, symbols=symbols, attributes=attributes)


CASES = (
    *(Case("H_POS", IndexTask(items=n, symbols=k), a) for n, k, a in ((2, 2, 3.0), (4, 5, 0.4), (6, 3, 1.0), (10, 2, 0.8))),
    *(
        Case("H_SYM", _of(RetrievalTask, n, k, m), a)
        for n, k, m, a in ((2, 2, 3, 0.0), (3, 5, 2, 0.0), (4, 4, 3, 0.0), (4, 4, 3, 0.5), (4, 5, 2, 0.41))
    ),
    *(
        Case(head, _of(PartialInductionTask, n, k, m), a)
        for n, k, m, a in ((2, 2, 4, None), (4, 4, 2, None), (6, 2, 2, None), (5, 3, 2, None), (3, 5, 3, None))
        for head in ("H_MIX", "one plane")
    ),
    Case("H_MIX", _of(PartialInductionTask, 5, 2, 3), 0.999 * math.pi / 4),
    Case("one plane", _of(PartialInductionTask, 4, 3, 2), 0.05),
)  # fmt: skip


def built(settings: Settings) -> dict[str, Any]:
    """Every small input, scores, what pure heads cannot do, and the weights of theorem 7."""
    return {
        "every_input": every_input(),
        "scores": built_scores(settings),
        "limits": limits(settings.seed),
        "leads": leads(settings),
        "shapes": weight_shapes(settings),
    }


@torch.inference_mode()
def every_input() -> dict[str, Any]:
    """How many inputs each case has, and how many come out wrong."""
    rows = []
    for case in CASES:
        model, task = case.build(), case.task
        row = {"head": case.head, "items": task.items, "symbols": task.symbols, "planes": list(model.rope.frequencies)}
        row |= {"attributes": task.attributes} if isinstance(task, PairTask) else {}
        rows.append(row | {"beta": model.beta, **dict(zip(("inputs", "wrong"), wrong_answers(model, task), strict=True))})
    return {"cases": rows, **{key: sum(row[key] for row in rows) for key in ("inputs", "wrong")}}


def wrong_answers(model: OneHead, task: CanonicalTask) -> tuple[int, int]:
    """All inputs of a task, and those on which a model is wrong."""
    inputs = wrong = 0
    for tokens in task.every_input():
        inputs += len(tokens)
        wrong += int((answers_of(model, tokens) != task.solve(tokens).answer).sum()) if len(tokens) else 0
    return inputs, wrong


@torch.inference_mode()
def answers_of(model: OneHead, tokens: Int64[np.ndarray, "B T"]) -> Int64[np.ndarray, " B"]:
    """What a model answers at the last position."""
    answers: np.ndarray = model(torch.from_numpy(tokens))[:, -1].argmax(-1).numpy()
    return answers


@torch.inference_mode()
def built_scores(settings: Settings, inputs: int = 1000) -> dict[str, Any]:
    """The engine's scores of the built heads at full size, and plane by plane; accuracy beside them."""
    n, attributes = settings.items, settings.attributes
    rows = {}
    for name, model, task in (
        ("H_POS", h_pos(n, settings.letters, 2 * math.pi / n), task_of(settings, "index")),
        ("H_SYM", h_sym(n, settings.symbols, attributes), task_of(settings, "retrieval")),
        ("H_MIX", h_mix(n, settings.repeated, attributes), task_of(settings, ONE)),
        ("one plane", h_single(n, settings.repeated, attributes), task_of(settings, ONE)),
    ):
        samples = task.sample(inputs, settings.seed)
        heads = heads_of(model, samples.tokens)
        matrices = {"whole": layer_logits(heads)[:, 0]}
        if len(model.rope.frequencies) > 1:
            planes = layer_logits(heads, by_plane=True)[:, :, 0]
            matrices |= {f"plane {angle:.3g}": M for angle, M in zip(model.rope.frequencies, planes, strict=True)}
        accuracy = float((answers_of(model, samples.tokens) == samples.answer).mean())
        for part, M in matrices.items():
            score = swap_scores(M)
            rows[f"{name}, {part}"] = {
                "beta": model.beta,
                "accuracy": accuracy if part == "whole" else None,
                "positional": float(score.positional.mean()),
                "symbolic": float(score.symbolic.mean()),
                "positional_range": [float(score.positional.min()), float(score.positional.max())],
                "symbolic_range": [float(score.symbolic.min()), float(score.symbolic.max())],
            }
    return rows


LIMITS = {"items": 4, "symbols": 4, "attributes": 3}


@torch.inference_mode()
def limits(seed: int, heads: int = 500) -> dict[str, Any]:
    """Random heads of each kind on inputs that must break them: how far apart outputs are, and how often both are right."""
    rng = torch.Generator().manual_seed(seed)
    pairs = {name: _of(kind, **LIMITS) for name, kind in (("retrieval", RetrievalTask), ("partial", PartialInductionTask))}
    index = IndexTask(items=LIMITS["items"], symbols=LIMITS["symbols"])
    apart: dict[str, list[float]] = {"index": [], "partial": []}
    right = dict.fromkeys(("symbolic on Index", "symbolic on partial induction", "positional on Retrieval"), 0)
    for _ in range(heads):
        place, order = place_counterexample(index.items, index.symbols), order_counterexample(**LIMITS)
        for name, task, pair in (("index", index, place), ("partial", pairs["partial"], order)):
            head = random_head(rng, task, positional=False)
            first, second = head(torch.from_numpy(pair))[:, -1]
            apart[name].append(float((first - second).norm()))
            kind = "symbolic on Index" if name == "index" else "symbolic on partial induction"
            right[kind] += bool((answers_of(head, pair) == task.solve(pair).answer).all())
        head = random_head(rng, pairs["retrieval"], positional=True)
        broken = attribute_counterexample(partial(first_lead, head), **LIMITS)
        right["positional on Retrieval"] += bool((answers_of(head, broken) == pairs["retrieval"].solve(broken).answer).all())
    return {
        "heads_of_each_kind": heads,
        "right_on_both": right,
        "largest_distance": {name: max(values) for name, values in apart.items()},
        "bilinear_read_out": dict(zip(("inputs", "wrong"), bilinear_wrong(pairs["retrieval"]), strict=True)),
    }


def random_head(rng: torch.Generator, task: CanonicalTask, positional: bool) -> OneHead:
    """Random tables; keys of items all alike in a plane that turns, or different in one that does not."""
    size = task.vocab_size
    query, key = torch.randn(2, size, 2, generator=rng, dtype=torch.float64) * 3
    value, residual = torch.randn(2, size, task.answers, generator=rng, dtype=torch.float64)
    angle = float(torch.rand(1, generator=rng)) * 3
    if positional:
        key[: task.item_tokens] = key[0].clone()
    rope = Rope(frequencies=[angle if positional else 0.0])
    return OneHead(torch.eye(size, dtype=torch.float64), query, key, value, residual, rope, beta=1.0)


@torch.inference_mode()
def first_lead(head: OneHead, tokens: Int64[np.ndarray, "B T"]) -> Float64[np.ndarray, " B"]:
    """Output of the first answer minus that of the second, at the last position."""
    put_out = head(torch.from_numpy(tokens))[:, -1]
    lead: np.ndarray = (put_out[:, 0] - put_out[:, 1]).numpy()
    return lead


def bilinear_wrong(task: PairTask) -> tuple[int, int]:
    """All inputs of Retrieval, and those missed by uniform attention with a read-out that multiplies with the query.

    Uniform attention is purely positional and gives the share of every pair; the read-out selects those of the queried symbol.
    Hence theorem 4 needs a read-out that is linear.
    """
    inputs = wrong = 0
    for tokens in task.every_input():
        shares = (
            (tokens[:, :-1, None] == np.arange(task.item_tokens)).mean(1).reshape(len(tokens), task.symbols, task.attributes)
        )
        answer = shares[np.arange(len(tokens)), tokens[:, -1] - task.item_tokens].argmax(-1)
        inputs, wrong = inputs + len(tokens), wrong + int((answer != task.solve(tokens).answer).sum())
    return inputs, wrong


def leads(settings: Settings) -> dict[str, Any]:
    """The lead of the right pair of partial induction in one plane and in two, per length of query times length of key.

    In one plane both are unit vectors. With two, whose logits have the largest values c and 1, the product of lengths is c + 1
    if each plane has the same share of query and key, and no other split has less (Cauchy and Schwarz).
    """
    rows = []
    for symbols in sorted({settings.few, settings.repeated, 2 * settings.repeated}):
        angle, single = math.pi / (2 * settings.items), single_best(settings.items, symbols)
        query = h_mix(settings.items, symbols, settings.attributes, angle).get_buffer("query")
        lengths = float(query[:, [0, 2]].norm(dim=-1).max()) + 1
        two = latest_gap(settings.items, angle) / lengths
        row = {"symbols": symbols, "one_plane": single.gap, "one_plane_angle": single.angle, "one_plane_aim": single.aim}
        rows.append(row | {"two_planes": two, "two_planes_angle": angle, "two_over_one": two / single.gap})
    return {"items": settings.items, "rows": rows}


def weight_shapes(settings: Settings, inputs: int = 60_000) -> dict[str, Any]:
    """Theorem 7: the weight of the right key by place, by formula and as measured in the module; H_POS slow, H_SYM fast."""
    n, symbols, attributes = settings.items, settings.symbols + settings.symbols % 2, settings.attributes
    slow, fast = 0.5 * math.pi / n, 0.8 * 2 * math.pi / symbols / (n - 1)
    # Temperatures at which weights are well between 0 and 1: opposite symbols are told apart more easily than neighbours.
    betas = {"H_POS": 20.0, "H_SYM": 2.0, "H_SYM, random inputs": 40.0}
    pos = h_pos(n, settings.letters, slow, betas["H_POS"])
    easy, hard = (h_sym(n, symbols, attributes, fast, betas[name]) for name in ("H_SYM", "H_SYM, random inputs"))
    index, retrieval = task_of(settings, "index"), RetrievalTask(items=n, symbols=symbols, attributes=attributes)
    opposite = np.full(
        (n, n + 1), symbols // 2 * attributes
    )  # all pairs of the opposite symbol but one, at every place in turn
    opposite[np.arange(n), np.arange(n)], opposite[:, -1] = 0, symbols * attributes
    asked, random = index.sample(inputs, settings.seed), retrieval.sample(inputs, settings.seed)
    rows = {}
    for name, model, exact, tokens, place in (
        ("H_POS", pos, index_weights(n, slow, betas["H_POS"]), asked.tokens, asked.path[:, 1]),
        ("H_SYM", easy, retrieval_weights(n, fast, betas["H_SYM"]), opposite, np.arange(n)),
        ("H_SYM, random inputs", hard, None, random.tokens, random.path[:, 1]),
    ):
        weights = layer_factors(heads_of(model, tokens)).diagonal()[:, 0].softmax(-1).numpy()
        given = weights[np.arange(len(tokens)), place]
        measured = np.array([given[place == p].mean() for p in range(n)])
        rows[name] = {
            "angle": model.rope.frequencies[0],
            "beta": model.beta,
            "measured": measured.tolist(),
            "exact": None if exact is None else exact.tolist(),
            "largest_difference": None if exact is None else float(np.abs(measured - exact).max()),
            "falls_then_rises": _bent(measured, 1),
            "rises_then_falls": _bent(measured, -1),
        }
    return rows


def _bent(values: NDArray[Any], sign: int) -> bool:
    """Whether a curve goes down all the way to its middle and up from there (sign 1), or the other way round (-1)."""
    steps = sign * np.diff(values)
    half = len(steps) // 2
    return bool((steps[:half] < 0).all() and (steps[len(steps) - half :] > 0).all())
