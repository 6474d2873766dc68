"""Headline, tables and the labelled dataset of a theory run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runs import Run
from ..study import Table

if TYPE_CHECKING:
    import xarray as xr


def headline(run: Run) -> str:
    """One line on what came out."""
    small, bounds = run.results["every_input"], run.results["bounds"]
    return (
        f"built models: {small['wrong']} of {small['valid']:,} inputs wrong; "
        f"printed bound broken at {bounds['index_printed_violated']} lengths, corrected at {bounds['index_corrected_violated']}"
    )


def dataset(run: Run) -> xr.Dataset:
    """Every curve over length."""
    import xarray as xr  # noqa: PLC0415

    curves = run.read("curves.json")
    if curves is None:
        raise ValueError(f"{run.folder} holds no curves.json: run the study again")
    lines = {name: ("length", line) for name, line in curves.items() if name != "length"}
    return xr.Dataset(lines, coords={"length": curves["length"]})


def tables(run: Run) -> list[Table | str]:
    """What the command prints."""
    results = run.results
    small, bounds = results["every_input"], results["bounds"]
    shown: list[Table | str] = [
        f"every input of {len(small['cases'])} small sizes: {small['inputs']:,}, of which {small['valid']:,} have one right "
        f"answer; {small['wrong']} come out wrong"
    ]
    shown += [
        f"{row['inputs']:,} random inputs, {name}: {row['positions']:,} positions, {row['wrong']} wrong "
        f"(beta {row['beta']:.1f})"
        for name, row in results["random_inputs"].items()
    ]
    columns = ["positional", "symbolic", "symbol", "position", "binding"]
    lines = [[name, *(f"{row[key]:.6f}" for key in columns)] for name, row in results["scores"].items()]
    shown.append(Table(["construction", "positional", "symbolic", "symbol share", "position share", "binding share"], lines))
    up_to_100 = bounds["index_printed_violated_up_to_100"]
    shown += [
        f"Index, bound as printed: violated at {len(up_to_100)} lengths up to 100 and {bounds['index_printed_violated']} up to "
        f"{bounds['longest']:,}; corrected: at {bounds['index_corrected_violated']}",
        f"Retrieval, bound as printed: below the largest gap at {bounds['retrieval_printed_below_largest_up_to_100']} lengths "
        f"up to 100, below the smallest at {len(bounds['retrieval_printed_below_smallest_up_to_100'])}; "
        f"the right key wins up to length {bounds['retrieval_right_up_to']}",
    ]
    lengths = ["printed", "corrected", "largest", "smallest"]
    names = [f"index_{key}" for key in lengths] + [f"retrieval_{key}" for key in lengths if key != "corrected"]
    table = [[n, *(f"{row[name]:.4f}" for name in names)] for n, row in bounds["table"].items()]
    shown.append(Table(["length", *(name.replace("_", " ") for name in names)], table))
    rows = [row for row in results["planes"]["rows"] if row["offsets"] == 1000]
    best = ", ".join(f"{row['planes']}: {row['gap']:.2g}" for row in rows)
    return [*shown, f"largest gap found over 1,000 distances, by number of planes: {best}"]
