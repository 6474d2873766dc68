"""The figure of families of models that can be opened."""

from __future__ import annotations

from typing import Any

import altair as alt

from ...charts import COLOURS, Chart, Figure, Rows, chart_of
from ...runs import Run

VERDICTS = {"verified": COLOURS["binding"], "refused": COLOURS["symbolic"], "not built": COLOURS["neutral"]}


def figures(run: Run) -> dict[str, Figure]:
    """The figure of a run."""
    rows = run.read("families.json")
    if not rows or all(row.get("logit_error") is None for row in rows):
        return {}
    reading = "A mark for each family: the error of logits computed from `M`, against the model's own; left is better."
    return {"families": Figure(families_chart(rows, run.results), reading)}


def families_chart(rows: Rows, counted: Any) -> Chart:
    """Errors of families that were opened, as marks on a line for each way of rotation, and how many were refused."""
    names = ("family", "verdict", "rotation", "logit_error")
    read = [{key: row[key] for key in names} for row in rows if row.get("logit_error") is not None]
    known = [row | {"error": max(float(row["logit_error"]), 1e-17)} for row in read]
    said = ", ".join(f"{number} {verdict}" for verdict, number in counted["verdicts"].items())
    return (
        chart_of(known)
        .mark_point(filled=True, size=60, opacity=0.6)
        .encode(
            x=alt.X("error:Q", title="largest relative error of logits").scale(type="log").axis(format=".0e", tickCount=6),
            y=alt.Y("rotation:N", title="rotation"),
            color=alt.Color("verdict:N", title=None).scale(domain=list(VERDICTS), range=list(VERDICTS.values())),
            shape=alt.Shape("verdict:N", title=None).scale(domain=list(VERDICTS), range=["circle", "cross", "square"]),
            tooltip=[
                alt.Tooltip("family:N"),
                alt.Tooltip("verdict:N"),
                alt.Tooltip("rotation:N"),
                alt.Tooltip("logit_error:Q"),
            ],
        )
        .properties(
            width=760,
            height=alt.Step(26),
            title=alt.TitleParams(f"{len(rows)} families of models: {said}", subtitle="tiny random models", anchor="start"),
        )
    )
