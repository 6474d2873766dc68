"""Tables, dataset and heads of a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runs import Run, read_profile
from ..claims import span
from ..study import HeadChoice, Table
from .rows import head_rows

if TYPE_CHECKING:
    import xarray as xr


def headline(run: Run) -> str:
    """How many heads are mainly positional, mainly symbolic, and mixed."""
    found = run.results["kinds"]
    kinds = f"{found['positional']} heads are mainly positional, {found['symbolic']} mainly symbolic, {found['mixed']} mixed"
    return f"{run.results['model']}, {run.results['inputs']} prompts: {kinds}"


def tables(run: Run) -> list[Table | str]:
    """Right answers if any were asked for, the largest error of the check, kinds, correlation, and heads that stand out."""
    results = run.results
    kinds = ", ".join(f"{number} {kind}" for kind, number in results["kinds"].items() if number)
    error, found, noise = (results.get(name) for name in ("worst_check_error", "correlation", "noise"))
    asked = f"{results['inputs']} prompts" + (f", {results['queries']} queries of each" if results.get("queries") else "")
    if results.get("asked", True):
        asked += f"; right on {results['right']}, among the answers offered on {results['right_among_choices']}"
    lines: list[Table | str] = [
        asked,
        f"heads: {kinds}",
    ]
    if error is not None:
        lines.insert(1, f"attention from M differs from the model's own by at most {error:.1e}")
    if found is not None:
        r = f"positional and symbolic scores over heads: r = {found['pearson']['r']:.2f}"
        lines.append(r + (f"; with logits drawn anew at the same spread {span(noise['r'])}" if noise else ""))
    return [*lines, *_named(run)]


def _named(run: Run) -> list[Table | str]:
    """The three most positional and most symbolic heads, and how many cannot be judged."""
    if not (run.folder / "profile.nc").exists() or "judged" not in run.results:
        return []
    from .answers import top_heads  # noqa: PLC0415

    return list(top_heads(dataset(run), 3))


def dataset(run: Run) -> xr.Dataset:
    """Scores of every head on every prompt; of planes the means over prompts."""
    path = run.folder / "profile.nc"
    if not path.exists():
        raise ValueError(f"{run.folder} holds no profile.nc, so only statistics of heads are left: profile again")
    from .answers import register  # noqa: PLC0415

    register()
    return read_profile(path)


def heads(run: Run) -> HeadChoice:
    """Heads with their scores; first the most symbolic one."""
    rows = head_rows(run.results)
    first = max(rows, key=lambda row: float(row["difference"]), default=None)
    described = {
        row["name"]: f"positional {row['positional']:.3f}, symbolic {row['symbolic']:.3f}: {row['kind']}" for row in rows
    }
    kinds = {row["name"]: str(row["kind"]) for row in rows}
    return HeadChoice(run.results["layer"], run.results["head"], first["name"] if first else "", described, kinds)
