"""The figure of a study of sharpened heads: loss by the number of keys, and what sharpening changes in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ...charts import COLOURS, Chart, Figure, chart_of
from ...runs import Run
from .names import ALL, BASE, FEW, NONE, POSITIONAL, RANDOM, SYMBOLIC, with_base
from .tables import band_names

SHADES = {
    NONE: "#000000",
    SYMBOLIC: COLOURS["symbolic"],
    POSITIONAL: COLOURS["positional"],
    FEW: "#8C564B",
    ALL: "#CC79A7",
    RANDOM: "#BBBBBB",
}
RIVALS = ("#56B4E9", "#009E73", "#E69F00")
KEYS = "keys that a query sees"
Row = dict[str, Any]


def figures(run: Run) -> dict[str, Figure]:
    """The figure of a run."""
    return {
        "loss": Figure(
            loss_figure(run),
            "Left: lower is better. Beside it, by how much sharpening changes the loss: where the profile tells which heads to "
            "sharpen, orange is below the grey lines of random heads.",
        )
    }


def loss_figure(run: Run) -> Chart:
    """Losses of all choices, and changes of the loss by sharpening with the model's own base and with a larger one."""
    found, config = run.results, run.config
    plain = [name for name, entry in found["choices"].items() if not entry["drawn"]]
    kinds = [name for name in (SYMBOLIC, POSITIONAL, FEW, ALL) if name in plain]
    rivals = [name for name in plain if name not in (NONE, *kinds, *map(with_base, kinds))]
    shades = SHADES | dict(zip(rivals, RIVALS, strict=True))
    names = band_names(found["bands"])
    panels = [_losses(found, [NONE, *kinds, *rivals], names, shades)]
    panels.append(_changes(found, {name: name for name in kinds}, NONE, names, "Changed by sharpening"))
    if BASE in plain:
        several = {name: with_base(name) for name in kinds}
        panels.append(_changes(found, several, BASE, names, f"Changed by sharpening, with a {BASE}"))
    heads = ", ".join(f"{len(own)} {kind}" for kind, own in found["kinds"].items() if own)
    subtitle = [
        f"{config['model']}, {config['passages']} passages of {config['tokens']:,} tokens; heads by the profile: {heads}",
        f"logits of sharpened heads times log n / log {config['start']}; grey: as many random heads as are symbolic",
    ]
    title = alt.TitleParams("Heads sharpened past the trained length", subtitle=subtitle, anchor="start", offset=14)
    return alt.hconcat(*panels, spacing=24).resolve_scale(color="shared").properties(title=title)


def _mean(entry: Mapping[str, Any], band: int) -> float:
    """The mean over passages."""
    values = entry["loss"][band]
    return float(sum(values) / len(values))


def _losses(found: Mapping[str, Any], shown: Sequence[str], names: Sequence[str], shades: Mapping[str, str]) -> Chart:
    rows = [
        {"choice": name, "keys": band, "loss": _mean(found["choices"][name], number)}
        for name in shown
        for number, band in enumerate(names)
    ]
    every = [*shown, RANDOM]
    colour = alt.Color(
        "choice:N", title="sharpened, or instead", legend=alt.Legend(orient="top", columns=5, symbolType="stroke")
    )
    return (
        chart_of(rows)
        .mark_line(point=True, strokeWidth=2)
        .encode(
            alt.X("keys:O", sort=list(names), title=KEYS, axis=alt.Axis(labelAngle=0)),
            alt.Y("loss:Q", title="loss (nats)", scale=alt.Scale(zero=False)),
            color=colour.scale(domain=every, range=[shades[name] for name in every]),
            tooltip=["choice:N", "keys:O", alt.Tooltip("loss:Q", format=".3f")],
        )
        .properties(width=330, height=280, title="Loss")
    )


def _changes(found: Mapping[str, Any], several: Mapping[str, str], without: str, names: Sequence[str], title: str) -> Chart:
    """Changes of the loss, relative to that without sharpening; in grey those of random heads, as many as are symbolic."""
    entries = found["choices"]
    front = with_base(RANDOM) if without == BASE else RANDOM
    lines = {name: (RANDOM, entry) for name, entry in entries.items() if entry["drawn"] and name.startswith(front)}
    lines |= {name: (name, entries[full]) for name, full in several.items()}
    rows = [
        {"choice": kind, "line": line, "keys": band, "change": _mean(entry, number) - _mean(entries[without], number)}
        for line, (kind, entry) in lines.items()
        for number, band in enumerate(names)
    ]
    random = alt.datum.choice == RANDOM
    base = chart_of(rows).encode(
        alt.X("keys:O", sort=list(names), title=KEYS, axis=alt.Axis(labelAngle=0)),
        alt.Y("change:Q", title="change of the loss (nats)", scale=alt.Scale(zero=True)),
        color=alt.Color("choice:N"),
        detail="line:N",
        tooltip=["choice:N", "keys:O", alt.Tooltip("change:Q", format="+.3f")],
    )
    layers = [
        base.transform_filter(random).mark_line(strokeWidth=1),
        chart_of([{"change": 0}]).mark_rule(color="#000000").encode(alt.Y("change:Q")),
        base.transform_filter(alt.datum.choice != RANDOM).mark_line(point=True, strokeWidth=2),
    ]
    return alt.layer(*layers).properties(width=300, height=280, title=title)
