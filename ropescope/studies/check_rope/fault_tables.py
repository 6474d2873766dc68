"""Headline, tables, figure and dataset of faults made on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt

from ...charts import COLOURS, Figure, chart_of
from ...runs import Run
from ..study import Table
from .files import AS_IT_IS, FAULTS, PERMUTED, RIGHT

if TYPE_CHECKING:
    import xarray as xr


def of_tiny(run: Run) -> bool:
    """Whether a run is of tiny random models."""
    return "clean_checks" in run.results


def title(run: Run) -> str:
    """Which models got faults, in words."""
    return f"Faults of rotation made on purpose in {'tiny models' if of_tiny(run) else run.results['model']['source']}"


def headline(run: Run) -> str:
    """How many faults were found, with layer and cause."""
    found = run.results
    if of_tiny(run):
        return (
            f"{found['detected']} of {found['faulty']} faults in {len(found['families'])} tiny models found, "
            f"{found['layer_named']} with just their layer, {found['cause_named']} with their cause; "
            f"{found['false_alarms']} false alarms in {found['clean_checks']} checks of clean models"
        )
    every = faults_of(run)
    rows = [row for row in every if len(row["text_differs"]) == len(found["lengths"])]
    logits, text = (sum(by_baseline(run, row, name, -1) for row in rows) for name in ("logits", "text"))
    return (
        f"{sum(row['detected'] for row in every)} of {len(every)} faults in {found['model']['source']} found by check-rope "
        f"with at most {max((row.get('tokens') or 0) for row in every)} tokens; at {found['lengths'][-1]:,} tokens logits show "
        f"{logits} of {len(rows)}, greedy text {text}"
    )


def faults_of(run: Run, right: bool = False) -> list[dict[str, Any]]:
    """One row per fault of a trained model; if `right`, the row of the right model in half precision instead."""
    return [row for row in run.read(FAULTS) or [] if (row["fault"] == RIGHT) == right]


def by_baseline(run: Run, row: dict[str, Any], name: str, at: int) -> bool:
    """Whether text differs, or logits differ by more than those of a right port in bfloat16."""
    at = at if at >= 0 else len(run.results["lengths"]) + at
    if at >= len(row["text_differs"]):  # not run at this length
        return False
    if name == "text":
        return bool(row["text_differs"][at])
    port = faults_of(run, right=True)
    apart = row.get("logit_difference", ())[at]
    return apart is None or not port or apart > port[0].get("logit_difference", ())[at]


def tables(run: Run) -> list[Table | str]:
    """Faults against ways to find them."""
    found = run.results
    if of_tiny(run):
        rows = [
            [
                each["fault"],
                each["seen"],
                *(f"{each[name]} of {each['faulty']}" for name in ("detected", "layer_named", "cause_named")),
            ]
            for each in found["by_fault"]
        ]
        return [Table(["fault", "seen in", "found", "layer named", "cause named"], rows), headline(run)]
    lengths = found["lengths"]
    columns = ["fault", "found with", "layer", "cause", *(f"text {n:,}" for n in lengths), *(f"logits {n:,}" for n in lengths)]
    lines = [_line(run, row, lengths) for row in run.read(FAULTS) or []]
    beyond = [f"{length:,}" for length in run.config["lengths"] if length not in lengths]
    told = [f"not compared at {', '.join(beyond)} tokens, which are beyond the model's context"] if beyond else []
    return [Table(columns, lines), headline(run), *told]


def _line(run: Run, row: dict[str, Any], lengths: list[int]) -> list[str]:
    ours = {PERMUTED: "weights alone", RIGHT: "alarm"}.get(row["fault"], f"{row.get('tokens')} tokens")
    ours = ours if row["detected"] else "nothing" if row["fault"] == RIGHT else "missed"
    named = ["named" if row[name] else "" for name in ("layer_named", "cause_named")]
    text = ["differs" if differs else "equal" for differs in row["text_differs"]]
    logits = []
    for n, apart in enumerate(row.get("logit_difference", ())):
        shown = row["fault"] != RIGHT and by_baseline(run, row, "logits", n)
        logits.append(("NaN" if apart is None else f"{apart:.3g}") + (" (found)" if shown else ""))
    name = row["fault"] if row["variant"] == AS_IT_IS else f"{row['fault']} ({row['variant']})"
    more = ["not run"] * (len(lengths) - len(text))
    return [name, ours, *named, *text, *more, *logits, *more]


def figures(run: Run) -> dict[str, Figure]:
    """Which ways find which faults, for trained models."""
    if of_tiny(run):
        return {}
    lengths = run.results["lengths"]
    values = []
    for row in faults_of(run):
        name = row["fault"] if row["variant"] == AS_IT_IS else f"{row['fault']} ({row['variant']})"
        values.append({"fault": name, "way": "check-rope, 64 tokens", "found": "found" if row["detected"] else "not"})
        for kind, label in (("text", "greedy text"), ("logits", "logits")):
            for n, length in enumerate(lengths[: len(row["text_differs"])]):
                found = "found" if by_baseline(run, row, kind, n) else "not"
                values.append({"fault": name, "way": f"{label}, {length:,} tokens", "found": found})
    ways = list(dict.fromkeys(row["way"] for row in values))
    chart = (
        chart_of(values)
        .mark_rect(stroke="white")
        .encode(
            x=alt.X("way:N", title=None, sort=ways, axis=alt.Axis(orient="top", labelAngle=-35, labelLimit=200)),
            y=alt.Y("fault:N", title=None, sort=None, axis=alt.Axis(labelLimit=320)),
            color=alt.Color("found:N", title=None).scale(domain=["found", "not"], range=[COLOURS["positional"], "#E4E4E4"]),
            tooltip=["fault:N", "way:N", "found:N"],
        )
        .properties(
            width=alt.Step(44),
            height=alt.Step(17),
            title=alt.TitleParams("Which faults of rotation show where", anchor="start"),
        )
    )
    return {
        "faults": Figure(chart, "One row per fault. Logits count as showing it if they differ more than those of a right port.")
    }


def dataset(run: Run) -> xr.Dataset:
    """Whether each fault was found, its layer and its cause named."""
    import xarray as xr  # noqa: PLC0415

    rows = run.read(FAULTS) or []
    names = ("detected", "layer_named", "cause_named")
    return xr.Dataset(
        {name: ("case", [bool(row[name]) for row in rows]) for name in names},
        {"case": [f"{row.get('family', row.get('variant'))}: {row['fault']}" for row in rows]},
    )
