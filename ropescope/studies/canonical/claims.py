"""Claims on canonical tasks and built heads (paper A, section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from ...runs import Run
from ..claims import Found, Runs, claims_in, every, graded, small_p, tiny

claim = claims_in("Canonical tasks and frequency control")

SOLVED = 0.99
PURE = 1e-3
"""How far scores of built heads may be from 0 and 1."""
SWEEP = "One-head models trained at each angle, mean over seeds. "


def _trained(runs: Runs) -> tuple[Run, Mapping[str, Any]]:
    run = runs.one("canonical")
    return run, run.results["trained"]


def _built(runs: Runs) -> tuple[Run, Mapping[str, Any]]:
    run = runs.one("canonical")
    return run, run.results["built"]


def _solved(trained: Mapping[str, Any], sweep: str) -> list[bool]:
    return [mean >= SOLVED for mean in trained["sweeps"][sweep]["mean"]]


def _angles(trained: Mapping[str, Any], where: list[bool]) -> str:
    """The range of angles at which something holds."""
    found = [angle for angle, holds in zip(trained["angles"], where, strict=True) if holds]
    return f"{found[0]:.3g} to {found[-1]:.3g}" if found else "no angle"


def _one_run(where: list[bool]) -> bool:
    """Whether the angles at which something holds are neighbours."""
    return sum(a != b for a, b in pairwise(where)) <= 1


# Theorems


def _limit(runs: Runs, key: str) -> Found:
    run, built = _built(runs)
    right, heads = built["limits"]["right_on_both"][key], built["limits"]["heads_of_each_kind"]
    return Found(f"{right} of {heads} random heads right on both inputs", graded(right == 0), run)


PAIRS = "Random heads on the two inputs that the proof gives, with different answers; none right on both."


@claim("A-T2", "A", "theorem 2", "impossible", PAIRS)
def theorem_2(runs: Runs) -> Found:
    """No symbolic head does Index."""
    return _limit(runs, "symbolic on Index")


@claim(
    "A-T4",
    "A",
    "theorem 4",
    "impossible",
    PAIRS + " Holds for softmax too if the read-out is linear; one that multiplies with the query is an exception.",
)
def theorem_4(runs: Runs) -> Found:
    """No positional head does Retrieval."""
    return _limit(runs, "positional on Retrieval")


def _head(runs: Runs, name: str, positional: float, symbolic: float) -> Found:
    """A built head: right everywhere, and its scores."""
    run, built = _built(runs)
    cases = [row for row in built["every_input"]["cases"] if row["head"] == name]
    wrong, inputs = (sum(row[key] for row in cases) for key in ("wrong", "inputs"))
    scores = built["scores"][f"{name}, whole"]
    text = f"{wrong} wrong of {inputs:,} small inputs, accuracy {scores['accuracy']:.3f} at full size; positional "
    text += f"{scores['positional']:.3f}, symbolic {scores['symbolic']:.3f}"
    right = bool(cases) and wrong == 0 and scores["accuracy"] == 1
    pure = abs(scores["positional"] - positional) <= PURE and abs(scores["symbolic"] - symbolic) <= PURE
    return Found(text, graded(right and pure, right), run)


BUILT = f"Right on every input of small sizes and at full size, and scores of a pure head within {PURE:g}."


@claim("A-T3", "A", "theorem 3", "exists", BUILT)
def theorem_3(runs: Runs) -> Found:
    """H_POS, one angle and equal keys, does Index and is positional."""
    return _head(runs, "H_POS", 1, 0)


@claim("A-T5", "A", "theorem 5", "exists", BUILT)
def theorem_5(runs: Runs) -> Found:
    """H_SYM, without rotation, does Retrieval and is symbolic."""
    return _head(runs, "H_SYM", 0, 1)


@claim(
    "A-T6",
    "A",
    "theorem 6",
    "exists",
    "Right on every input of small sizes and at full size; the still plane purely symbolic, the turning one purely positional.",
)
def theorem_6(runs: Runs) -> Found:
    """H_MIX, with one plane of angle 0 to match and one of moderate angle for recency, does partial induction."""
    run, built = _built(runs)
    cases = [row for row in built["every_input"]["cases"] if row["head"] == "H_MIX"]
    wrong, inputs = (sum(row[key] for row in cases) for key in ("wrong", "inputs"))
    planes = [row for name, row in built["scores"].items() if name.startswith("H_MIX, plane")]
    right = bool(cases) and wrong == 0 and built["scores"]["H_MIX, whole"]["accuracy"] == 1
    kinds = planes[0]["symbolic"] >= 1 - PURE and planes[1]["positional"] >= 1 - PURE
    text = (
        f"{wrong} wrong of {inputs:,} small inputs; still plane symbolic {planes[0]['symbolic']:.3f}, turning plane positional "
    )
    return Found(text + f"{planes[1]['positional']:.3f}", graded(right and kinds, right), run)


@claim(
    "A-C1-symbolic",
    "A",
    "corollary 1",
    "impossible",
    PAIRS,
)
def corollary_symbolic(runs: Runs) -> Found:
    """No symbolic head does partial induction."""
    return _limit(runs, "symbolic on partial induction")


@claim(
    "A-C1-positional",
    "A",
    "corollary 1",
    "impossible",
    PAIRS + " Inputs without repeats are inputs of Retrieval, so the pair of theorem 4 serves.",
)
def corollary_positional(runs: Runs) -> Found:
    """No positional head does partial induction."""
    return _limit(runs, "positional on Retrieval")


@claim(
    "A-C1-single-angle",
    "A",
    "corollary 1",
    "impossible",
    "Random pure heads of one angle, still or turning, on two inputs with different answers: none right on both. And the "
    f"one-plane head that does it is not pure: some input's score is more than {PURE:g} from 1. Partly if the first holds. "
    "We know the corollary from notes, which tie it to pure heads; what one angle learns is A-2B-one-plane.",
)
def corollary_single(runs: Runs) -> Found:
    """No pure head of a single angle does partial induction."""
    run, built = _built(runs)
    right = sum(built["limits"]["right_on_both"][key] for key in ("symbolic on partial induction", "positional on Retrieval"))
    scores = built["scores"]["one plane, whole"]
    symbolic, positional = (scores[f"{kind}_range"][0] for kind in ("symbolic", "positional"))
    pure = max(symbolic, positional) >= 1 - PURE
    text = f"{right} of {2 * built['limits']['heads_of_each_kind']} random pure heads right on both inputs; the one-plane head "
    text += f"that does it has symbolic scores from {symbolic:.2f} to {scores['symbolic_range'][1]:.2f}"
    return Found(text, graded(right == 0 and not pure, right == 0), run)


@claim(
    "ours-4-single-angle",
    "ours",
    "beside corollary 1",
    "0 wrong; solved with few symbols",
    f"Built: right on every input of small sizes and at full size. Trained with few symbols: some angle solves it ({SOLVED}). "
    "Both; partly if one.",
)
def single_angle(runs: Runs) -> Found:
    """A head of a single small angle, symbolic but not purely so, does partial induction."""
    run = runs.one("canonical")
    trained, built = run.results["trained"], run.results["built"]
    cases = [row for row in built["every_input"]["cases"] if row["head"] == "one plane"]
    right = bool(cases) and not any(row["wrong"] for row in cases) and built["scores"]["one plane, whole"]["accuracy"] == 1
    few = _solved(trained, "partial induction, few symbols")
    text = f"built: {sum(row['wrong'] for row in cases)} wrong of {sum(row['inputs'] for row in cases):,} inputs; trained with "
    text += f"{run.config['few']} symbols: solved at {_angles(trained, few)}"
    return Found(text, every([right, any(few)]), run, "angles")


@claim(
    "A-T7",
    "A",
    "theorem 7",
    "U and inverted U",
    "Weights of built heads fall then rise, and rise then fall, strictly; formula and head within 1e-9.",
)
def theorem_7(runs: Runs) -> Found:
    """The largest weight of H_POS is U-shaped in the place asked for, that of a simplified H_SYM an inverted U."""
    run, built = _built(runs)
    shapes = built["shapes"]
    ends = [_u(shapes["H_POS"]["measured"], 1), _u(shapes["H_SYM"]["measured"], -1)]
    off = max(shapes[name]["largest_difference"] for name in ("H_POS", "H_SYM"))
    text = ", ".join(f"{name} {_shape_text(shapes[name]['measured'])}" for name in ("H_POS", "H_SYM"))
    return Found(f"{text}; formula within {tiny(off)}", graded(all(ends) and off <= 1e-9, any(ends)), run, "places")


def _u(values: list[float], sign: int) -> bool:
    """Falls up to the middle and rises after it (sign 1), or the other way round."""
    steps = [sign * (b - a) for a, b in pairwise(values)]
    half = len(steps) // 2
    return all(step < 0 for step in steps[:half]) and all(step > 0 for step in steps[-half:])


def _shape_text(values: list[float]) -> str:
    return f"{values[0]:.3f}, {values[len(values) // 2]:.3f}, {values[-1]:.3f} (first, middle, last)"


# Figures 2 and 3


@claim(
    "A-2A-index",
    "A",
    "section 5, figure 2A",
    "fast planes only",
    SWEEP + f"Solved ({SOLVED}) from the fastest angle down without a gap, and not at the slower half of angles.",
)
def index_fast(runs: Runs) -> Found:
    """Index is learned with fast planes only."""
    run, trained = _trained(runs)
    where = _solved(trained, "index")
    good = _one_run(where) and where[-1] and not any(where[: len(where) // 2])
    return Found(f"solved at {_angles(trained, where)}", graded(good, any(where) and not where[0]), run, "angles")


@claim(
    "A-2A-retrieval",
    "A",
    "section 5, figure 2A",
    "slow planes only",
    SWEEP + f"Solved ({SOLVED}) from angle 0 up without a gap, and not at the fastest quarter of angles.",
)
def retrieval_slow(runs: Runs) -> Found:
    """Retrieval is learned with slow planes only."""
    run, trained = _trained(runs)
    where = _solved(trained, "retrieval")
    good = _one_run(where) and where[0] and not any(where[-len(where) // 4 :])
    return Found(f"solved at {_angles(trained, where)}", graded(good, any(where) and not where[-1]), run, "angles")


@claim(
    "A-2A-crossing",
    "A",
    "section 5, figure 2A",
    "they cross",
    SWEEP + "One crossing, and no angle at which both are solved.",
)
def crossing(runs: Runs) -> Found:
    """Tension: the accuracy curves of Index and Retrieval cross, and no single plane does both."""
    run, trained = _trained(runs)
    index, retrieval = (trained["sweeps"][name]["mean"] for name in ("index", "retrieval"))
    once = (
        _one_run([a > b for a, b in zip(index, retrieval, strict=True)])
        and index[0] < retrieval[0]
        and index[-1] > retrieval[-1]
    )
    both = [a and b for a, b in zip(_solved(trained, "index"), _solved(trained, "retrieval"), strict=True)]
    at = trained["crossing"].get("of_means")  # None if the curves do not cross once
    text = f"at {at:.3g}" if at is not None else "nowhere"
    return Found(
        f"they cross {text}; both solved at {_angles(trained, both)}", graded(once and not any(both), once), run, "angles"
    )


@claim(
    "A-2B-one-plane",
    "A",
    "section 5, figure 2B",
    "fails",
    SWEEP + "No angle solves it with 12 symbols; partly if it does with fewer. With more steps accuracy still rises (LOG.md).",
)
def one_plane(runs: Runs) -> Found:
    """Partial induction is not learned with one plane."""
    run, trained = _trained(runs)
    many, few = (any(_solved(trained, name)) for name in ("partial induction", "partial induction, few symbols"))
    best = trained["sweeps"]["partial induction"]["mean"]
    text = f"best {max(best):.3f} with {run.config['repeated']} symbols; with {run.config['few']}: "
    text += _angles(trained, _solved(trained, "partial induction, few symbols"))
    return Found(text, graded(not many and not few, not many), run, "angles")


@claim(
    "A-2B-two-planes",
    "A",
    "section 5, figure 2B",
    "succeeds",
    SWEEP + f"Some angle together with a still plane solves it ({SOLVED}).",
)
def two_planes(runs: Runs) -> Found:
    """It is learned with two planes, one of angle 0 and one of a moderate angle."""
    run, trained = _trained(runs)
    where = _solved(trained, "partial induction, with a still plane")
    return Found(f"solved at {_angles(trained, where)} beside 0", graded(any(where)), run, "angles")


@claim(
    "A-2B-too-fast",
    "A",
    "section 5, figure 2B",
    "fails",
    SWEEP + "Accuracy at the fastest angle at most 0.8 though moderate ones solve it.",
)
def too_fast(runs: Runs) -> Found:
    """With a second plane that is too fast it fails."""
    run, trained = _trained(runs)
    means = trained["sweeps"]["partial induction, with a still plane"]["mean"]
    text = f"{means[-1]:.2f} at {trained['angles'][-1]:.3g} against {max(means):.3f} at best"
    return Found(text, graded(means[-1] <= 0.8 and max(means) >= SOLVED, means[-1] < max(means) - 0.05), run, "angles")


def _shape(runs: Runs, sweep: str, sign: int) -> Found:
    run, trained = _trained(runs)
    found = trained["shapes"][sweep]
    text = f"ends {found['ends']:.2f}, middle {found['middle']:.2f}, bend {found['bend']:+.2f}, {small_p(found['bend_p'])}"
    bent = sign * found["bend"] > 0 and sign * (found["ends"] - found["middle"]) > 0
    return Found(text, graded(bent and found["bend_p"] < 0.05, bent), run, "places")


BENT = "Half-way between failing and solved: ends against middle, and the square term of a parabola over places, p < 0.05."


@claim(
    "A-3A-index",
    "A",
    "section 5, figure 3A",
    "U",
    BENT,
)
def index_shape(runs: Runs) -> Found:
    """Index with a plane too slow is U-shaped over places: the ends are right, the middle is lost."""
    return _shape(runs, "index", 1)


@claim(
    "A-3A-retrieval",
    "A",
    "section 5, figure 3A",
    "inverted U",
    BENT,
)
def retrieval_shape(runs: Runs) -> Found:
    """Retrieval with a plane not slow enough is an inverted U over places."""
    return _shape(runs, "retrieval", -1)


def _path(runs: Runs, key: str) -> Found:
    run, trained = _trained(runs)
    path = trained["trajectories"][key]
    text = f"mean direction from {path['mean'][0]:.2f} to {path['mean'][-1]:.3f} (worst {path['least'][-1]:.3f})"
    return Found(
        text, graded(path["least"][-1] >= 0.95 and path["mean"][0] < 0.7, path["mean"][-1] >= 0.95), run, "trajectories"
    )


DIRECTION = "Length of the mean of directions; 0.95 in every seed at the end, below 0.7 at the start."


@claim(
    "A-3B-keys",
    "A",
    "section 5, figure 3B",
    "one direction",
    DIRECTION,
)
def keys(runs: Runs) -> Found:
    """Over training, key vectors of the Index model converge to one direction."""
    return _path(runs, "keys_alike")


@claim(
    "A-3B-queries",
    "A",
    "section 5, figure 3B",
    "angles encode positions",
    "As for keys, each query turned back by the angle that its place demands.",
)
def queries(runs: Runs) -> Found:
    """Query angles spread to encode the position asked for."""
    return _path(runs, "queries_aim")


# Frequency as a knob


@claim(
    "A-5-knob-training",
    "A",
    "section 5",
    "performance follows",
    SWEEP + "Slowest and fastest angle: the right task solved, the other at most 0.5.",
)
def knob_training(runs: Runs) -> Found:
    """Planes chosen for training decide which task is learned."""
    run, trained = _trained(runs)
    ends = {name: (trained["sweeps"][name]["mean"][0], trained["sweeps"][name]["mean"][-1]) for name in ("index", "retrieval")}
    slow, fast = ((ends["retrieval"][0], ends["index"][0]), (ends["index"][1], ends["retrieval"][1]))
    holds = [right >= SOLVED and wrong <= 0.5 for right, wrong in (slow, fast)]
    text = "; ".join(f"{name} {a:.2f} at angle 0, {b:.2f} at {trained['angles'][-1]:.3g}" for name, (a, b) in ends.items())
    return Found(text, every(holds), run, "angles")
