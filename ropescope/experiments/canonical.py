"""The canonical tasks of paper A, section 5: which RoPE angle learns which task, and what built heads can and cannot do.

Sweeps train one-head models at every angle; each sweep of one seed is a unit, kept in the run folder as it comes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from numpy.typing import NDArray
from scipy import stats

from ..logits import layer_factors, layer_logits
from ..measures.intervals import mean_interval
from ..measures.scores import swap_scores
from ..models.built import OneHead, h_mix, h_pos, h_single, h_sym
from ..rope import Rope
from ..runs import HERE, Engine, cached_units, claim, plain
from ..studies.theory.run import heads_of
from ..tasks.canonical import (
    CanonicalTask,
    IndexTask,
    PairTask,
    PartialInductionTask,
    RetrievalTask,
    order_blind_accuracy,
)
from ..theory import (
    attribute_counterexample,
    index_weights,
    latest_gap,
    order_counterexample,
    place_counterexample,
    retrieval_weights,
    single_best,
)
from ..training.stacked import Stacked, Training, train

SOLVED = 0.99
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Settings:
    """Sizes of tasks, angles and training."""

    items: int = 16
    letters: int = 8
    """of Index"""
    symbols: int = 16
    """of Retrieval"""
    repeated: int = 12
    """symbols of partial induction, of which some stand several times"""
    few: int = 4
    """symbols of partial induction made easy"""
    attributes: int = 8
    slowest: float = 1e-3
    fastest: float = 1.5
    angles: int = 18
    """besides 0, evenly spaced on a logarithmic axis"""
    seeds: int = 5
    scored: int = 300
    """test inputs on which trained heads are scored"""
    training: Training = field(default_factory=lambda: Training(rate=0.03, spread=0.1))

    def __post_init__(self) -> None:
        if not 0 < self.slowest < self.fastest:
            raise ValueError(f"slowest must be above 0 and below fastest, not {self.slowest} and {self.fastest}")
        if self.angles < 3 or self.seeds < 2 or self.scored < 2:
            raise ValueError(
                f"angles must be at least 3, seeds and scored at least 2, not {self.angles}, {self.seeds} and {self.scored}"
            )
        for name in SWEEPS:
            self.task(name)  # refuses sizes that do not fit

    def all_angles(self) -> list[float]:
        """0 and the others, from slow to fast."""
        return [0.0, *np.geomspace(self.slowest, self.fastest, self.angles).tolist()]

    def task(self, sweep: str) -> CanonicalTask:
        """The task of a sweep."""
        if sweep == "index":
            return IndexTask(items=self.items, symbols=self.letters)
        if sweep == "retrieval":
            return RetrievalTask(items=self.items, symbols=self.symbols, attributes=self.attributes)
        symbols = self.few if sweep == FEW else self.repeated
        return PartialInductionTask(items=self.items, symbols=symbols, attributes=self.attributes)

    def planes(self, sweep: str) -> list[list[float]]:
        """The angles of every model of a sweep."""
        return [[0.0, angle] if sweep == TWO else [angle] for angle in self.all_angles()]


ONE, TWO, FEW = "partial induction", "partial induction, with a still plane", "partial induction, few symbols"
SWEEPS = ("index", "retrieval", ONE, TWO, FEW)

PRESETS = {
    "full": Settings(),
    "quick": Settings(
        items=8, letters=6, symbols=8, repeated=8, few=3, attributes=6, angles=9, seeds=3, scored=100,
        training=Training(steps=800, rate=0.03, spread=0.1),
    ),
}  # fmt: skip


# Sweeps


class Unit(NamedTuple):
    """One sweep of one seed: all angles at once."""

    sweep: str
    seed: int


def units(settings: Settings, seed: int) -> list[Unit]:
    """All units of a run; seeds are the given one and those after it."""
    return [Unit(sweep, seed + n) for n in range(settings.seeds) for sweep in SWEEPS]


def run_unit(settings: Settings, unit: Unit) -> Arrays:
    """Train, test and score the models of a unit."""
    task = settings.task(unit.sweep)
    models, seen = train(task, settings.planes(unit.sweep), settings.training, unit.seed)
    inputs = task.sample(settings.scored, np.random.SeedSequence(unit.seed).spawn(4)[3])
    arrays: Arrays = {"steps": seen.steps, "accuracy": seen.accuracy, "place": seen.place, "weight": seen.weight}
    if unit.sweep == "index":
        arrays |= {"queries": seen.queries[:, :, task.item_tokens :], "keys": seen.keys[:, :, : task.item_tokens]}
    whole, planes = _scores(models, inputs.tokens)
    return arrays | {"scores": whole, "plane_scores": planes}


@torch.inference_mode()
def _scores(
    models: Stacked, tokens: Int64[np.ndarray, "B T"]
) -> tuple[Float64[np.ndarray, "M 2"], Float64[np.ndarray, "M F 2"]]:
    """Positional and symbolic score of every model, means over inputs; and of each of its planes alone."""
    whole: list[NDArray[Any]] = []
    planes: list[NDArray[Any]] = []
    for model in range(len(models.planes)):
        heads = heads_of(models.one(model), tokens)
        for rows, M in ((whole, layer_logits(heads)[:, 0]), (planes, layer_logits(heads, by_plane=True)[:, :, 0])):
            score = swap_scores(M)
            rows.append(np.stack([score.positional.mean(-1).numpy(), score.symbolic.mean(-1).numpy()], -1))
    return np.stack(whole), np.stack(planes)


def kept(settings: Settings, seed: int, folder: Path, engine: Engine = HERE) -> Iterator[tuple[Unit, Arrays]]:
    """Every unit, read from `folder/units` where it is there already, and kept there where it is not."""
    claim(folder, {"seed": seed, **asdict(settings)}, "run of canonical", "a run with another preset or seed")
    asked = units(settings, seed)
    paths = [folder / "units" / f"{SWEEPS.index(unit.sweep)}-{unit.seed}.safetensors" for unit in asked]
    yield from zip(asked, cached_units(paths, run_unit, settings, asked, engine), strict=True)


def stack(found: list[tuple[Unit, Arrays]]) -> dict[str, Arrays]:
    """Arrays of every sweep with the seed as leading axis."""
    return {
        sweep: {
            name: np.stack([arrays[name] for unit, arrays in found if unit.sweep == sweep])
            for name in next(arrays for unit, arrays in found if unit.sweep == sweep)
        }
        for sweep in SWEEPS
    }


# What the sweeps say


def findings(sweeps: Mapping[str, Arrays], settings: Settings, seed: int) -> dict[str, Any]:
    """All numbers of the report, from the kept arrays alone."""
    angles = np.array(settings.all_angles())
    final = {sweep: arrays["accuracy"][:, -1].astype(float) for sweep, arrays in sweeps.items()}
    results: dict[str, Any] = {"angles": angles.tolist(), "sweeps": {}}
    for sweep in SWEEPS:
        values = final[sweep]
        mean, low, high = mean_interval(values)
        best = int(mean.argmax())
        solved = mean >= SOLVED
        results["sweeps"][sweep] = {
            "mean": plain(mean),
            "low": plain(low),
            "high": plain(high),
            "sd": plain(values.std(0, ddof=1)),
            "least": plain(values.min(0)),
            "most": plain(values.max(0)),
            "positional": plain(sweeps[sweep]["scores"][..., 0].mean(0)),
            "symbolic": plain(sweeps[sweep]["scores"][..., 1].mean(0)),
            "best": {
                "angle": float(angles[best]),
                **{k: float(v[best]) for k, v in (("mean", mean), ("low", low), ("high", high))},
            },
            "best_of_any_model": float(values.max()),
            "solved_from": float(angles[solved].min()) if solved.any() else None,
            "solved_to": float(angles[solved].max()) if solved.any() else None,
            "solved_between_without_break": bool(solved.any() and solved[solved.argmax() :][: solved.sum()].all()),
        }
    results["planes"] = division(sweeps[TWO], angles)
    each = [crossing(angles, a, b) for a, b in zip(final["index"], final["retrieval"], strict=True)]
    together = crossing(angles, final["index"].mean(0), final["retrieval"].mean(0))
    results["crossing"] = {"of_means": together, "of_seeds": each}
    results["order_blind"] = {
        sweep: order_blind_accuracy(task, task.sample(20_000, seed))
        for sweep in (ONE, FEW)
        if isinstance(task := settings.task(sweep), PartialInductionTask)
    }
    results["shapes"] = {sweep: shape(sweeps[sweep]["place"].astype(float), final[sweep], angles) for sweep in SWEEPS[:2]}
    results["trajectories"] = trajectories(sweeps["index"], settings)
    results["claims"] = claims(results)
    return results


def division(two: Arrays, angles: NDArray[Any]) -> dict[str, Any]:
    """Scores of the still plane and of the turning one, each alone, at every angle; the spread over seeds at the best angle."""
    scores, best = two["plane_scores"], int(two["accuracy"][:, -1].mean(0).argmax())
    kinds = [
        (plane, at, kind, n)
        for at, plane in enumerate(("still", "turning"))
        for n, kind in enumerate(("positional", "symbolic"))
    ]
    return {
        "angle": float(angles[best]),
        "mean": {f"{plane} {kind}": plain(scores[:, :, at, n].mean(0)) for plane, at, kind, n in kinds},
        "at_best": {
            f"{plane} {kind}": plain(np.array([x.mean(), x.min(), x.max()]))
            for plane, at, kind, n in kinds
            if (x := scores[:, best, at, n]) is not None
        },
    }


def crossing(angles: NDArray[Any], rising: NDArray[Any], falling: NDArray[Any]) -> float | None:
    """The angle at which two curves meet, on a straight line over the logarithm of the angle; None if they do not, or often."""
    x, gap = np.log(angles[1:]), (rising - falling)[1:]
    at = np.flatnonzero((gap[:-1] < 0) & (gap[1:] >= 0))
    if len(at) != 1 or (np.diff(np.sign(gap)) < 0).any():
        return None
    i = int(at[0])
    return float(np.exp(x[i] - gap[i] * (x[i + 1] - x[i]) / (gap[i + 1] - gap[i])))


def shape(place: NDArray[Any], final: NDArray[Any], angles: NDArray[Any]) -> dict[str, Any]:
    """Accuracy by the answer's place at the angle halfway between failing and solved: bent which way, and is it chance?

    Every seed's accuracies get a parabola over places from -1 to 1; its square coefficient is positive for a U. The t-test is
    over seeds. The angle is chosen by overall accuracy alone, which says nothing of places.
    """
    mean = final.mean(0)
    halfway = int(np.abs(mean[1:] - (mean.min() + mean.max()) / 2).argmin()) + 1
    x = np.linspace(-1, 1, place.shape[-1])
    bends = np.polynomial.polynomial.polyfit(x, place.reshape(-1, len(x)).T, 2)[2].reshape(place.shape[:2])
    quarter = len(x) // 4
    ends = np.concatenate((place[:, halfway, :quarter], place[:, halfway, -quarter:]), -1).mean(-1)
    middle = place[:, halfway, quarter:-quarter].mean(-1)
    bent, apart = (stats.ttest_1samp(values, 0) for values in (bends[:, halfway], ends - middle))
    return {
        "angle": float(angles[halfway]),
        "by_place": plain(place.mean(0)),
        "ends": float(ends.mean()),
        "middle": float(middle.mean()),
        "ends_minus_middle_p": float(apart.pvalue),
        "bend": float(bends[:, halfway].mean()),
        "bend_p": float(bent.pvalue),
        "bend_by_angle": plain(bends.mean(0)),
    }


def trajectories(index: Arrays, settings: Settings) -> dict[str, Any]:
    """Directions of the Index model's keys and queries over training, at the angle nearest to a full turn over all places.

    keys_alike    length of the mean of the letters' keys, each made a unit vector: 1 if all have one direction
    queries_aim   the same for the queries, each turned on by as much as its place asks for: 1 if they encode their places
    """
    angles = np.array(settings.all_angles())
    at = int(np.abs(angles - 2 * math.pi / settings.items).argmin())
    query, key = ((x := index[name][:, :, at].astype(float))[..., 0] + 1j * x[..., 1] for name in ("queries", "keys"))
    away = np.exp(1j * angles[at] * (settings.items - np.arange(settings.items)))
    alike, aim = (np.abs((x / np.abs(x)).mean(-1)) for x in (key, query * away))
    return {
        "angle": float(angles[at]),
        "steps": index["steps"][0].tolist(),
        "keys_alike": {"mean": plain(alike.mean(0)), "least": plain(alike.min(0)), "most": plain(alike.max(0))},
        "queries_aim": {"mean": plain(aim.mean(0)), "least": plain(aim.min(0)), "most": plain(aim.max(0))},
        "queries": plain(index["queries"][0, :, at]),
        "keys": plain(index["keys"][0, :, at]),
    }


def claims(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What paper A says, beside what came out."""
    found, shapes, paths = results["sweeps"], results["shapes"], results["trajectories"]
    index, retrieval, one, two, few = (found[sweep] for sweep in SWEEPS)
    cross = results["crossing"]["of_means"]

    def ranges(row: Mapping[str, Any]) -> str:
        return "never" if row["solved_from"] is None else f"{row['solved_from']:.3g} to {row['solved_to']:.3g}"

    def say(claim: str, ours: str, holds: bool) -> dict[str, Any]:
        return {"claim": claim, "ours": ours, "holds": bool(holds)}

    fast, slow = results["angles"][-1], results["angles"][0]
    keys, aims = paths["keys_alike"]["mean"], paths["queries_aim"]["mean"]
    return [
        say(
            "Index is solved with fast planes only",
            ranges(index),
            index["solved_to"] == fast
            and index["solved_between_without_break"]
            and index["solved_from"] > results["angles"][1],
        ),
        say(
            "Retrieval is solved with slow planes only",
            ranges(retrieval),
            retrieval["solved_from"] == slow and retrieval["solved_between_without_break"] and retrieval["solved_to"] < fast,
        ),
        say("their accuracies cross", "no single crossing" if cross is None else f"at {cross:.3g}", cross is not None),
        say(
            "partial induction is not solved with one plane",
            "best {mean:.3f} [{low:.3f}, {high:.3f}] at {angle:.3g}".format(**one["best"]),
            one["solved_from"] is None,
        ),
        say("nor with few symbols, as no single angle does it (corollary 1)", ranges(few), few["solved_from"] is None),
        say(
            "partial induction is solved with a still plane and a moderate one; too fast fails",
            ranges(two),
            two["solved_from"] is not None and two["solved_to"] < fast,
        ),
        say(
            "Index with a plane too slow: a U over places",
            f"ends {shapes['index']['ends']:.2f}, middle {shapes['index']['middle']:.2f}, p {shapes['index']['bend_p']:.0e}",
            shapes["index"]["bend"] > 0 and shapes["index"]["bend_p"] < 0.01,
        ),
        say(
            "Retrieval with a plane too fast: an inverted U",
            f"ends {shapes['retrieval']['ends']:.2f}, middle {shapes['retrieval']['middle']:.2f}, "
            f"p {shapes['retrieval']['bend_p']:.0e}",
            shapes["retrieval"]["bend"] < 0 and shapes["retrieval"]["bend_p"] < 0.01,
        ),
        say(
            "Index: keys turn to one direction", f"{keys[0]:.2f} to {keys[-1]:.3f} of 1", keys[-1] > 0.95 and keys[-1] > keys[0]
        ),
        say(
            "Index: query angles come to encode places",
            f"{aims[0]:.2f} to {aims[-1]:.3f} of 1",
            aims[-1] > 0.95 and aims[-1] > aims[0],
        ),
    ]


# Built heads


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


def built(settings: Settings, seed: int) -> dict[str, Any]:
    """Every small input, scores, what pure heads cannot do, and the weights of theorem 7."""
    return {
        "every_input": every_input(),
        "scores": built_scores(settings, seed),
        "limits": limits(seed),
        "leads": leads(settings),
        "shapes": weight_shapes(settings, seed),
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
def built_scores(settings: Settings, seed: int, inputs: int = 1000) -> dict[str, Any]:
    """The engine's scores of the built heads at full size, and plane by plane; accuracy beside them."""
    n, attributes = settings.items, settings.attributes
    rows = {}
    for name, model, task in (
        ("H_POS", h_pos(n, settings.letters, 2 * math.pi / n), settings.task("index")),
        ("H_SYM", h_sym(n, settings.symbols, attributes), settings.task("retrieval")),
        ("H_MIX", h_mix(n, settings.repeated, attributes), settings.task(ONE)),
        ("one plane", h_single(n, settings.repeated, attributes), settings.task(ONE)),
    ):
        samples = task.sample(inputs, seed)
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
    """How far the first answer stands above the second at the last position."""
    put_out = head(torch.from_numpy(tokens))[:, -1]
    lead: np.ndarray = (put_out[:, 0] - put_out[:, 1]).numpy()
    return lead


def bilinear_wrong(task: PairTask) -> tuple[int, int]:
    """All inputs of Retrieval, and those missed by uniform attention with a read-out that multiplies with the query.

    Attention, positional as can be, hands over the share of every pair; the read-out keeps those of the symbol asked for. Hence
    theorem 4 needs a read-out that is linear.
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
    """How far the right pair of partial induction stands out in one plane and in two, per length of query times length of key.

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


def weight_shapes(settings: Settings, seed: int, inputs: int = 60_000) -> dict[str, Any]:
    """Theorem 7: the weight of the right key by place, by formula and as measured in the module; H_POS slow, H_SYM fast."""
    n, symbols, attributes = settings.items, settings.symbols + settings.symbols % 2, settings.attributes
    slow, fast = 0.5 * math.pi / n, 0.8 * 2 * math.pi / symbols / (n - 1)
    # Temperatures at which weights are well between 0 and 1: opposite symbols are told apart more easily than neighbours.
    betas = {"H_POS": 20.0, "H_SYM": 2.0, "H_SYM, random inputs": 40.0}
    pos = h_pos(n, settings.letters, slow, betas["H_POS"])
    easy, hard = (h_sym(n, symbols, attributes, fast, betas[name]) for name in ("H_SYM", "H_SYM, random inputs"))
    index, retrieval = settings.task("index"), RetrievalTask(items=n, symbols=symbols, attributes=attributes)
    opposite = np.full(
        (n, n + 1), symbols // 2 * attributes
    )  # all pairs of the opposite symbol but one, at every place in turn
    opposite[np.arange(n), np.arange(n)], opposite[:, -1] = 0, symbols * attributes
    asked, random = index.sample(inputs, seed), retrieval.sample(inputs, seed)
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


# Speed


def speed(settings: Settings, seed: int, steps: int = 60) -> dict[str, Any]:
    """How much faster the models of a sweep are trained together than one after the other, over a few steps of each."""
    how = replace(settings.training, steps=steps, checks=1)
    rows: dict[str, Any] = {}
    for sweep in SWEEPS[:3]:
        planes = settings.planes(sweep)
        together = _seconds(settings.task(sweep), planes, how, seed)
        alone = sum(_seconds(settings.task(sweep), [angles], how, seed) for angles in planes)
        rows[sweep] = {"models": len(planes), "seconds_per_step": together, "one_by_one_over_together": alone / together}
    return rows


def _seconds(task: CanonicalTask, planes: list[list[float]], how: Training, seed: int) -> float:
    """Of a step: data and tests left out."""
    moments: list[float] = []
    train(task, planes, how, seed, on_step=lambda step, models: moments.append(time.perf_counter()))
    return (moments[-2] - moments[0]) / (len(moments) - 2)
