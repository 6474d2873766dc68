"""Tables and facts of check-rope.md, from recorded runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ropescope.runs import Run, read_run
from ropescope.studies import study_of
from ropescope.studies.check_rope.fault_tables import headline
from ropescope.studies.study import Table

RESULTS = Path(__file__).parents[1] / "results"
RUNTIMES = (
    "check-rope-mlx-smollm2-135m",
    "check-rope-mlx-stories15M",
    "check-rope-mlx-gemma3-270m",
    "check-rope-mlx-qwen2.5-coder-0.5b",
    "check-rope-onnxruntime-stories15M",
    "check-rope-70b-layer",
)


def recorded(name: str) -> Run:
    """A recorded run."""
    return read_run(RESULTS / name)


def printed_rows(name: str) -> list[str]:
    """The first table that the command prints, as rows of Markdown."""
    if not (RESULTS / name).is_dir():
        return ["| not run |"]
    run = recorded(name)
    table: Any = next(part for part in study_of(run).tables(run) if isinstance(part, Table))
    return [f"| {' | '.join(row)} |" for row in table.rows]


def runtime_rows() -> list[str]:
    """One row per dump that was checked."""
    rows = []
    for name in RUNTIMES:
        run = recorded(name)
        model = name.removeprefix("check-rope-").removeprefix("mlx-").removeprefix("onnxruntime-")
        said = "; ".join(run.results["causes"]) or "as claimed"
        rows.append(f"| {run.results['what'].removeprefix('dump of ')} | {model} | {run.results['layers']} | {said} |")
    return rows


def cost_rows() -> list[str]:
    """What a check costs in plain passes."""
    rows = []
    for folder in sorted(RESULTS.glob("check-rope-cost-*")):
        found = recorded(folder.name).results
        cost = found["cost"]
        parameters = f"{found['model']['parameters'] / 1e6:,.0f} million"
        seconds = f"{cost['plain_seconds']:.2f} s | {cost['check_seconds']:.2f} s"
        rows.append(f"| {found['model']['source']} | {parameters} | {seconds} | {cost['check_over_plain']:.2f} |")
    return rows


def alarms() -> str:
    """How many clean models were checked, and how many alarms were false."""
    if not (RESULTS / "rope-faults-tiny").is_dir():
        return "not run"
    rows = recorded("rope-faults-tiny").read("alarms.json") or []
    families = recorded("conformance").read("families.json") or []
    verified = {row["family"] for row in families if row["verdict"] == "verified"}
    own = [row for row in rows if row["family"] in verified]
    false = [row for row in own if row["alarm"] and not row["real"]]
    real = sorted({f"{row['family']} in {row['precision']}" for row in own if row["real"]})
    others = sorted({row["family"] for row in rows if row["alarm"] and row["family"] not in verified})
    return (
        f"{len({row['family'] for row in own})} verified families in float32, float16 and bfloat16, {len(own)} checks, have "
        f"{len(false)} false alarms, and {len(real)} real ones ({', '.join(real)}). Of the others that can be built, "
        f"{' and '.join(others)} depart, whose keys are not rotated contents of single tokens"
    )


def said(name: str) -> str:
    """The headline of a run."""
    return headline(recorded(name)) if (RESULTS / name).is_dir() else "not run"


TABLES: dict[str, Callable[[], list[str]]] = {
    "rope-faults": partial(printed_rows, "rope-faults-smollm2-135m"),
    "rope-faults-long": partial(printed_rows, "rope-faults-minimind2-small"),
    "rope-faults-tiny": partial(printed_rows, "rope-faults-tiny"),
    "rope-runtimes": runtime_rows,
    "rope-cost": cost_rows,
}
FACTS: dict[str, Callable[[], str]] = {
    "rope-faults": partial(said, "rope-faults-smollm2-135m"),
    "rope-faults-long": partial(said, "rope-faults-minimind2-small"),
    "rope-faults-tiny": partial(said, "rope-faults-tiny"),
    "rope-alarms": alarms,
}
