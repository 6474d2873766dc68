"""Claims on canonical tasks, built heads and frequencies as a knob (paper A, section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from ...runs import Run
from ...studies.claims import Found, Runs, claims_in, every, graded, span, tiny

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
    PAIRS + " Holds for softmax too if the read-out is linear; one that multiplies with the query escapes.",
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
    said = f"{wrong} wrong of {inputs:,} small inputs, accuracy {scores['accuracy']:.3f} at full size; positional "
    said += f"{scores['positional']:.3f}, symbolic {scores['symbolic']:.3f}"
    right = bool(cases) and wrong == 0 and scores["accuracy"] == 1
    pure = abs(scores["positional"] - positional) <= PURE and abs(scores["symbolic"] - symbolic) <= PURE
    return Found(said, graded(right and pure, right), run)


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
    said = (
        f"{wrong} wrong of {inputs:,} small inputs; still plane symbolic {planes[0]['symbolic']:.3f}, turning plane positional "
    )
    return Found(said + f"{planes[1]['positional']:.3f}", graded(right and kinds, right), run)


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
    "A head of one small angle, built, on every small input, and trained ones with few symbols; reproduced if both fail, "
    "partly if one does.",
)
def corollary_single(runs: Runs) -> Found:
    """No single angle does partial induction."""
    run = runs.one("canonical")
    trained, built = run.results["trained"], run.results["built"]
    cases = [row for row in built["every_input"]["cases"] if row["head"] == "one plane"]
    right = bool(cases) and not any(row["wrong"] for row in cases) and built["scores"]["one plane, whole"]["accuracy"] == 1
    few = _solved(trained, "partial induction, few symbols")
    said = f"built: {sum(row['wrong'] for row in cases)} wrong of {sum(row['inputs'] for row in cases):,} inputs; trained with "
    said += f"{run.config['few']} symbols: solved at {_angles(trained, few)}"
    return Found(said, graded(not right and not any(few), not right or not any(few)), run, "angles")


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
    said = ", ".join(f"{name} {_shape_said(shapes[name]['measured'])}" for name in ("H_POS", "H_SYM"))
    return Found(f"{said}; formula within {tiny(off)}", graded(all(ends) and off <= 1e-9, any(ends)), run, "places")


def _u(values: list[float], sign: int) -> bool:
    """Falls up to the middle and rises after it (sign 1), or the other way round."""
    steps = [sign * (b - a) for a, b in pairwise(values)]
    half = len(steps) // 2
    return all(step < 0 for step in steps[:half]) and all(step > 0 for step in steps[-half:])


def _shape_said(values: list[float]) -> str:
    return f"{values[0]:.3f}, {values[len(values) // 2]:.3f}, {values[-1]:.3f} (first, middle, last)"


# Figures 2 and 3


@claim(
    "A-2A-index",
    "A",
    "section 5, figure 2A",
    "fast planes only",
    SWEEP + f"Solved ({SOLVED}) at the fastest angle and on without a break, and not at the slower half of angles.",
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
    SWEEP + f"Solved ({SOLVED}) at angle 0 and on without a break, and not at the fastest quarter of angles.",
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
    at = trained["crossing"]["of_means"]
    said = f"at {at:.3g}" if at is not None else "nowhere"
    return Found(
        f"they cross {said}; both solved at {_angles(trained, both)}", graded(once and not any(both), once), run, "angles"
    )


@claim(
    "A-2B-one-plane",
    "A",
    "section 5, figure 2B",
    "fails",
    SWEEP + "No angle solves it with 12 symbols; partly if it does with fewer. With more steps it rises on (LOG.md).",
)
def one_plane(runs: Runs) -> Found:
    """Partial induction is not learned with one plane."""
    run, trained = _trained(runs)
    many, few = (any(_solved(trained, name)) for name in ("partial induction", "partial induction, few symbols"))
    best = trained["sweeps"]["partial induction"]["mean"]
    said = f"best {max(best):.3f} with {run.config['repeated']} symbols; with {run.config['few']}: "
    said += _angles(trained, _solved(trained, "partial induction, few symbols"))
    return Found(said, graded(not many and not few, not many), run, "angles")


@claim(
    "A-2B-two-planes",
    "A",
    "section 5, figure 2B",
    "succeeds",
    SWEEP + f"Some angle with a still plane beside it solves it ({SOLVED}).",
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
    said = f"{means[-1]:.2f} at {trained['angles'][-1]:.3g} against {max(means):.3f} at best"
    return Found(said, graded(means[-1] <= 0.8 and max(means) >= SOLVED, means[-1] < max(means) - 0.05), run, "angles")


def _shape(runs: Runs, sweep: str, sign: int) -> Found:
    run, trained = _trained(runs)
    found = trained["shapes"][sweep]
    said = f"ends {found['ends']:.2f}, middle {found['middle']:.2f}, bend {found['bend']:+.2f}, p = {found['bend_p']:.0e}"
    bent = sign * found["bend"] > 0 and sign * (found["ends"] - found["middle"]) > 0
    return Found(said, graded(bent and found["bend_p"] < 0.05, bent), run, "places")


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
    said = f"mean direction from {path['mean'][0]:.2f} to {path['mean'][-1]:.3f} (worst {path['least'][-1]:.3f})"
    return Found(
        said, graded(path["least"][-1] >= 0.95 and path["mean"][0] < 0.7, path["mean"][-1] >= 0.95), run, "trajectories"
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


def _accuracy(run: Run, change: str) -> float:
    value: float = run.results["changes"][change]["measures"]["accuracy"]
    return value


def _random(run: Run, change: str) -> Mapping[str, float]:
    found: Mapping[str, float] = run.results["changes"][change]["random"]["accuracy"]
    return found


@claim(
    "A-5-knob-fast",
    "A",
    "section 5",
    "performance follows",
    "Number model without its fast third: below any random third by 0.2, while the letter model keeps 0.95; partly if "
    "only the first.",
)
def knob_fast(runs: Runs) -> Found:
    """Frequency as a knob: without fast planes a trained model loses the positional task."""
    number, letter = runs.controlled("number"), runs.controlled("letter")
    change = "fast third dropped"
    ours, others, kept = _accuracy(number, change), _random(number, change), _accuracy(letter, change)
    falls = ours <= others["least"] - 0.2
    said = f"number {ours:.2f} (random thirds {others['least']:.2f} to {others['most']:.2f}), letter {kept:.2f}"
    return Found(said, graded(falls and kept >= 0.95, falls), number, "effects")


@claim(
    "A-5-knob-slow",
    "A",
    "section 5",
    "performance follows",
    "Letter model without its slow third: below random thirds by 0.2. Partly if slow quarters serve it better than fast "
    "ones, when all else is "
    "dropped: symbolic heads share their work among most planes.",
)
def knob_slow(runs: Runs) -> Found:
    """Without slow planes a trained model loses the symbolic task."""
    run = runs.controlled("letter")
    ours, others = _accuracy(run, "slow third dropped"), _random(run, "slow third dropped")
    slow, fast = _accuracy(run, "only slowest 25% kept"), _accuracy(run, "only fastest 25% kept")
    said = f"without the slow third {ours:.2f}; slowest quarter alone {slow:.2f}, fastest quarter alone {fast:.2f}"
    return Found(said, graded(ours <= others["least"] - 0.2, slow >= fast + 0.2), run, "effects")


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
    said = "; ".join(f"{name} {a:.2f} at angle 0, {b:.2f} at {trained['angles'][-1]:.3g}" for name, (a, b) in ends.items())
    return Found(said, every(holds), run, "angles")


@claim(
    "A-5-p-rope",
    "A",
    "section 5; Barbero et al. 2024",
    "little or nothing is lost",
    "The slowest half stopped in the number, the letter and a language model: 0.99 of accuracy, perplexity up by at most "
    "a tenth; all three, "
    "partly if some.",
)
def p_rope(runs: Runs) -> Found:
    """p-RoPE: the slowest planes need not turn."""
    change = "slowest 50% stopped"
    tasks = {task: _accuracy(runs.controlled(task), change) for task in ("number", "letter")}
    run = runs.controlled("")
    before, after = (run.results["changes"][name]["measures"]["perplexity"] for name in ("nothing", change))
    said = "".join(f"{task} {value:.3f}, " for task, value in tasks.items())
    said += f"{run.config['model']}: perplexity {before:.1f} to {after:.1f}"
    return Found(said, every([*(value >= 0.99 for value in tasks.values()), after <= 1.1 * before]), run, "effects")


@claim(
    "A-5-knob-real",
    "A",
    "section 5",
    "performance follows",
    "Thirds stopped: binding (log probability, 8 pairs) falls below all random thirds without turning fast planes, and by "
    "less than 0.1 without "
    "turning slow ones. Thirds dropped: binding falls below random thirds without slow planes only. Both, partly if one.",
)
def knob_real(runs: Runs) -> Found:
    """The knob works on real models too: fast planes carry places, slow ones things."""
    run = runs.controlled("")
    changes, measure = run.results["changes"], "8 pairs: log probability"

    def binds(change: str) -> float:
        value: float = changes[change]["measures"][measure]
        return value

    def below(change: str) -> bool:
        return bool(binds(change) < changes[change]["random"][measure]["least"])

    stopped = below("fast third stopped") and binds("slow third stopped") >= binds("nothing") - 0.1
    dropped = below("slow third dropped") and not below("fast third dropped")
    names = ("nothing", "fast third stopped", "slow third stopped", "fast third dropped", "slow third dropped")
    said = f"{run.config['model']}: " + ", ".join(f"{name} {binds(name):.2f}" for name in names)
    return Found(said, every([stopped, dropped]), run, "effects")


@claim(
    "A-5-heads-follow",
    "A",
    "section 5",
    "behaviour follows frequency",
    "Heads of the number model that are positional (0.9 and more): all symbolic by 0.9 without the fast third, partly if "
    "some are.",
)
def heads_follow(runs: Runs) -> Found:
    """Heads follow their planes: the same weights turn symbolic without fast planes."""
    run = runs.controlled("number")
    before, after = (run.results["changes"][name] for name in ("nothing", "fast third dropped"))
    heads = [n for n, value in enumerate(before["positional"]) if value is not None and value >= 0.9]
    now = [after["symbolic"][n] for n in heads]
    said = f"{len(heads)} heads, symbolic {span(now) if now else '-'} after"
    return Found(said, every([value >= 0.9 for value in now] or [False]), run, "scores")
