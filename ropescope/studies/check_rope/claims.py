"""Claims on checks of rotations: faults found, false alarms, weights, runtimes and cost."""

from __future__ import annotations

from typing import Any

from ...runs import Run
from ..claims import Found, NotRunError, Runs, claims_in, every, graded
from .fault_tables import by_baseline, faults_of, of_tiny
from .files import ALARMS, PERMUTED

claim = claims_in("Real language models")

TOKENS = 64
PASSES = 3.0
LARGE = 1_400_000_000
"""Parameters of a model of "1.5B" at least."""
OWN = ("transformers", "random contents")
"""What a dump may be of that is no other runtime."""


def _trained(runs: Runs) -> list[Run]:
    found = [run for run in runs.of("rope-faults") if not of_tiny(run)]
    if not found:
        raise NotRunError("no run of `ropescope rope-faults` on a trained model among those given")
    return found


def _tiny(runs: Runs) -> Run:
    found = [run for run in runs.of("rope-faults") if of_tiny(run)]
    if not found:
        raise NotRunError("no run of `ropescope rope-faults tiny` among those given")
    return found[0]


def _name(run: Run) -> str:
    return str(run.results["model"]["source"])


def _turned(run: Run) -> list[dict[str, Any]]:
    """Faults of the rotation itself, without that of the weights."""
    return [row for row in faults_of(run) if row["fault"] != PERMUTED]


def _whole(row: dict[str, Any]) -> bool:
    return bool(row["detected"] and row["layer_named"] and row["cause_named"] and row["tokens"] <= TOKENS)


@claim(
    "ours-6-rope-faults",
    "ours",
    "faults of ports",
    "all, by 64 tokens",
    "Faults of rotation made in trained models: found by a pass of at most 64 tokens, with just the faulty layer and "
    "the cause. All in every model; partly if all are found in some.",
)
def faults(runs: Runs) -> Found:
    """check-rope finds every known fault of rotation in trained models, and names its layer and its cause."""
    found = [(run, _turned(run)) for run in _trained(runs)]
    whole = [[_whole(row) for row in rows] for _, rows in found]
    text = "; ".join(f"{_name(run)} {sum(each)} of {len(each)}" for (run, _), each in zip(found, whole, strict=True))
    most = max(row["tokens"] for _, rows in found for row in rows if row["detected"])
    return Found(f"{text}; with at most {most} tokens", every(map(all, whole)), found[0][0], "faults")


@claim(
    "ours-6-rope-tiny",
    "ours",
    "faults of ports",
    "all",
    "The same faults in one layer of tiny random models of every family. Reproduced if all are found with layer and "
    "cause, partly if 99 % are found.",
)
def tiny_faults(runs: Runs) -> Found:
    """check-rope finds every known fault of rotation in every family, and names its layer and its cause."""
    run = _tiny(runs)
    found = run.results
    number = found["faulty"]
    named = [found[name] for name in ("detected", "layer_named", "cause_named")]
    text = f"{named[0]:,} of {number:,} found, {named[1]:,} with just their layer, {named[2]:,} with their cause"
    return Found(text, graded(all(each == number for each in named), named[0] >= 0.99 * number), run)


@claim(
    "ours-6-rope-baselines",
    "ours",
    "faults of ports",
    "need thousands of tokens, or miss them",
    "Faults that neither greedy text (it differs) nor logits (they differ by more than those of the right model in "
    "bfloat16) show at 200 tokens. Reproduced if there are some in every model.",
)
def baselines(runs: Runs) -> Found:
    """Comparing text and logits over 200 tokens, as ports are tested today, misses faults of rotation."""
    parts, cases, first = [], [], _trained(runs)[0]
    for run in _trained(runs):
        rows, missed = faults_of(run), {}
        for n, length in enumerate(run.results["lengths"]):
            compared = [row for row in rows if n < len(row["text_differs"])]
            shown = [by_baseline(run, row, "text", n) or by_baseline(run, row, "logits", n) for row in compared]
            missed[length] = len(shown) - sum(shown)
        if 200 not in missed:
            continue
        cases.append(missed[200] > 0)
        counts = ", ".join(f"{number} at {length:,}" for length, number in missed.items())
        parts.append(f"{_name(run)}, {len(rows)} faults: {counts}")
    return Found(f"missed by both: {'; '.join(parts)}", every(cases), first, "faults")


@claim(
    "ours-6-rope-alarms",
    "ours",
    "faults of ports",
    "none",
    "Clean tiny models of all verified families in float32, float16 and bfloat16, and trained ones in bfloat16. An "
    "alarm is real if the same weights, stored and loaded again, have none. Reproduced if none is false and every "
    "family was checked in all three.",
)
def alarms(runs: Runs) -> Found:
    """check-rope has no false alarms."""
    run, families = _tiny(runs), runs.one("conformance").read("families.json") or []
    verified = {row["family"] for row in families if row["verdict"] == "verified"}
    rows = [row for row in run.read(ALARMS) or [] if row["family"] in verified]
    false = sum(row["alarm"] and not row["real"] for row in rows)
    trained = [row for each in _trained(runs) for row in faults_of(each, right=True)]
    wrong = sum(row["detected"] for row in trained)
    checked = {name: sum(row["family"] == name for row in rows) for name in verified}
    whole = bool(trained) and bool(checked) and all(count == len(run.results["precisions"]) for count in checked.values())
    text = f"{false} in {len(rows)} checks of {len(checked)} families, {wrong} in {len(trained)} trained models in bfloat16"
    return Found(text, graded(whole and not false and not wrong, not false), run)


@claim(
    "ours-6-rope-weights",
    "ours",
    "faults of ports",
    "not known to be possible",
    "Rows of queries and keys that a rotation pairs are alike after training. Every trained model once as it is and "
    "once with weights permuted: reproduced if only the permuted ones are called so, and no random model; partly if "
    "none is called so wrongly.",
)
def weights(runs: Runs) -> Found:
    """Weights that were permuted for another pairing than the runtime's are told from the weights alone."""
    found = [(run, row) for run in _trained(runs) for row in faults_of(run) if row["fault"] == PERMUTED]
    if not found:
        raise NotRunError("no run of `ropescope rope-faults` has permuted weights")
    parts = [
        f"{_name(run)} {row['leaning']['other']} of {row['layers']} layers ({row['clean_leaning']['other']} before)"
        for run, row in found
    ]
    random = _tiny(runs).results.get("called_permuted")
    clear = all(row["clean_leaning"]["other"] <= row["layers"] / 2 for _, row in found) and not random
    tried = "random models not tried" if random is None else f"{random} random models called so"
    text = f"trained for the other pairing: {'; '.join(parts)}; {tried}"
    whole = clear and random is not None and all(row["detected"] for _, row in found)
    return Found(text, graded(whole, clear), found[0][0], "faults")


@claim(
    "ours-6-rope-runtimes",
    "ours",
    "faults of ports",
    "two runtimes",
    "Dumped keys of models run by other runtimes than transformers; every layer decided. Reproduced with two runtimes, "
    "partly with one.",
)
def runtimes(runs: Runs) -> Found:
    """The rotation of real runtimes is checked from the keys that they dump."""
    start = "dump of "
    dumps = [run for run in runs.of("check-rope") if run.results["what"].startswith(start)]
    dumps = [run for run in dumps if not run.results["what"].removeprefix(start).startswith(OWN)]
    if not dumps:
        raise NotRunError("no check of another runtime's dump among the runs given")
    decided = [run for run in dumps if not run.results["verdicts"]["not decided"]]
    names = sorted({run.results["what"].removeprefix(start) for run in decided})
    wrong = [run for run in decided if run.results["verdicts"]["departs"]]
    text = f"{', '.join(names)}: {len(decided)} models, {len(wrong)} of them rotated wrongly"
    kinds = {name.split()[0] for name in names}
    return Found(text, graded(len(kinds) >= 2, bool(kinds)), dumps[0], "parting")


@claim(
    "ours-6-rope-cost",
    "ours",
    "faults of ports",
    "less than 3 plain passes for 1.5B",
    "Processor time of a check over that of a plain pass over 64 tokens, of models from 1.4 billion parameters on; "
    "others are stated beside. Partly if below twice that.",
)
def cost(runs: Runs) -> Found:
    """Checking the rotation of a model of 1.5 billion parameters costs less than three plain passes over 64 tokens."""
    timed = [run for run in runs.of("check-rope") if "cost" in run.results]
    timed.sort(key=lambda run: -run.results["model"]["parameters"])
    large = [run for run in timed if run.results["model"]["parameters"] >= LARGE]
    if not large:
        raise NotRunError("no timed check of a model of 1.5 billion parameters among the runs given")
    text = "; ".join(f"{_name(run)} {run.results['cost']['check_over_plain']:.2f}" for run in timed)
    worst = max(run.results["cost"]["check_over_plain"] for run in large)
    return Found(text, graded(worst < PASSES, worst < 2 * PASSES), large[0])
