"""Claims on how the number and letter tasks are learned, and which heads come of it (paper B, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ...measures.purity import POSITIONAL, SYMBOLIC, purity
from ...tasks import TASKS
from ..by_recipe import with_earlier
from ..claims import Found, NotRunError, Runs, claims_in, every, graded, listed, span
from .trained import GAMMA, NEAR, SEEDS, SETTING, Trained, by_seed, near, parameter_count, pure_heads, trained

claim = with_earlier(claims_in("The number and letter tasks, and how they are learned"), "train")


@claim(
    "B-2-setting",
    "B",
    "setting",
    "432,000 / 2,400 / 45,600; 12 layers, width 128, batch 64, 6,750 steps",
    "Recorded settings must be the paper's; its peak learning rate is not printed, ours is in the configuration of the run.",
)
def setting(runs: Runs) -> Found:
    """The setting: 480,000 sequences of each task in three parts, a 12-layer GPT-J with one head a layer, one epoch of 6,750
    steps."""
    every_run = [*trained(runs, "number"), *trained(runs, "letter")]
    other = sorted({key for one in every_run for key, value in SETTING.items() if one.run.config[key] != value})
    rates = span((one.run.config["rate"] for one in every_run), "g")
    text = f"{len(every_run)} runs as in the paper but for {', '.join(other) or 'nothing'}; peak rate {rates}"
    return Found(text, graded(not other), every_run[0].run, "learning")


@claim(
    "B-2-parameters",
    "B",
    "setting",
    "2.4 M; 136 and 128",
    "Counted from the recorded sizes (no bias in attention, untied embeddings); 2.4 M within 0.05, vocabularies the same.",
)
def parameters(runs: Runs) -> Found:
    """The model has about 2.4 million parameters; the vocabulary is 136 (number) and 128 tokens (letter)."""
    found = [trained(runs, task)[0] for task in TASKS]
    words = [TASKS[one.history.task](**one.run.config["task_sizes"]).vocab_size for one in found]
    counts = [parameter_count(one.run.config, size) for one, size in zip(found, words, strict=True)]
    text = "; ".join(f"{task} {n / 1e6:.2f} M, {size} tokens" for task, n, size in zip(TASKS, counts, words, strict=True))
    close = all(abs(n - 2.4e6) <= 0.05e6 for n in counts)
    return Found(text, graded(close and words == [136, 128], close), found[0].run, "learning")


def _accuracy(runs: Runs, task: str) -> Found:
    found = trained(runs, task)
    worst = [min(one.run.results["test_accuracy"].values()) for one in found]
    text = f"worst hop count {span(worst, '.4f')} over {len(found)} seeds"
    return Found(text, every(value >= 0.99 for value in worst), found[0].run, "learning")


ACCURATE = "Test accuracy of the worst hop count at the last step; 0.99 in every seed."


@claim("B-2-number-accuracy", "B", "figure 2", "about 1", ACCURATE)
def number_accuracy(runs: Runs) -> Found:
    """The number task is solved at all hop counts."""
    return _accuracy(runs, "number")


@claim("B-2-letter-accuracy", "B", "figure 2", "about 1", ACCURATE)
def letter_accuracy(runs: Runs) -> Found:
    """The letter task is solved at all hop counts."""
    return _accuracy(runs, "letter")


def _solved_at(runs: Runs, task: str, paper: int) -> Found:
    found = trained(runs, task)
    best = [one.milestones["step_of_best_accuracy"] for one in found]
    text = f"best accuracy first at {span(best, ',d')}"
    return Found(
        text, graded(near(best, paper), all(one.milestones["best_accuracy"] >= 0.99 for one in found)), found[0].run, "learning"
    )


SOLVED = f"Within {NEAR:.0%} of the paper's step in every seed; partly if solved at another step. Our learning rate may differ."


@claim("B-2-number-when", "B", "figure 2", "about 4,800", SOLVED)
def number_when(runs: Runs) -> Found:
    """The number task is solved after some 4,800 steps."""
    return _solved_at(runs, "number", 4800)


@claim("B-2-letter-when", "B", "figure 2", "about 3,400", SOLVED)
def letter_when(runs: Runs) -> Found:
    """The letter task is solved after some 3,400 steps."""
    return _solved_at(runs, "letter", 3400)


@claim(
    "B-2-number-hop-by-hop",
    "B",
    "figure 2",
    "1 hop at about 2,000 steps, 4 hops at about 3,200",
    "Accuracy 0.99 reached in this order (up to one measurement, 50 steps), one hop at least 500 steps before four. " + SEEDS,
)
def hop_by_hop(runs: Runs) -> Found:
    """The number task is learned hop by hop: one hop first, then two, three, four."""
    found = trained(runs, "number")
    return Found(_learned(found), every(_ordered(one) for one in found), found[0].run, "learning")


def _learned(found: Sequence[Trained]) -> str:
    return by_seed(
        found, lambda one: ", ".join("never" if step is None else f"{step:,}" for step in one.milestones["learned_at"])
    )


def _ordered(one: Trained) -> bool:
    steps, look = one.milestones["learned_at"], int(np.diff(one.history.steps).min())
    if None in steps:
        return False
    return all(later >= earlier - look for earlier, later in pairwise(steps)) and steps[-1] - steps[0] >= 500


@claim(
    "B-2-number-hop-steps",
    "B",
    "figure 2",
    "about 2,000 and 3,200",
    f"Both within {NEAR:.0%} in every seed; partly if one of them is.",
)
def hop_steps(runs: Runs) -> Found:
    """One hop is learned at some 2,000 steps, four hops at some 3,200."""
    found = trained(runs, "number")
    first, last = ([one.milestones["learned_at"][n] for one in found] for n in (0, 3))
    ends = near(first, 2000), near(last, 3200)
    text = " and ".join(span((step for step in steps if step is not None), ",d") for steps in (first, last) if any(steps))
    return Found(text or "never", graded(all(ends), any(ends)), found[0].run, "learning")


@claim(
    "B-2-letter-together",
    "B",
    "figure 2",
    "together",
    "Accuracy 0.99 within 400 steps of each other. " + SEEDS,
)
def together(runs: Runs) -> Found:
    """In the letter task all hop counts are learned together."""
    found = trained(runs, "letter")
    holds = [None not in one.milestones["learned_at"] and np.ptp(one.milestones["learned_at"]) <= 400 for one in found]
    return Found(_learned(found), every(bool(x) for x in holds), found[0].run, "learning")


@claim(
    "B-2-letter-done",
    "B",
    "figure 2",
    "about 2,900",
    f"Last hop count within {NEAR:.0%} of that in every seed; partly if in some, or earlier.",
)
def letter_done(runs: Runs) -> Found:
    """They are learned by some 2,900 steps."""
    found = trained(runs, "letter")
    last = [max((step for step in one.milestones["learned_at"] if step is not None), default=None) for one in found]
    known = [step for step in last if step is not None]
    if len(known) < len(last):
        return Found("not learned in every seed", "not", found[0].run, "learning")
    return Found(span(known, ",d"), graded(near(last, 2900), max(known) <= 2900 * (1 + NEAR)), found[0].run, "learning")


@claim(
    "B-2-uniform-start",
    "B",
    "section 3.1",
    "near 1",
    "Smallest over layers and seeds at step 0; 0.95.",
)
def uniform_start(runs: Runs) -> Found:
    """Both scores and the entropy of attention start near 1: uniform attention."""
    found = [*trained(runs, "number"), *trained(runs, "letter")]
    least = {
        name: min(float(one.history.measures[name][0].min()) for one in found) for name in ("positional", "symbolic", "entropy")
    }
    text = ", ".join(f"{name} at least {value:.2f}" for name, value in least.items())
    return Found(text, graded(min(least.values()) >= 0.95), found[0].run, "learning")


@claim(
    "B-2-purity-rises",
    "B",
    "section 3.1, figure 2C",
    "visible in the curves",
    "Rank correlation over steps, which has no p-value, of mean |positional - symbolic| with mean accuracy; 0.8. " + SEEDS,
)
def purity_rises(runs: Runs) -> Found:
    """Heads become pure as accuracy rises."""
    found = [*trained(runs, "number"), *trained(runs, "letter")]
    if None in (together := [one.milestones["purity_and_accuracy"] for one in found]):
        raise NotRunError("purity or accuracy does not vary over the steps of a run")
    ranks = [each["spearman"] for each in together]
    text = f"rank correlation {span(ranks)} over {len(found)} runs"
    return Found(text, every(rank >= 0.8 for rank in ranks), found[0].run, "learning")


@claim(
    "B-2-maximum-when-pure",
    "B",
    "section 3.1",
    "only then",
    "Of the heads that are pure at the end, the share that is so where accuracy is first best; 0.9 in every run, partly "
    "from 0.5 on.",
)
def maximum_whenpure(runs: Runs) -> Found:
    """Accuracy reaches its maximum only when the heads are pure."""
    found = [*trained(runs, "number"), *trained(runs, "letter")]
    shares = []
    for one in found:
        kinds = purity(one.history.measures["positional"], one.history.measures["symbolic"], float(GAMMA))
        best = int(np.flatnonzero(one.history.steps == one.milestones["step_of_best_accuracy"])[0])
        last = (kinds[-1] == POSITIONAL) | (kinds[-1] == SYMBOLIC)
        shares.append(float((kinds[best] == kinds[-1])[last].mean()) if last.any() else 0.0)
    texts = "; ".join(f"{one.run.name} {share:.0%}" for one, share in zip(found, shares, strict=True))
    return Found(texts, graded(min(shares) >= 0.9, min(shares) >= 0.5), found[0].run, "learning")


@claim(
    "B-2-number-positional",
    "B",
    "section 3.1, figures 2C and 7",
    "4 (L0 to L3, of which L0 ends mixed)",
    "Pure at gamma 0.1 at the last step; four in the first five layers and none later in every seed, partly from three.",
)
def number_positional(runs: Runs) -> Found:
    """The number model ends with four pure positional heads, all in early layers."""
    found = trained(runs, "number")
    counts = [len(pure_heads(one, "final_positional")) for one in found]
    early = all(layer < 5 for one in found for layer in pure_heads(one, "final_positional"))
    others = [n for n in range(5) if not any(n in pure_heads(one, "final_positional") for one in found)]
    text = by_seed(found, lambda one: listed(pure_heads(one, "final_positional")))
    for layer in [n for n in others if n][-1:]:  # the early layer that comes nearest, if any is short of it
        both = [[float(one.history.measures[name][-1, layer, 0]) for one in found] for name in ("positional", "symbolic")]
        text += f"; L{layer} is at {span(both[0])} / {span(both[1])}"
    return Found(text, graded(early and min(counts) >= 4, early and min(counts) >= 3), found[0].run, "learning")


@claim(
    "B-2-number-symbolic",
    "B",
    "section 3.1, figures 2C and 7",
    "8 (L4 to L11)",
    "Pure at gamma 0.1 at the last step; L4 to L11 in every seed, partly from six of them.",
)
def number_symbolic(runs: Runs) -> Found:
    """All later heads of the number model end pure symbolic."""
    found = trained(runs, "number")
    return _symbolic(found, range(4, 12), 6)


def _symbolic(found: Sequence[Trained], paper: range, part: int) -> Found:
    shared = [len(set(pure_heads(one, "final_symbolic")) & set(paper)) for one in found]
    text = by_seed(found, lambda one: f"{len(pure_heads(one, 'final_symbolic'))} ({listed(pure_heads(one, 'final_symbolic'))})")
    return Found(text, graded(min(shared) == len(paper), min(shared) >= part), found[0].run, "learning")


MIXED = "Neither pure positional nor pure symbolic at gamma 0.1 at the last step. " + SEEDS


def _mixed(runs: Runs, task: str) -> Found:
    found = trained(runs, task)
    both = [[float(one.history.measures[name][-1, 0, 0]) for one in found] for name in ("positional", "symbolic")]
    pure = [0 in [*pure_heads(one, "final_positional"), *pure_heads(one, "final_symbolic")] for one in found]
    return Found(f"positional {span(both[0])}, symbolic {span(both[1])}", every(not x for x in pure), found[0].run, "learning")


@claim("B-2-number-L0", "B", "section 3.1", "mixed", MIXED)
def number_first(runs: Runs) -> Found:
    """L0 of the number model ends mixed."""
    return _mixed(runs, "number")


@claim("B-2-letter-L0", "B", "section 3.1", "mixed", MIXED)
def letter_first(runs: Runs) -> Found:
    """L0 of the letter model ends mixed."""
    return _mixed(runs, "letter")


@claim(
    "B-2-number-one-at-a-time",
    "B",
    "section 3.1, figure 2C",
    "one after the other, from about 2,400 to 4,500 steps",
    f"No two stay pure from the same step on, and first and last are within {NEAR:.0%} of the paper's, in every seed; "
    "partly if they come apart in some seed.",
)
def one_at_a_time(runs: Runs) -> Found:
    """Positional heads appear one at a time, a step-like curve."""
    found = trained(runs, "number")
    since = [sorted(step for step in pure_heads(one, "since_positional") if step is not None) for one in found]
    apart = [len(steps) > 1 and len(set(steps)) == len(steps) for steps in since]
    when = [bool(steps) and near(steps[:1], 2400) and near(steps[-1:], 4500) for steps in since]
    text = "; ".join(f"seed {one.seed}: {', '.join(f'{s:,}' for s in steps)}" for one, steps in zip(found, since, strict=True))
    return Found(text, graded(all(apart) and all(when), any(apart)), found[0].run, "learning")


NO_HEAD = "No head pure positional at gamma 0.1 at the last step. " + SEEDS


@claim("B-2-letter-positional", "B", "section 3.1, figures 2C and 7", "none", NO_HEAD)
def letter_positional(runs: Runs) -> Found:
    """The letter model has no positional head."""
    found = trained(runs, "letter")
    text = by_seed(found, lambda one: listed(pure_heads(one, "final_positional")))
    return Found(text, every(not pure_heads(one, "final_positional") for one in found), found[0].run, "learning")


@claim(
    "B-2-letter-symbolic",
    "B",
    "section 3.1, figures 2C and 7",
    "11 (L1 to L11)",
    "Pure at gamma 0.1 at the last step; L1 to L11 in every seed, partly from eight of them.",
)
def letter_symbolic(runs: Runs) -> Found:
    """All heads of the letter model but the first end pure symbolic."""
    return _symbolic(trained(runs, "letter"), range(1, 12), 8)


@claim(
    "B-2-letter-L11-last",
    "B",
    "section 3.1, figure 2C",
    "L11, at about 2,900 steps",
    f"Last to stay pure, within {NEAR:.0%} of that step, in every seed; partly if it is the last in some seed.",
)
def letter_last(runs: Runs) -> Found:
    """L11 is the last head of the letter model to become pure."""
    found = trained(runs, "letter")

    def when(one: Trained) -> int | None:
        step: int | None = pure_heads(one, "since_symbolic")[11]
        return step

    last = [
        when(one) is not None and when(one) == max(s for s in pure_heads(one, "since_symbolic") if s is not None)
        for one in found
    ]
    text = by_seed(found, lambda one: "L11 never pure" if when(one) is None else f"L11 from {when(one):,} on")
    return Found(text, graded(all(last) and near(map(when, found), 2900), any(last)), found[0].run, "learning")


@claim(
    "B-2-hops-follow-heads",
    "B",
    "section 3.1",
    "n hops, n heads",
    "The n-th head to become pure positional does so no later than n hops are learned; all hop counts of all seeds, "
    "partly if half.",
)
def hops_follow_heads(runs: Runs) -> Found:
    """In the number task n hops are learned when n positional heads have formed."""
    found = trained(runs, "number")
    holds = []
    for one in found:
        formed = sorted(step for step in pure_heads(one, "first_positional") if step is not None)
        for n, learned in enumerate(one.milestones["learned_at"]):
            holds.append(learned is not None and n < len(formed) and formed[n] <= learned)
    text = f"{sum(holds)} of {len(holds)} hop counts and seeds"
    return Found(text, graded(all(holds), 2 * sum(holds) >= len(holds)), found[0].run, "learning")


@claim(
    "B-2-letter-waits",
    "B",
    "section 3.1",
    "learned when L11 is pure",
    "The last of the finally pure heads is pure for the first time no later than the last hop count is learned. " + SEEDS,
)
def letter_waits(runs: Runs) -> Found:
    """In the letter task all hop counts wait for the last symbolic head."""
    found = trained(runs, "letter")
    if any(not pure_heads(one, "final_symbolic") or None in one.milestones["learned_at"] for one in found):
        return Found("no pure symbolic head, or a hop count never learned, in some seed", "not", found[0].run, "learning")
    last = [max(pure_heads(one, "first_symbolic")[n] for n in pure_heads(one, "final_symbolic")) for one in found]
    learned = [max(one.milestones["learned_at"]) for one in found]
    text = "; ".join(f"seed {one.seed}: head {a:,}, hops {b:,}" for one, a, b in zip(found, last, learned, strict=True))
    return Found(text, every(head <= hop for head, hop in zip(last, learned, strict=True)), found[0].run, "learning")


@claim(
    "ours-2-shares",
    "ours",
    "first trial",
    "position 0.97; symbol 0.94 or more; binding 0.79; symbol 0.93 or more",
    "Smallest over seeds and layers; the named share is the largest of the three everywhere, and within 0.1 of the trial.",
)
def shares(runs: Runs) -> Found:
    """Variance shares tell the same story: position in L2 and L3 of the number model, symbol from L6 on, binding in L0;
    symbol in the letter model."""
    parts = [
        ("number", "position_share", (2, 3), 0.97),
        ("number", "symbol_share", range(6, 12), 0.94),
        ("number", "binding_share", (0,), 0.79),
        ("letter", "symbol_share", range(12), 0.93),
    ]
    least, leads = [], []
    for task, name, layers, _ in parts:
        values = [float(one.history.measures[name][-1, n, 0]) for one in trained(runs, task) for n in layers]
        least.append(min(values))
        leads.append(min(values) > 0.5)
    text = "; ".join(f"{task} {name.split('_')[0]} {value:.2f}" for (task, name, _, _), value in zip(parts, least, strict=True))
    close = all(value >= trial - 0.1 for value, (*_, trial) in zip(least, parts, strict=True))
    return Found(text, graded(all(leads) and close, all(leads)), trained(runs, "number")[0].run, "layers")


@claim(
    "ours-2-first-heads",
    "ours",
    "first trial",
    "positional 0.986 or more, symbolic 1.00; no positional head in the letter model",
    "Smallest score over seeds and layers, 0.9 in all three groups; partly in some.",
)
def first_heads(runs: Runs) -> Found:
    """A first trial of one seed: L1 to L4 of the number model positional, L6 to L11 symbolic; L0 to L10 of the letter model
    symbolic."""
    parts = [("number", "positional", range(1, 5)), ("number", "symbolic", range(6, 12)), ("letter", "symbolic", range(11))]
    least = [
        min(float(one.history.measures[name][-1, n, 0]) for one in trained(runs, task) for n in layers)
        for task, name, layers in parts
    ]
    text = ", ".join(f"{task} {name} at least {value:.2f}" for (task, name, _), value in zip(parts, least, strict=True))
    return Found(text, every(value >= 0.9 for value in least), trained(runs, "number")[0].run, "layers")


@claim(
    "B-I-training-cost",
    "B",
    "appendix I",
    "1,710 s and 1,589 s",
    "Fastest run of each task within a factor of two; ours ran on two processor cores without a GPU, some runs with other work "
    "at the same time.",
)
def training_cost(runs: Runs) -> Found:
    """Training takes 28 min 30 s (number) and 26 min 29 s (letter) on an RTX A5000."""
    ours = {task: [one.run.results["seconds"] for one in trained(runs, task)] for task in ("number", "letter")}
    close = [min(ours[task]) <= 2 * paper for task, paper in (("number", 1710), ("letter", 1589))]
    text = ", ".join(f"{task} {span(seconds, ',.0f')} s" for task, seconds in ours.items())
    return Found(text, every(close), trained(runs, "number")[0].run, "learning")
