"""The figure of a benchmark: what scores cost over the length of inputs."""

from __future__ import annotations

import altair as alt

from ...charts import COLOURS, Chart, Figure, Rows, chart_of
from ...runs import Run

RATIOS = {
    "scored_over_plain": ("a scored pass, in plain passes", COLOURS["positional"], "circle"),
    "planes_over_plain": ("with every plane scored, too", COLOURS["binding"], "square"),
    "faster_than_rerunning_attention": ("times as fast as re-running attention", COLOURS["symbolic"], "triangle-up"),
    "faster_than_rerunning": ("times as fast as re-running attention", COLOURS["symbolic"], "triangle-up"),
    "faster_than_rerunning_blocks": ("times as fast as re-running blocks", "#CC79A7", "diamond"),
}
"""Ratios that a bench may hold, to their name, colour and shape."""


def figures(run: Run) -> dict[str, Figure]:
    """The figure of a run; none for parts that have no lengths."""
    found = run.results if run.config["what"] == "profile" else run.results.get("scores")
    if not found:
        return {}
    about = run.config["model"]["source"] if run.config["what"] == "profile" else "GPT-J of 12 layers"
    reading = "Both axes are logarithmic; all lines are ratios within one run, so they do not depend on the machine much."
    rows = {
        moves: [row for row in found.values() if row.get("moves", "sentences") == moves] for moves in ("sentences", "tokens")
    }
    charts = {"cost": rows["sentences"], "cost_of_tokens": rows["tokens"]}
    titles = {"cost": about, "cost_of_tokens": f"{about}, tokens that move one by one"}
    return {name: Figure(cost_chart(chosen, titles[name]), reading) for name, chosen in charts.items() if chosen}


def cost_chart(rows: Rows, about: str) -> Chart:
    """Ratios over the length of inputs."""
    values = [
        {"tokens": row["tokens"], "swaps": row["swaps"], "ratio": name, "value": row[key]}
        for row in rows
        for key, (name, _, _) in RATIOS.items()
        if row.get(key) is not None
    ]
    shown = {name: (colour, shape) for name, colour, shape in RATIOS.values() if any(row["ratio"] == name for row in values)}
    domain, colours, shapes = list(shown), [look[0] for look in shown.values()], [look[1] for look in shown.values()]
    legend = alt.Legend(title=None, orient="bottom", columns=1, labelLimit=300)
    base = chart_of(values).encode(
        x=alt.X("tokens:Q", title="tokens", scale=alt.Scale(type="log", nice=False, padding=10)).axis(
            values=sorted({row["tokens"] for row in values}), grid=False
        ),
        y=alt.Y("value:Q", title="ratio", scale=alt.Scale(type="log")).axis(format="~s", tickCount=5),
        color=alt.Color("ratio:N", legend=legend).scale(domain=domain, range=colours),
        tooltip=[
            alt.Tooltip("tokens:Q"),
            alt.Tooltip("swaps:Q"),
            alt.Tooltip("ratio:N"),
            alt.Tooltip("value:Q", format=",.2f"),
        ],
    )
    points = base.mark_point(filled=True, size=70, opacity=1)
    points = points.encode(shape=alt.Shape("ratio:N", legend=legend).scale(domain=domain, range=shapes))
    title = alt.TitleParams("What all swaps cost, beside a plain pass", subtitle=about, anchor="start")
    return alt.layer(base.mark_line(strokeWidth=2), points).properties(width=860, height=280, title=title)
