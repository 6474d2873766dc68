"""Rows of the tables on big models, half precision and comparisons; `tables.py` writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from ropescope.studies.bench.estimates import LLAMAS, MACHINES, Measured, estimate, measured

ROOT = Path(__file__).parents[1]


def summary_of(name: str) -> dict:
    """The summary of a recorded run."""
    found: dict = json.loads((ROOT / "results" / name / "summary.json").read_text(encoding="utf-8"))
    return found


def runs_named(start: str) -> list[tuple[str, dict]]:
    """Name (without its start) and summary of the recorded runs whose names start so."""
    names = [path.parent.name for path in sorted((ROOT / "results").glob(f"{start}*/summary.json"))]
    return [(name.removeprefix(start), summary_of(name)) for name in names]


def precision_rows() -> list[str]:
    """Half precision beside float32, of every model."""
    rows = []
    for model, summary in runs_named("bench-precision-"):
        for name, row in summary["results"].items():
            if "refused" in row:
                rows.append(f"| {model} | {name} | refused: {row['refused']} | | | | | |")
                continue
            apart = f"{row['mean']:.4f} | {row['largest']:.3f} | {row['changed']:.1%} of {row['heads']}"
            rows.append(f"| {model} | {name} | {apart} | {row['error']:.1e} | {row['limit']:.1e} | {row['single']:.0e} |")
    return rows


def memory_rows() -> list[str]:
    """Prompts one by one, in a batch, and streamed."""
    from ropescope.studies.bench.tables import DIFFERENCES, WAYS, memory_of  # noqa: PLC0415

    rows = []
    for _, summary in runs_named("bench-memory-"):
        config, found = summary["config"], summary["results"]
        about = f"{config['model']['source']}, {config['dtype']}, {config['count']} prompts of {config['pairs']} sentences"
        for way, row in found.items():
            read = f"{row['read_bytes'] / row['batches'] / row['stored_bytes']:.0%}" if row["stored_bytes"] else "-"
            apart = [f"{row[name]:.0e}" if name in row else "-" for name in DIFFERENCES]
            named = f"{WAYS[way]}, `memory` {config['memory']}" if way == "streamed" else WAYS[way]
            cells = [about if way == "alone" else "", named, str(row["batches"]), f"{row['seconds']:.0f} s"]
            cells += [f"{row['seconds_over_alone']:.2f}x", memory_of(row), read, *apart]
            rows.append(f"| {' | '.join(cells)} |")
    return rows


def measured_rates() -> Measured:
    """The rates that estimates start from, as recorded."""
    profile, streamed = summary_of("bench-profile"), summary_of("bench-memory-qwen2.5-coder-1.5b")
    return measured(profile["results"]["24"], profile["config"]["model"]["parameters"], streamed["results"])


def estimate_rows() -> list[str]:
    """What larger models would take."""
    found, rows = measured_rates(), []
    for shape in LLAMAS:
        for machine in MACHINES:
            at = estimate(shape, machine, found)
            sizes = f"{at['weights'] / 1e9:,.0f} GB | {machine.name} | {at['memory'] / 1e9:,.1f} GB | {at['batches']}"
            minutes = f"{at['seconds'] / 60:,.1f} minutes" if at["seconds"] < 7200 else f"{at['seconds'] / 3600:,.1f} hours"
            rows.append(f"| {shape.name} | {sizes} | {at['read'] / 1e9:,.0f} GB | {minutes} |")
    return rows


def compare_rows() -> list[str]:
    """Recorded comparisons of profiles with the same heads."""
    rows = []
    for _, summary in runs_named("compare-"):
        found = summary["results"]
        if not found["same_heads"]:
            continue
        names, moved = found["names"], found["moves"]
        opposite = moved["positional"]["symbolic"] + moved["symbolic"]["positional"]
        inputs = " and ".join(map(str, dict.fromkeys(found["inputs"])))
        before, after = found["kinds"]
        chance = sum(before[kind] * after[kind] for kind in before if kind != "unscored") / found["heads"] ** 2
        kept = f"{found['kept']} of {found['heads']} ({found['kept'] / found['heads']:.0%}) | {chance:.0%}"
        sizes = f"{found['median_change']:.2g} | {found['largest_change']:.2g} | {found['changed']}"
        rows.append(f"| {names['a']} | {names['b']} | {inputs} | {kept} | {opposite} | {sizes} |")
    return rows


def compare_depth_rows() -> list[str]:
    """Shares of positional and symbolic heads by depth, on both sides of each comparison."""
    rows = []
    for _, summary in runs_named("compare-"):
        found = summary["results"]
        for side, name in enumerate("ab"):
            shares = [f"{part['positional']:.0%}, {part['symbolic']:.0%}" for part in found["depth"][side].values()]
            rows.append(f"| {found['names'][name]} | {' | '.join(shares)} |")
    return list(dict.fromkeys(rows))


TABLES: dict[str, Callable[[], list[str]]] = {
    "precision": precision_rows,
    "memory": memory_rows,
    "estimates": estimate_rows,
    "compare": compare_rows,
    "compare-depth": compare_depth_rows,
}
