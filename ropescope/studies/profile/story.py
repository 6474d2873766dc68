"""What profiles tell on the front of a page."""

from __future__ import annotations

import altair as alt

from ...charts import COLOURS, Figure, chart_of
from ...runs import Run
from ..claims import NotRunError, Runs, span
from ..story import Finding, Story, finding, story

KINDS = {"positional": COLOURS["positional"], "mixed": "#BBBBBB", "symbolic": COLOURS["symbolic"]}


def _models(runs: Runs) -> list[Run]:
    """One profile of each model, the one that shows most."""
    found: dict[str, Run] = {}
    for run in runs.profiles():
        found.setdefault(str(run.results["model"]), run)
    return list(found.values())


def _counts(run: Run) -> dict[str, int]:
    return {kind: int(run.results["kinds"][kind]) for kind in KINDS}


@finding(1)
def kinds(runs: Runs) -> Finding:
    """Heads split into kinds."""
    models = _models(runs)
    counts = {str(run.results["model"]): _counts(run) for run in models}
    total = sum(sum(one.values()) for one in counts.values())
    clear = 1 - sum(one["mixed"] for one in counts.values()) / total
    if clear < 0.5:
        raise NotRunError("most heads are mixed")
    rows = [
        {"model": name, "kind": kind, "rank": rank, "heads": one[kind], "share": one[kind] / sum(one.values())}
        for name, one in counts.items()
        for rank, kind in enumerate(KINDS)
    ]
    chart = (
        chart_of(rows)
        .mark_bar()
        .encode(
            x=alt.X("share:Q", title="share of heads", stack="zero", scale=alt.Scale(domain=[0, 1])).axis(
                format="%", tickCount=5
            ),
            y=alt.Y(
                "model:N",
                title=None,
                sort=sorted(counts, key=lambda name: -counts[name]["symbolic"] / sum(counts[name].values())),
            ),
            color=alt.Color("kind:N", title=None).scale(domain=list(KINDS), range=list(KINDS.values())).legend(orient="top"),
            order=alt.Order("rank:O"),
            tooltip=["model:N", "kind:N", "heads:Q", alt.Tooltip("share:Q", format=".0%")],
        )
        .properties(width=360, height=alt.Step(22), title="Kinds of heads")
    )
    many = f"{len(models)} language models" if len(models) > 1 else str(models[0].results["model"])
    return Finding(
        "Heads split into two kinds: positional ones keep looking at a place, symbolic ones follow a thing. Few do both.",
        f"{clear:.0%}",
        f"of {total:,} heads in {many} are mainly one or the other",
        Figure(chart, "Blue stays, orange follows, grey is mixed; every model has both kinds."),
        models[0],
        "heads",
    )


@story("What do heads do?")
def heads(runs: Runs) -> Story:
    """What heads of language models do."""
    models = _models(runs)
    counts = [_counts(run) for run in models]
    total = sum(sum(one.values()) for one in counts)
    share = {kind: sum(one[kind] for one in counts) / total for kind in KINDS}
    r = [float(run.results["correlation"]["pearson"]["r"]) for run in models]
    depths = [run.results["depth"]["positional"] for run in models]
    early = sum(one["first"] - one["second"] > 0.05 for one in depths)
    one = len(models) == 1
    where = f"In {models[0].results['model']}" if one else f"In {len(models)} language models with {total:,} heads"
    first = (
        f"Take a list of facts, change their order, and see what an attention head does. {where}, {share['positional']:.0%} "
        f"keep looking at the same place (positional), {share['symbolic']:.0%} follow the fact (symbolic), and "
        f"{share['mixed']:.0%} are mixed."
    )
    second = (
        f"The more positional a head is, the less symbolic: over the heads of a model both scores correlate at r = {span(r)}."
    )
    if early:
        second += (
            " Places come first: its early layers are more positional than its late ones."
            if one
            else f" Places come first: in {early} of {len(models)} models early layers are more positional than late ones."
        )
    return Story(
        (first, second),
        models[0],
        "heads",
        f"Each point is a head of {models[0].results['model']}: at the lower right they stay with places, at the upper left "
        "they follow things.",
    )
