"""Tables of length.md, from recorded runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ropescope.studies.length.claims import PAPER

ROOT = Path(__file__).parents[1]


def results(name: str) -> dict:
    """Results of a recorded run."""
    found: dict = json.loads((ROOT / "results" / name / "summary.json").read_text(encoding="utf-8"))["results"]
    return found


def length_rows(task: str) -> list[str]:
    """Accuracy by length, measured and predicted."""
    found = results(f"generalise-{task}")[task]
    curves, rows = found["curves"], []
    for at, n in enumerate(found["lengths"]):
        measured = curves["measured"]["overall"]
        hops = " | ".join(f"{curves['measured'][f'{h}-hop']['mean'][at]:.2f}" for h in (1, 2, 3, 4))
        others = " | ".join(
            f"{curves[kind]['overall']['mean'][at]:.2f}" for kind in ("keys and places", "keys alone", "sharpened")
        )
        rows.append(f"| {n:,} | {measured['mean'][at]:.3f} ± {measured['sd'][at]:.3f} | {hops} | {others} |")
    return rows


def crossing_rows(task: str) -> list[str]:
    """Where curves fall through 0.9 and 0.5."""
    rows = []
    for level, classes in results(f"generalise-{task}")[task]["crossings"].items():
        at = classes["overall"]
        cells = [
            "-" if at[key] is None else f"{at[key]:,.0f}" for key in ("measured", "keys and places", "keys alone", "sharpened")
        ]
        ratios = [
            "-" if at[f"{kind} / measured"] is None else f"{at[f'{kind} / measured']:.2f}"
            for kind in ("keys and places", "keys alone")
        ]
        rows.append(f"| {task} | {level} | {cells[0]} | {cells[1]} ({ratios[0]}x) | {cells[2]} ({ratios[1]}x) | {cells[3]} |")
    return rows


def variant_rows() -> list[str]:
    """Accuracy of variants of the letter model at 850 tokens."""
    rows = []
    for path in sorted((ROOT / "results" / "length-variants").glob("*/summary.json")):
        summary = json.loads(path.read_text(encoding="utf-8"))
        (found,) = summary["results"].values()
        at = found["lengths"].index(850)
        values = [found["curves"]["measured"][name]["mean"][at] for name in ("overall", "1-hop", "2-hop", "3-hop", "4-hop")]
        rows.append(f"| {path.parent.name} | {' | '.join(f'{value:.2f}' for value in values)} |")
    return rows


def hop_rows(run: str, mixes: tuple[str, ...] = (), recipe: str = "") -> list[str]:
    """Letter models by hop count, and how far each mix is from the paper's points; some mixes or models of one recipe only."""
    found, rows = results(run), []
    at = [found["lengths"].index(length) for length in PAPER["letter"]]
    distances = {tuple(row[key] for key in HOPS_ABOUT): row["distance"] for row in found["distances"]}
    for row in found["curves"]:
        about = tuple(row[key] for key in HOPS_ABOUT)
        if row["task"] == "letter" and recipe in ("", row["recipe"]):
            for name, mix in row["mixes"].items():
                if mixes and name not in mixes:
                    continue
                values = " | ".join(f"{mix['mean'][n]:.2f}" for n in at)
                told = f"{row['name']} ({row['recipe']}, {row['checkpoint']})"
                rows.append(f"| {told} | {row['fillers']} | {name} | {values} | {distances[about][name]:.2f} |")
    return [*rows, "| paper B, approximate | | not printed | " + " | ".join(map(str, PAPER["letter"].values())) + " | |"]


def released_rows() -> list[str]:
    """The same of the models by the released recipe, which were measured in two runs."""
    first, second = (hop_rows(f"hop-lengths-released{ending}", ("1 and 2 hops", "all"), "released") for ending in ("", "-2"))
    return first[:-1] + second  # both end with the paper's points


HOPS_ABOUT = ("name", "task", "checkpoint", "fillers")


TABLES: dict[str, Callable[[], list[str]]] = {
    "length-number": partial(length_rows, "number"),
    "length-letter": partial(length_rows, "letter"),
    "crossings": lambda: crossing_rows("number") + crossing_rows("letter"),
    "variants": variant_rows,
    "hops": partial(hop_rows, "hop-lengths"),
    "hops-released": released_rows,
}
