"""The theory, checked: constructions on every small input and many large ones, bounds against exact gaps, plane sets."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from ...heads import Heads
from ...logits import layer_logits, logit_factors
from ...measures.gap import margin
from ...measures.scores import swap_scores
from ...measures.shares import variance_shares
from ...models.built import OneHead, heads_of, t_index, t_retrieval, uniform_retrieval
from ...rope import Rope
from ...tasks import LetterTask, NumberTask
from ...tasks.functions import index, retrieval
from ...tasks.multihop import Hop
from ...theory import (
    DENSEST,
    index_bound_printed,
    index_counterexample,
    index_gap,
    index_gaps,
    least_far,
    mean_bound,
    packing_bound,
    planes_bound,
    retrieval_bound_printed,
    retrieval_counterexample,
    retrieval_extremes,
    search_planes,
)
from ..study import Outcome, Work
from . import Settings
from .identities import identities

INDEX_ANGLE, RETRIEVAL_ANGLE = 0.8, 0.0027
NUMBER, LETTER = NumberTask(), LetterTask()
BATCH = 2000
ABOVE = 1 + 1e-9
"""A gap counts as above a bound if it is so by more than rounding."""


def run(settings: Settings, work: Work) -> Outcome:
    """Results of every part, and the curves for the figures."""
    parts = work.progress(theory(settings.inputs, settings.longest, settings.draws, settings.seed), 9, "theory")
    results = dict(parts)
    lines = json.dumps(results.pop("curves")) + "\n"
    return Outcome(asdict(settings), results, {"curves.json": lines})


@dataclass(frozen=True)
class Case:
    """Sizes of a construction, small enough to try every input up to `longest`; tests share them."""

    function: str
    symbols: int
    """letters of Index, alphabet of Retrieval"""
    others: int
    """integers of Index, digits of Retrieval"""
    longest: int
    angle: float

    def build(self) -> OneHead:
        """The model of this case, at the temperature it asks for."""
        make = {"index": t_index, "retrieval": t_retrieval}[self.function]
        return make(self.symbols, self.others, self.angle, self.longest)

    def ideal(self, tokens: Int64[np.ndarray, "B T"]) -> Hop:
        """What the function demands. The windows of the tasks do not matter here, only their tokens."""
        if self.function == "index":
            return index(NumberTask(targets=1, stops=0, hops=1, letters=self.symbols, integers=self.others), tokens)
        return retrieval(_Letters(targets=1, stops=0, hops=1, alphabet=self.symbols, digits=self.others), tokens)

    def inputs(self) -> Iterator[Int64[np.ndarray, "B T"]]:
        """All inputs of length 1, then 2, up to the longest."""
        vocabulary = self.symbols + self.others if self.function == "index" else self.symbols * (self.symbols + self.others)
        for length in range(1, self.longest + 1):
            yield np.array(list(product(range(vocabulary), repeat=length)), dtype=np.int64)


class _Letters(LetterTask):
    """Tokens of the letter task for alphabets too small to draw its sequences from."""

    def __post_init__(self) -> None:
        pass


def _near_limit(alphabet: int, longest: int) -> float:
    return 0.999 * math.pi / alphabet / longest


CASES = (
    Case("index", 2, 3, 6, 0.8),
    Case("index", 3, 4, 5, 1.0),
    Case("index", 2, 4, 6, 2 * math.pi / 6),  # 6 places make a full turn, and 5 is the farthest
    Case("index", 1, 5, 6, 3.0),
    Case("index", 3, 5, 5, -0.8),
    Case("retrieval", 2, 1, 6, 0.0),
    Case("retrieval", 2, 1, 6, _near_limit(2, 6)),
    Case("retrieval", 3, 1, 4, 0.0),
    Case("retrieval", 3, 2, 4, _near_limit(3, 4)),
    Case("retrieval", 4, 1, 4, _near_limit(4, 4)),
    Case("retrieval", 5, 2, 3, _near_limit(5, 3)),
)


def theory(inputs: int, longest: int, draws: int, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """One part of the results after another."""
    if inputs < 1 or longest < 100 or draws < 1:
        raise ValueError(
            f"inputs and draws must be at least 1 and longest at least 100, not {inputs}, {draws} and {longest}: "
            f"figure 5A goes up to 100"
        )
    yield "identities", identities(seed)
    yield "every_input", every_input()
    yield "random_inputs", random_inputs(inputs, seed)
    yield "scores", scores(seed, min(inputs, 2000))
    yield "limits", limits(seed)
    yield "bounds", bounds(longest)
    yield "real_inputs", real_inputs(seed, min(inputs, 2000))
    yield "curves", curves(longest)
    yield "planes", planes(draws, seed)


def every_input() -> dict[str, Any]:
    """How many inputs of each case there are, on how many the function is defined, and how many of those come out wrong."""
    rows = []
    for case in CASES:
        model, total, valid, wrong, uniform_wrong = case.build(), 0, 0, 0, 0
        for tokens in case.inputs():
            defined, mistakes = last_answers(model, case.ideal(tokens), tokens)
            total, valid, wrong = total + len(tokens), valid + defined, wrong + mistakes
            if case.function == "retrieval":
                uniform_wrong += last_answers(uniform_retrieval(case.symbols, case.others), case.ideal(tokens), tokens)[1]
        row = {"function": case.function, "symbols": case.symbols, "others": case.others, "longest": case.longest}
        row |= {"angle": case.angle, "beta": model.beta, "inputs": total, "valid": valid, "wrong": wrong}
        rows.append(row | ({"uniform_wrong": uniform_wrong} if case.function == "retrieval" else {}))
    return {"cases": rows, **{key: sum(row[key] for row in rows) for key in ("inputs", "valid", "wrong")}}


@torch.inference_mode()
def last_answers(model: OneHead, ideal: Hop, tokens: Int64[np.ndarray, "B T"]) -> tuple[int, int]:
    """Of how many inputs the last position has one right answer, and at how many of them the model misses it."""
    valid = ideal.places[:, -1] == 1
    wrong = 0
    for ids, right in zip(*(np.array_split(x[valid], 1 + len(x) // 50_000) for x in (tokens, ideal.holds[:, -1])), strict=True):
        wrong += int((model(torch.from_numpy(ids))[:, -1].argmax(-1).numpy() != right).sum())
    return int(valid.sum()), wrong


@torch.inference_mode()
def random_inputs(count: int, seed: int) -> dict[str, Any]:
    """Both constructions at the paper's sizes on samples of its tasks, at every position that has one right answer."""
    results = {}
    number, letter = NUMBER.sample(count, seed).tokens, LETTER.sample(count, seed).tokens
    for name, tokens, model, ideal in (
        ("index", number, t_index(angle=INDEX_ANGLE), partial(index, NUMBER)),
        ("retrieval", letter, t_retrieval(angle=RETRIEVAL_ANGLE), partial(retrieval, LETTER)),
        ("retrieval, angle 0", letter, t_retrieval(angle=0.0), partial(retrieval, LETTER)),
        ("retrieval, uniform", letter, uniform_retrieval(), partial(retrieval, LETTER)),
    ):
        checked, wrong, lead = 0, 0, math.inf
        for rows in np.array_split(tokens, 1 + count // BATCH):
            hop = ideal(rows)
            valid = torch.from_numpy(hop.places == 1)
            leads = margin(model(torch.from_numpy(rows))[valid], torch.from_numpy(hop.holds)[valid])
            checked, wrong, lead = checked + len(leads), wrong + int((leads <= 0).sum()), min(lead, float(leads.min()))
        results[name] = {"beta": model.beta, "inputs": count, "positions": checked, "wrong": wrong, "smallest_lead": lead}
    return results


@torch.inference_mode()
def scores(seed: int, inputs: int) -> dict[str, Any]:
    """The engine's scores and shares of the constructions at the last query: means, and the farthest from what must be."""
    results: dict[str, Any] = {}
    for name, task, model in (
        ("index", NUMBER, t_index(angle=INDEX_ANGLE)),
        ("retrieval", LETTER, t_retrieval(angle=RETRIEVAL_ANGLE)),
        ("retrieval, angle 0", LETTER, t_retrieval(angle=0.0)),
    ):
        M = layer_logits(heads_of(model, task.sample(inputs, seed).tokens))[:, 0]
        score, share = swap_scores(M), variance_shares(M)
        results[name] = {key: float(value.mean()) for part in (score, share) for key, value in part._asdict().items()}
        for key, value in score._asdict().items():
            results[name] |= {f"{key}_min": float(value.min()), f"{key}_max": float(value.max())}
    return results


# The letter task's tokens over 3 letters and 2 digits are as many as the number task's over 11 letters and 4 integers, so one
# vocabulary serves the heads of both kinds.
SMALL = {"alphabet": 3, "digits": 2, "letters": 11, "integers": 4, "vocabulary": 15}


@torch.inference_mode()
def limits(seed: int, heads: int = 200, length: int = 5) -> dict[str, Any]:
    """How far apart outputs are on two inputs with different answers: symbolic heads on Index, positional ones on Retrieval."""
    rng = torch.Generator().manual_seed(seed)
    symbolic = [random_head(rng, positional=False) for _ in range(heads)]
    symbolic.append(t_retrieval(SMALL["alphabet"], SMALL["digits"], 0.0, length))
    on_index = [output_distance(head, index_counterexample(SMALL["letters"], length, back=2)) for head in symbolic]
    positional = [random_head(rng, positional=True) for _ in range(heads)]
    positional.append(t_index(SMALL["letters"], SMALL["integers"], INDEX_ANGLE, length))
    distances, excess = [], []
    for head in positional:
        pair = retrieval_counterexample(partial(last_weights, head), SMALL["alphabet"], SMALL["digits"], length)
        weights = last_weights(head, pair[:1])[:-1]
        values = head.get_buffer("value")[torch.from_numpy(pair[:, weights.argmin()])]
        distances.append(output_distance(head, pair))
        excess.append(distances[-1] - float(weights.min() * (values[0] - values[1]).norm()))
    return {
        "heads_of_each_kind": heads + 1,
        "symbolic_on_index_largest_distance": max(on_index),
        "positional_on_retrieval_largest_excess": max(excess),
        "t_index_on_retrieval_distance": distances[-1],
    }


def random_head(rng: torch.Generator, positional: bool) -> OneHead:
    """A head of random weights whose keys are all alike in a plane that turns, or differ in one that does not."""
    size = SMALL["vocabulary"]
    query, key = torch.randn(2, size, 2, generator=rng, dtype=torch.float64) * 3
    value, residual = torch.randn(2, size, size, generator=rng, dtype=torch.float64)
    angle = float(torch.rand(1, generator=rng)) * 3
    key = key[:1].expand(size, 2) if positional else key
    one_hot, rope = torch.eye(size, dtype=torch.float64), Rope(frequencies=[angle if positional else 0.0])
    return OneHead(one_hot, query, key, value, residual, rope, beta=1.0)


def output_distance(head: OneHead, pair: Int64[np.ndarray, "2 T"]) -> float:
    """Between the outputs of the last position on two inputs."""
    first, second = head(torch.from_numpy(pair))[:, -1]
    return float((first - second).norm())


def last_weights(head: OneHead, tokens: Int64[np.ndarray, "1 T"]) -> Float64[np.ndarray, " T"]:
    """What the last position gives to every position."""
    weights: np.ndarray = layer_logits(heads_of(head, tokens))[0, 0].diagonal().softmax(-1).numpy()
    return weights


def bounds(longest: int) -> dict[str, Any]:
    """Where the bounds as printed fail, and that the corrected ones do not, for every length and query up to `longest`."""
    gaps = index_gaps(longest - 1, INDEX_ANGLE)
    corrected = np.minimum(gaps[0], 2 * math.pi**2 / np.arange(2, longest + 1) ** 2)  # by distance of the farthest key
    lengths = np.arange(2, longest + 1)
    printed = np.array([index_bound_printed(n, INDEX_ANGLE) for n in range(2, longest + 1)])
    largest = gaps[[least_far(n, NUMBER.integers) - 1 for n in range(2, longest + 1)]]
    above = lengths[largest > printed * ABOVE]
    least, most = retrieval_extremes(100, RETRIEVAL_ANGLE, LETTER.alphabet)
    printed_retrieval = np.array([retrieval_bound_printed(n, RETRIEVAL_ANGLE, LETTER.alphabet) for n in range(2, 101)])
    return {
        "index_angle": INDEX_ANGLE,
        "retrieval_angle": RETRIEVAL_ANGLE,
        "integers": NUMBER.integers,
        "alphabet": LETTER.alphabet,
        "longest": longest,
        "index_printed_violated_up_to_100": above[above <= 100].tolist(),
        "index_printed_violated": len(above),
        "index_printed_violated_by_any_integer": int((gaps[lengths // 2 - 1] > printed * ABOVE).sum()),
        "index_letter_queries_violated": int((gaps > printed * ABOVE).sum()),
        "index_corrected_violated": int((gaps > corrected * ABOVE).sum()),
        "index_example": {"length": 14, "back": 6, "gap": index_gap(14, 6, INDEX_ANGLE), "printed": float(printed[12])},
        "retrieval_printed_below_largest_up_to_100": int((most > printed_retrieval * ABOVE).sum()),
        "retrieval_printed_below_smallest_up_to_100": (2 + np.flatnonzero(least > printed_retrieval * ABOVE)).tolist(),
        "retrieval_right_up_to": longest_right(RETRIEVAL_ANGLE, LETTER.alphabet),
        "table": {
            str(n): {
                "index_printed": float(printed[n - 2]),
                "index_corrected": float(corrected[least_far(n, NUMBER.integers) - 1]),
                "index_largest": float(largest[n - 2]),
                "index_smallest": float(gaps[n - 2]),
                "retrieval_printed": float(printed_retrieval[n - 2]),
                "retrieval_smallest": float(least[n - 2]),
                "retrieval_largest": float(most[n - 2]),
            }
            for n in (2, 9, 14, 17, 40, 100)
        },
    }


def longest_right(angle: float, alphabet: int) -> int:
    """The longest input on which Retrieval's right key always wins, at a positive angle: (2 n - 3) angle < omega."""
    return math.ceil((2 * math.pi / alphabet / angle + 3) / 2) - 1


QUANTILES = {"least": 0.0, "low": 0.05, "median": 0.5, "high": 0.95, "most": 1.0}


@torch.inference_mode()
def real_inputs(seed: int, inputs: int) -> dict[str, Any]:
    """Margins of the right key at inverse temperature 1 on samples of the tasks, made longer in front."""
    results: dict[str, Any] = {"index": {}, "retrieval": {}}
    for extra in (0, 8, 23, 43, 63, 83):
        length = NUMBER.length + extra
        for name, task, model in (
            ("index", NUMBER, t_index(angle=INDEX_ANGLE, longest=length)),
            ("retrieval", LETTER, t_retrieval(angle=RETRIEVAL_ANGLE, longest=length)),
        ):
            samples = task.sample(inputs, seed, extra)
            margins = margin(last_logits(heads_of(model, samples.tokens)), torch.from_numpy(samples.path[:, 1]))
            quantiles = np.quantile(margins.numpy(), list(QUANTILES.values()))
            results[name][str(length)] = dict(zip(QUANTILES, map(float, quantiles), strict=True))
    return results


def last_logits(heads: Heads) -> Float[Tensor, "B T"]:
    """Real logits of the last query at inverse temperature 1."""
    return logit_factors(heads.queries[:, 0, -1], heads.keys[:, 0], heads.rope, scale=1.0).diagonal()


def curves(longest: int) -> dict[str, Any]:
    """Lines for the figure: every length up to 100, then lengths evenly spaced on a logarithmic axis."""
    lengths = sorted({*range(2, 101), *np.geomspace(100, longest, 240).round().astype(int).tolist()})
    at = np.array(lengths)
    gaps = index_gaps(longest - 1, INDEX_ANGLE)
    far = np.array([least_far(n, NUMBER.integers) for n in lengths])
    least, most = retrieval_extremes(longest, RETRIEVAL_ANGLE, LETTER.alphabet)
    still, _ = retrieval_extremes(longest, 0.0, LETTER.alphabet)
    lines = {
        "index_printed": np.array([index_bound_printed(n, INDEX_ANGLE) for n in lengths]),
        "index_corrected": np.minimum(gaps[0], 2 * math.pi**2 / (far + 1) ** 2),
        "index_largest": gaps[far - 1],
        "index_smallest": gaps[at - 2],
        "retrieval_printed": np.array([retrieval_bound_printed(n, RETRIEVAL_ANGLE, LETTER.alphabet) for n in lengths]),
        "retrieval_smallest": least[at - 2],
        "retrieval_largest": most[at - 2],
        "retrieval_smallest_still": still[at - 2],
    }
    return {"length": lengths, **{name: line.tolist() for name, line in lines.items()}}


OFFSETS = (10, 32, 100, 316, 1000, 3162, 10000)


def planes(draws: int, seed: int) -> dict[str, Any]:
    """The largest worst gap found with one to four planes, beside the bounds."""
    rows = []
    for count in (1, 2, 3, 4):
        for offsets in OFFSETS:
            found = search_planes(count, offsets, draws, seed)
            row = {"planes": count, "offsets": offsets, "gap": found.gap, "angles": found.angles.tolist()}
            row |= {"uniform_angles_gap": search_planes(count, offsets, min(draws, 2000), seed, lattice=False).gap}
            row |= {"pigeonhole": planes_bound(count, offsets), "mean": mean_bound(count, offsets)}
            rows.append(row | ({"packing": packing_bound(count, offsets)} if count in DENSEST else {}))
    return {"rows": rows, "above_a_bound": sum(row["gap"] > row[key] * ABOVE for row in rows for key in BOUNDS if key in row)}


BOUNDS = ("pigeonhole", "packing", "mean")
