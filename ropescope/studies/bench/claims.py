"""Claims on what scoring costs."""

from __future__ import annotations

from ..claims import Found, NotRunError, Runs, claims_in, every, span

claim = claims_in("What a head does, and how to measure it")


@claim(
    "B-I-score-cost",
    "B",
    "appendix I",
    "5 h GPU, 2.0 TB and 8.5 h CPU for each of two small models",
    "Reproduced if re-running costs at least half as many scored passes as there are swaps; hours were not measured again.",
)
def score_cost(runs: Runs) -> Found:
    """Scoring by re-running blocks for every swap is costly: its cost grows with the number of swaps."""
    for run in runs.of("bench"):
        timed = run.results.get("scores", {}).values()
        rows = [row for row in timed if row.get("faster_than_rerunning_blocks") is not None]  # blocks are re-run up to a length
        if rows:
            break
    else:
        raise NotRunError("no benchmark of scores among the runs given")
    times = [row["faster_than_rerunning_blocks"] for row in rows]
    plain = [row["scored_over_plain"] for row in rows]
    text = f"re-running takes {span(times, ',.0f')} times a scored pass ({rows[0]['tokens']} to {rows[-1]['tokens']} tokens), "
    text += f"which takes {span(plain)} plain passes"
    return Found(text, every(row["faster_than_rerunning_blocks"] >= row["swaps"] / 2 for row in rows), run)


@claim(
    "ours-1-cost",
    "ours",
    "reviewers' questions",
    "asked by reviewers, no value given",
    "A scored pass over a plain one, prompts of 24 to 256 sentences; two plain passes or less at every length, partly at some.",
)
def cost(runs: Runs) -> Found:
    """Scoring all heads of a language model costs little more than running it."""
    found = [run for run in runs.of("bench") if run.config["what"] == "profile"]
    if not found:
        raise NotRunError("no benchmark of a profile among the runs given")
    rows = [row for run in found for row in run.results.values()]
    if any(row.get("moves") is not None for row in rows):  # in earlier runs only sentences move
        rows = [row for row in rows if row["moves"] == "sentences"]
    ratios, planes = ([row[f"{name}_over_plain"] for row in rows] for name in ("scored", "planes"))
    text = f"{span(ratios)} plain passes; {span(planes)} with every plane"
    return Found(text, every(ratio <= 2 for ratio in ratios), found[0])
