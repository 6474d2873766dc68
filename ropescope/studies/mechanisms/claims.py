"""Claims on what heads of trained number and letter models do, and in which planes (paper B, sections 3.1 to 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...runs import Run
from ..by_recipe import with_earlier
from ..claims import Found, NotRunError, Runs, claims_in, every, graded, listed, span

claim = with_earlier(claims_in("The number and letter tasks, and how they are learned"), "mechanisms")

TABLE_1 = {
    "number": [1, 2, 2, 2, 10, 37, 38, 38, 38, 38, 38, 38],
    "letter": [18, 32, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40],
}
"""Paper B's table 1: mean plane per layer. Where it gives a range for several layers (37 to 39, 37 to 42), its middle."""


@claim(
    "B-2-heads-needed",
    "B",
    "section 3.1",
    "n hops, n heads",
    "With n positional heads removed (first or last ones) long paths must fail and short ones stay. Reproduced if the "
    "loss starts "
    "with the longest paths, one hop count for each head; partly if removing one head costs any hop count a tenth.",
)
def heads_needed(runs: Runs) -> Found:
    """An n-hop input needs n positional heads."""
    run = runs.of_task("mechanisms", "number")
    found = run.results["number"]
    changes, heads = found["changes"], found["layers"]["positional"]
    single = min(value for n in heads for value in changes[f"L{n} out"])
    hops = len(changes["none"])
    groups = [(n, f"{side} {n} positional out") for side in ("first", "last") for n in range(2, len(heads) + 1)]
    several = [(n, changes[name]) for n, name in groups if name in changes]
    # As many hops as heads are left must survive, longer paths must fail.
    follows = all(
        (accuracy >= 0.9) == (hop <= len(heads) - n) for n, row in several for hop, accuracy in enumerate(row, start=1)
    )
    text = f"without any one of {listed(heads)} {single:.2f} or more at all {hops} hop counts; without the last two "
    text += ", ".join(f"{value:.2f}" for value in changes["last 2 positional out"])
    return Found(text, graded(follows and single < 0.9, single < 0.9), run, "number-functions")


# Frequencies

WEIGHTS = {"variance": "mean_plane_by_spread", "largest logit": "mean_plane_by_largest"}
TABLE = "Mean plane id weighted by variance of logits and by largest logit (the paper's wording). "


def _planes(runs: Runs, task: str, layers: Sequence[int], paper: tuple[float, float], near: float) -> Found:
    """Both ways to weigh planes against the ids of the paper for these layers: one for each, or a range for all."""
    run = runs.of_task("mechanisms", task)
    planes = run.results[task]["planes"]
    if len(planes[WEIGHTS["variance"]]) != 12:
        raise NotRunError("the model is smaller than paper B's (12 layers)")
    good, texts = [], []
    for name, key in WEIGHTS.items():
        ours = [planes[key][n] for n in layers]
        good += [paper[0] - near <= value <= paper[1] + near for value in ours]
        texts.append(f"{', '.join(f'{value:.1f}' for value in ours) if len(ours) < 5 else span(ours, '.1f')} by {name}")
    half = len(layers)
    whole = [all(good[:half]), all(good[half:])]
    return Found("; ".join(texts), graded(all(whole), any(whole) or 2 * sum(good) > len(good)), run, f"{task}-planes")


def _table_1(task: str, layers: range) -> tuple[float, float]:
    ids = TABLE_1[task][layers.start : layers.stop]
    return min(ids), max(ids)


EARLY, LATE, LATE_LETTER = range(4), range(5, 12), range(2, 12)


@claim(
    "B-T1-number-early",
    "B",
    "table 1, figure 8",
    "ids 1, 2, 2, 2 for L0 to L3 (θ 1 to 0.87)",
    TABLE + "From 1 to 2, give or take one; both weightings, partly if one or most layers.",
)
def number_early(runs: Runs) -> Found:
    """Early heads of the number model use the fastest planes."""
    return _planes(runs, "number", EARLY, _table_1("number", EARLY), 1)


@claim(
    "B-T1-number-L4",
    "B",
    "table 1, figure 8",
    "id 10",
    TABLE + "Within 3 of 10.",
)
def number_fourth(runs: Runs) -> Found:
    """L4 of the number model lies between fast and slow planes."""
    return _planes(runs, "number", [4], _table_1("number", range(4, 5)), 3)


@claim(
    "B-T1-number-late",
    "B",
    "table 1, figure 8",
    "ids 37 to 39 for L5 to L11 (θ about 0.005)",
    TABLE + "Within 4 of that range; partly if by one weighting or in most layers.",
)
def number_late(runs: Runs) -> Found:
    """Symbolic heads of the number model use slow planes."""
    return _planes(runs, "number", LATE, (37, 39), 4)


@claim("B-T1-letter-L0", "B", "table 1, figure 8", "id 18", TABLE + "Within 4.")
def letter_zeroth(runs: Runs) -> Found:
    """L0 of the letter model uses faster planes."""
    return _planes(runs, "letter", [0], _table_1("letter", range(1)), 4)


@claim("B-T1-letter-L1", "B", "table 1, figure 8", "id 32", TABLE + "Within 4.")
def letter_oneth(runs: Runs) -> Found:
    """L1 of the letter model uses middle planes."""
    return _planes(runs, "letter", [1], _table_1("letter", range(1, 2)), 4)


@claim(
    "B-T1-letter-late",
    "B",
    "table 1, figure 8",
    "ids 37 to 42 for L2 to L11 (θ 0.003 to 0.006)",
    TABLE + "Within 4 of that range; partly if by one weighting or in most layers.",
)
def letter_late(runs: Runs) -> Found:
    """Symbolic heads of the letter model use slow planes."""
    return _planes(runs, "letter", LATE_LETTER, (37, 42), 4)


@claim(
    "B-8-few-slow-planes",
    "B",
    "section 3.3, figure 8",
    "mean id 37 to 42 of 64",
    "Effective number of planes (by variance); a quarter of them or fewer in every symbolic layer, partly half. "
    "Equal use of all 64 planes has a mean id of 32.5.",
)
def few_slow_planes(runs: Runs) -> Found:
    """Symbolic heads use slow planes, as positional ones use fast planes."""
    used, run = [], None
    for task in ("number", "letter"):
        run = runs.of_task("mechanisms", task)
        found = run.results[task]
        used += [found["planes"]["planes_in_use_by_spread"][n] for n in found["layers"]["symbolic"] if n]
        total = len(found["planes"]["spread"][0])
    assert run is not None
    text = f"{span(used, '.0f')} of {total} planes in symbolic layers from L1 on"
    return Found(text, graded(max(used) <= total / 4, max(used) <= total / 2), run, "letter-planes")


# Mechanisms


def _mechanism(runs: Runs, task: str) -> tuple[Run, Any]:
    run = runs.of_task("mechanisms", task)
    return run, run.results[task]


def _explained(runs: Runs, task: str) -> Found:
    run, found = _mechanism(runs, task)
    shares = found["flow"]["explained"]
    text = f"{min(shares[1:]):.1%} or more of path nodes from L1 on, {shares[0]:.0%} in L0"
    return Found(text, graded(min(shares) >= 0.95, min(shares[1:]) >= 0.95), run, f"{task}-functions")


EXPLAINED = (
    "Share of path nodes at which a head hops along the path or leaves the node as it is; 95 % in every layer, "
    "partly from L1 on."
)


@claim("B-3-functions-number", "B", "section 3.2, figure 3", "every pure head", EXPLAINED)
def functions_number(runs: Runs) -> Found:
    """Each head of the number model hops along the path (Index) or leaves the node as it is (Reflexive)."""
    return _explained(runs, "number")


@claim("B-3-functions-letter", "B", "section 3.2, figure 3", "every pure head", EXPLAINED)
def functions_letter(runs: Runs) -> Found:
    """Each head of the letter model hops along the path (Retrieval) or leaves the node as it is (Reflexive)."""
    return _explained(runs, "letter")


REPLACED = (
    "Accuracy with attention replaced by the ideal in all heads of that type at once; 0.99 at every hop count, partly at one."
)


def _replaced(runs: Runs, task: str, change: str) -> Found:
    run, found = _mechanism(runs, task)
    if change not in found["changes"]:
        raise NotRunError(f"the {task} model has no head of that type, or the change was not tried")
    row = found["changes"][change]
    return Found(
        ", ".join(f"{value:.3f}" for value in row) + " at 1 to 4 hops", every(x >= 0.99 for x in row), run, f"{task}-functions"
    )


@claim(
    "B-3-index",
    "B",
    "section 3.2, figure 3",
    "Index",
    REPLACED,
)
def index(runs: Runs) -> Found:
    """Positional heads do Index: at an integer i they attend i places back."""
    return _replaced(runs, "number", "positional hop")


@claim(
    "B-3-retrieval",
    "B",
    "section 3.2, figure 3",
    "Retrieval",
    REPLACED + " Trained heads also attend beyond the next node, to the pair they have read there.",
)
def retrieval(runs: Runs) -> Found:
    """Symbolic heads of the letter model do Retrieval: at a pair xy they find the earlier pair that begins with y."""
    return _replaced(runs, "letter", "symbolic hop")


@claim(
    "B-3-reflexive",
    "B",
    "section 3.2, figure 3",
    "Reflexive",
    REPLACED + " Here the ideal is attention to the position itself.",
)
def reflexive(runs: Runs) -> Found:
    """Symbolic heads of the number model are Reflexive: they leave nodes as they are."""
    return _replaced(runs, "number", "symbolic reflexive")


def _composition(runs: Runs, task: str) -> Found:
    run, found = _mechanism(runs, task)
    agree, early = found["flow"]["agreement_with_ideal"], found["flow"]["holds_earlier_than_ideal"]
    text = f"cell by cell {min(agree):.0%} to {max(agree):.0%} as in the ideal table, {agree[-1]:.0%} after the last layer; "
    text += f"answer held too early in {max(early):.1%} at most"
    whole = min(agree) >= 0.95
    return Found(text, graded(whole, agree[-1] >= 0.99 and max(early) <= 0.02), run, f"{task}-functions")


COMPOSED = (
    "Which path nodes hold the answer after each layer, against the ideal; 95 % in every layer. Partly if they end alike "
    "and no node holds "
    "it early: trained models come one or two layers later."
)


@claim(
    "B-3-composition-number",
    "B",
    "section 3.2",
    "layer by layer",
    COMPOSED,
)
def composition_number(runs: Runs) -> Found:
    """With l layers and h hops the number model computes Index h times, then Reflexive l - h times."""
    return _composition(runs, "number")


@claim(
    "B-3-composition-letter",
    "B",
    "section 3.2",
    "layer by layer",
    COMPOSED,
)
def composition_letter(runs: Runs) -> Found:
    """With l layers and h hops the letter model computes Retrieval h times, then Reflexive l - h times."""
    return _composition(runs, "letter")
