"""Charts of all heads: in the positional-symbolic plane, layer by head, over depth, and beside classical scores."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import numpy as np
import xarray as xr

from ...charts import INSIDE, PICKED, TICKS, Chart, across, chart_of, corners, picked, up
from ...measures.intervals import LEAST_INPUTS, mean_of_known
from ...measures.purity import MARGIN
from ..claims import small_p
from .look import DARK_TO_LIGHT, HEAD_TOOLTIP, SCORE_COLOURS, head_names, legend, small_title, titled
from .rows import Stats, head_rows, short, signed
from .statistics import SCORES, Table, by_input, paired_means

CLASSICAL = {"previous_token": "weight on the previous token", "induction": "induction", "sink": "weight on the first token"}


def heads_chart(stats: Stats, about: str) -> Chart:
    """Every head in the positional-symbolic plane by depth; the intervals of the head under the pointer."""
    rows = head_rows(stats)
    pointed = alt.selection_point(on="pointerover", nearest=True, empty=False, fields=["name"])
    base = chart_of(rows)
    points = (
        base.mark_circle(size=55, opacity=0.85, stroke="white", strokeWidth=0.5)
        .encode(
            across("positional"),
            up("symbolic"),
            color=alt.Color("layer:Q", title="layer")
            .scale(scheme=DARK_TO_LIGHT)
            .legend(gradientLength=200, tickCount=6, gradientThickness=10),
            tooltip=HEAD_TOOLTIP,
        )
        .add_params(pointed)
    )
    shown = base.transform_filter(pointed)
    intervals = [
        shown.mark_rule().encode(across("positional_low"), up("symbolic"), x2=alt.X2("positional_high:Q")),
        shown.mark_rule().encode(across("positional"), up("symbolic_low"), y2=alt.Y2("symbolic_high:Q")),
    ]
    ring = base.transform_filter(f"datum.name == {PICKED}").mark_point(size=220, strokeWidth=3, opacity=1, color="black")
    chosen = ring.encode(across("positional"), up("symbolic")).add_params(picked())
    by_lead = sorted(rows, key=lambda row: float(row["difference"]))
    counted, found = stats["kinds"], stats.get("correlation")
    title = f"{len(rows)} heads between places and things"
    reading = (
        f"{counted['positional']} heads are mainly positional (by {MARGIN} or more), {counted['symbolic']} mainly "
        f"symbolic, {counted['mixed']} mixed. Means over {stats['inputs']} prompts; "
    )
    if any(row["positional_low"] is not None for row in rows):
        reading += "point at a head for its 95 % intervals."
    else:
        few = stats["inputs"] < LEAST_INPUTS
        reading += "too few for intervals." if few else "no intervals, as scores of prompts are not kept."
    if found is not None:
        title += f": r = {signed(found['pearson']['r'])}"
        noise = stats.get("noise")  # not in runs of version 0.2 and before
        reading += f" {noise_text(noise)}." if noise else ""
    names = head_names([*by_lead[:1], *by_lead[-1:]])
    plane = alt.layer(*corners(), *intervals, chosen, points, *names).properties(width=480, height=480)
    return titled(plane, 580, title, reading, about)


def noise_text(noise: Stats) -> str:
    """The correlation of scores that noise gives, in words."""
    least, most = signed(min(noise["r"])), signed(max(noise["r"]))
    return f"With logits drawn anew at the same spread r would be {least} to {most} ({len(noise['r'])} draws)"


def sensitivity_chart(dataset: xr.Dataset, stats: Stats, about: str) -> Chart | None:
    """Scores of every head against those taken with other temperatures, tokens, permutations, or on right answers only.

    None if no other way was tried.
    """
    found = stats["sensitivity"]
    usual = {score: by_input(dataset, score) for score in SCORES}
    ways = [
        (f"\N{GREEK SMALL LETTER TAU} = {row['tau']:g}".replace("e-0", "e-"), dataset.isel(tau=n), "by_tau", row)
        for n, row in enumerate(found["tau"])
        if not np.isclose(row["tau"], 1e-4)
    ]
    ways.append(("single tokens for blocks", dataset, "by_token", found["tokens"]))
    ways.append(("random permutations for swaps", dataset, "permuted", found["permutations"]))
    panels = [
        (title, {score: paired_means(usual[score], by_input(part, f"{score}_{suffix}")) for score in SCORES}, row)
        for title, part, suffix, row in ways
        if any(row.get(score) is not None for score in SCORES)
    ]
    row = stats["right_only"].get("all_and_right")
    if row is not None and any(row.get(score) is not None for score in SCORES):
        right = np.asarray(dataset["right"].values, dtype=bool)
        tables = {score: (mean_of_known(usual[score]), mean_of_known(usual[score][right])) for score in SCORES}
        panels.append((f"the {stats['right']} prompts answered right", tables, row))
    if not panels:
        return None
    ranks = [row[score].get("spearman") for _, _, row in panels for score in SCORES if row.get(score) is not None]
    known = [rank for rank in ranks if rank is not None]
    title = "Scores taken in other ways"
    if known:
        title += f": rank correlation with the default from {signed(min(known))} to {signed(max(known))}"
    return titled(
        alt.concat(*(_against_identity(stats, *panel) for panel in panels), columns=4, spacing=20),
        960,
        title,
        "Across: scores as taken by default (swaps of blocks, \N{GREEK SMALL LETTER TAU} = 1e-4, all prompts). "
        "Up: taken otherwise. On the line: no difference. Moved: mean absolute difference over heads.",
        about,
    )


def _against_identity(stats: Stats, title: str, tables: Mapping[str, tuple[Table, Table]], agreed: Stats) -> Chart:
    rows, lines = [], []
    for score, (usual, other) in tables.items():
        rows += [
            {"name": f"L{layer} H{head}", "score": score, "usual": short(usual[n, m]), "other": short(other[n, m])}
            for n, layer in enumerate(stats["layer"])
            for m, head in enumerate(stats["head"])
        ]
        if agreed.get(score) is not None and agreed[score].get("spearman") is not None:
            rank, moved = agreed[score]["spearman"], agreed[score]["mean_absolute_difference"]
            lines.append(f"{score}: rank correlation {signed(rank, 3)}, moved {moved:.3f}")
    x = alt.X("usual:Q", title="by default", scale=INSIDE, axis=TICKS)
    y = alt.Y("other:Q", title="otherwise", scale=INSIDE, axis=TICKS)
    shapes = alt.Scale(domain=list(SCORES), range=["circle", "triangle-up"])
    points = (
        chart_of(rows)
        .mark_point(filled=True, size=18, opacity=0.5)
        .encode(
            x=x,
            y=y,
            color=alt.Color("score:N", scale=SCORE_COLOURS, legend=legend("score")),
            shape=alt.Shape("score:N", scale=shapes, legend=legend("score")),
            tooltip=[alt.Tooltip("name:N"), alt.Tooltip("score:N"), alt.Tooltip("usual:Q"), alt.Tooltip("other:Q")],
        )
    )
    ends = chart_of([{"usual": end, "other": end} for end in (0, 1)])
    line = ends.mark_line(color="black", strokeWidth=1, strokeDash=[4, 3]).encode(x=x, y=y)
    return alt.layer(points, line).properties(width=200, height=200, title=small_title(title, lines))


def classical_chart(dataset: xr.Dataset, stats: Stats, about: str) -> Chart | None:
    """Heads in the positional-symbolic plane, coloured by scores known from elsewhere; None if none of these was measured."""
    rows = head_rows(stats, **{name: mean_of_known(by_input(dataset, name)) for name in CLASSICAL})
    charts, links = [], []
    for name, title in CLASSICAL.items():
        lines = []
        for score in stats["classical"][name]:
            if (found := stats["classical"][name].get(score)) is not None:
                r, p_value = found["spearman"]["r"], found.get("within_layers", {}).get("p_value")
                of_chance = "" if p_value is None else f", {small_p(p_value)}"
                lines.append(f"with {score}: rank correlation {signed(r)}{of_chance}")
                links.append((abs(r), f"{title} and {score} score, rank correlation {signed(r)}"))
        # Heads with high values are drawn last, lest the many low ones cover them.
        known = sorted((row for row in rows if row[name] is not None), key=lambda row: float(row[name]))
        if not known:
            continue
        fields = ("name", "kind", *SCORES, *(f"{score}_text" for score in SCORES), name)
        values = [{field: row[field] for field in fields} for row in known]
        points = (
            chart_of(values)
            .mark_circle(size=45, opacity=1, stroke="white", strokeWidth=0.4)
            .encode(
                across("positional").title("positional score"),
                up("symbolic").title("symbolic score"),
                color=alt.Color(f"{name}:Q", title=None)
                .scale(scheme=alt.SchemeParams(name="purples", extent=[0.2, 1]), domainMin=0)
                .legend(orient="bottom", gradientLength=240, gradientThickness=10, tickCount=5),
                tooltip=[*HEAD_TOOLTIP, alt.Tooltip(f"{name}:Q", title=title)],
            )
        )
        charts.append(points.properties(width=280, height=250, title=small_title(title, lines)))
    if not charts:
        return None
    return titled(
        alt.hconcat(*charts, spacing=28).resolve_scale(color="independent"),
        900,
        f"Strongest link to classical head scores: {max(links)[1]}" if links else "Classical head scores",
        "Induction: weight on the token after an earlier occurrence of the last one. Means over prompts. "
        "p: of the rank correlation within layers, whole layers turned over.",
        about,
    )
