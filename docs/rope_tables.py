"""Tables and facts of check-rope.md, from recorded runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ropescope.runs import Run, read_run
from ropescope.studies import study_of
from ropescope.studies.check_rope.fault_tables import by_baseline, faults_of, headline
from ropescope.studies.check_rope.files import AS_IT_IS, PERMUTED
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


def trained() -> list[Run]:
    """Recorded faults of trained models."""
    folders = sorted(RESULTS.glob("rope-faults-*"), key=lambda folder: folder.name.lower())
    return [recorded(folder.name) for folder in folders if folder.name != "rope-faults-tiny"]


LENGTHS = (32, 200, 3000)


def _shown(run: Run, rows: list[dict[str, Any]], way: str, length: int) -> tuple[int, int]:
    """How many faults one way of comparing shows after some tokens, and of how many this was tried."""
    if length not in run.results["lengths"]:
        return 0, 0
    at = run.results["lengths"].index(length)
    tried = [row for row in rows if at < len(row["text_differs"])]
    return sum(by_baseline(run, row, way, at) for row in tried), len(tried)


def _of(found: int, tried: int) -> str:
    return f"{found} of {tried}" if tried else "not run"


def model_rows() -> list[str]:
    """What finds how many faults, by model."""
    rows = []
    for run in trained():
        faults = faults_of(run)
        cells = [str(run.results["model"]["source"]), str(len(faults))]
        cells += [str(sum(bool(row[name]) for row in faults)) for name in ("detected", "layer_named", "cause_named")]
        cells += [_of(*_shown(run, faults, way, length)) for way in ("text", "logits") for length in LENGTHS]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def all_rows() -> list[str]:
    """What finds each fault, over all models."""
    found: dict[str, list[tuple[Run, dict[str, Any]]]] = {}
    for run in trained():
        for row in faults_of(run):
            name = row["fault"] if row["variant"] == AS_IT_IS else f"{row['fault']} ({row['variant']})"
            found.setdefault(name, []).append((run, row))
    rows = []
    for name, cases in found.items():
        seen = [row["tokens"] for _, row in cases if row["detected"]]
        most = "weights alone" if name == PERMUTED else f"{max(seen, default=0)} tokens"
        cells = [name, most]
        cells += [
            _of(sum(bool(row[key]) for _, row in cases), len(cases)) for key in ("detected", "layer_named", "cause_named")
        ]
        for way in ("text", "logits"):
            for length in LENGTHS:
                pairs = [_shown(run, [row], way, length) for run, row in cases]
                cells.append(_of(sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)))
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def weight_rows() -> list[str]:
    """For which pairing weights of each model were trained, as they are and permuted."""
    rows = []
    for run in trained():
        for row in faults_of(run):
            if row["fault"] == PERMUTED:
                clean, permuted = row["clean_leaning"], row["leaning"]
                cells = [
                    run.results["model"]["source"],
                    row["layers"],
                    clean["own"],
                    clean["other"],
                    permuted["own"],
                    permuted["other"],
                ]
                rows.append(f"| {' | '.join(map(str, [*cells, 'yes' if row['detected'] else 'no']))} |")
    return rows


def change_rows() -> list[str]:
    """What has changed between the last two recorded runs over all families."""
    found = recorded("conformance").results.get("changes") or []
    kept = [each for each in found if each["what"] != "reason"]
    return [f"| {each['family']} | {each['what']} | {each['before']} | {each['after']} |" for each in kept]


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
    "rope-faults-all": all_rows,
    "rope-faults-models": model_rows,
    "rope-faults-tiny": partial(printed_rows, "rope-faults-tiny"),
    "rope-weights": weight_rows,
    "rope-runtimes": runtime_rows,
    "rope-cost": cost_rows,
    "family-changes": change_rows,
}
FACTS: dict[str, Callable[[], str]] = {
    "rope-faults": partial(said, "rope-faults-smollm2-135m"),
    "rope-faults-tiny": partial(said, "rope-faults-tiny"),
    "rope-alarms": alarms,
}
