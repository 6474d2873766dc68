"""Tables of windows.md, from recorded runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import exp
from pathlib import Path
from typing import Any

from docs.big_models import measured_rates
from ropescope.runs import Run, read_run
from ropescope.studies.bench.estimates import LLAMAS, MACHINES
from ropescope.studies.windows.rankings import RANKINGS
from ropescope.studies.windows.tables import LABELS, behind_best, windows_of

RESULTS = Path(__file__).parents[1] / "results"


@cache
def recorded() -> list[Run]:
    """All recorded studies of windows."""
    return [read_run(folder) for folder in sorted(RESULTS.glob("windows-*"))]


def _name(run: Run) -> str:
    return f"{run.config['model']}, {windows_of(run)}"


def answers(row: dict[str, Any]) -> str:
    """Mean log probability of answers and share of right ones, over both kinds of prompts."""
    kinds = ("binding", "passkey")
    nats, right = ([row[f"{kind}: {name}"] for kind in kinds] for name in ("log probability", "right"))
    return f"{sum(nats) / 2:.2f} ({sum(right) / 2:.0%})"


def ranking_rows() -> list[str]:
    """Every ranking of every run that compares them, the best first."""
    rows = []
    for run in recorded():
        areas = run.results.get("areas")
        if areas is None:
            continue
        correlations, curves = run.results.get("correlations") or {}, run.results["curves"]
        for name in sorted(run.results["scores"], key=lambda name: -areas[name]):
            each, at = correlations.get(name), {row["share"]: row for row in curves[name]}
            whose = "trained" if name not in RANKINGS else "ours" if RANKINGS[name].ours else "rival"
            rho = "not run" if each is None else f"{each['rho']:.2f} ({each['low']:.2f} to {each['high']:.2f})"
            shown = " | ".join(answers(at[share]) if share in at else "not run" for share in (0.25, 0.5, 0.75, 0.9))
            behind = behind_best(run.results, name)
            rows.append(f"| {_name(run)} | {name} ({whose}) | {rho} | {areas[name]:.2f} | {behind} | {shown} |")
        drawn = [name for name in curves if name.startswith("random")]
        if drawn:
            at = {row["share"]: n for n, row in enumerate(curves[drawn[0]])}
            shown = " | ".join(
                _random(curves, drawn, at[share]) if share in at else "not run" for share in (0.25, 0.5, 0.75, 0.9)
            )
            area = sum(areas[name] for name in drawn) / len(drawn)
            rows.append(f"| {_name(run)} | random, mean of {len(drawn)} | - | {area:.2f} | - | {shown} |")
        rows.append(f"| {_name(run)} | nothing windowed | - | {answers(run.results['before'])} | | | | | |")
    return rows


def _random(curves: dict[str, Any], drawn: list[str], number: int) -> str:
    names = ("log probability", "right")
    mean = {
        f"{kind}: {name}": sum(curves[draw][number][f"{kind}: {name}"] for draw in drawn) / len(drawn)
        for kind in ("binding", "passkey")
        for name in names
    }
    return answers(mean)


def split_rows() -> list[str]:
    """The split of every run: what it loses, what it saves, what it cost to find."""
    rows = []
    for run in recorded():
        found = run.results
        cache_of, cost = found.get("cache"), found["calibration"]
        memory = (
            "not run"
            if cache_of is None
            else (
                f"{cache_of['full_bytes'] / 2**20:.1f} to {cache_of['windowed_bytes'] / 2**20:.1f} MB at {cache_of['tokens']:,}"
            )
        )
        same = "not run" if cache_of is None else f"{cache_of['logit_difference']:.0e}"
        words = " to ".join(f"{exp(found[when]['prose: loss']):.2f}" for when in ("before", "after"))
        count = f"{len(found['windowed'])} of {found['candidates']}"
        told = f"{answers(found['before'])} to {answers(found['after'])}"
        passes = f"{cost['plain_passes']:.1f} ({cost['seconds'] / 60:.1f} min)"
        rows.append(f"| {_name(run)} | {run.config['ranking']} | {count} | {told} | {words} | {memory} | {same} | {passes} |")
    return rows


def label_rows() -> list[str]:
    """What every ranking is."""
    return [
        f"| `{name}` | {'ours' if name in RANKINGS and RANKINGS[name].ours else 'rival'} | {label} |"
        for name, label in LABELS.items()
    ]


def estimate_rows() -> list[str]:
    """What calibration of an 8B model would take: as many plain passes as the largest recorded model, and its operations."""
    found = measured_rates()
    cost = max((run for run in recorded()), key=lambda run: run.config["about"]["parameters"]).results["calibration"]
    work = 2 * LLAMAS[0].parameters * cost["plain_passes"] * cost["tokens"] / cost["passages"]
    rows = []
    for machine in MACHINES[:2]:
        seconds = work / (found.flops * machine.cores if machine.flops is None else machine.flops)
        rows.append(f"| {LLAMAS[0].name} | {machine.name} | {cost['plain_passes']:.1f} | {seconds:.0f} s |")
    return rows


TABLES: dict[str, Callable[[], list[str]]] = {
    "window-rankings": ranking_rows,
    "window-splits": split_rows,
    "window-names": label_rows,
    "window-estimates": estimate_rows,
}
