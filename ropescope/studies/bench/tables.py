"""Headline, tables and the labelled dataset of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ...runs import Run
from ..study import Table

if TYPE_CHECKING:
    import xarray as xr

WAYS = {
    "alone": "one by one",
    "batch": "one batch",
    "streamed": "streamed",
    "alone_double": "one by one, float64 throughout",
    "batch_double": "one batch, float64 throughout",
}
"""Ways of the benchmark of memory."""
DIFFERENCES = {
    "difference_from_alone": "from one by one",
    "difference_from_batch": "from one batch",
    "difference_from_alone_double": "from one by one, float64 throughout",
}


def headline(run: Run) -> str:
    """One line on what was timed."""
    what = run.config["what"]
    if what == "ray":
        same = all(row["same_bytes"] for row in run.results.values())
        return f"the same work here and on a Ray cluster that loses a node: {'the same' if same else 'OTHER'} bytes"
    if what == "profile":
        return f"profile of {run.config['model']['source']}"
    if what == "memory":
        peak = run.results["streamed"]["peak_bytes"] / 1e9
        return f"{run.config['model']['source']} streamed from disk with {run.config['memory']}: {peak:.2f} GB at most"
    if what == "precision":
        return f"scores of {run.config['model']['source']} in half precision, beside float32"
    if what == "watch":
        return f"watching {run.config['model']['source']} in fine-tuning takes {run.results['look_share']:.1%} of the time"
    return "scores, sampling and training" if what == "all" else str(what)


def dataset(run: Run) -> xr.Dataset:
    """Every number of the run: by length of input, by job, or single ones."""
    import xarray as xr  # noqa: PLC0415

    rows, along = _rows(run)
    if rows:
        every = [item for row in rows.values() for item in row.items()]
        names = dict.fromkeys(name for name, value in every if isinstance(value, int | float) and name != along)
        found = {name: (along, [_number(row.get(name)) for row in rows.values()]) for name in names}
        return xr.Dataset(found, coords={along: [int(key) if key.isdigit() else key for key in rows]})
    parts = run.results.items() if run.config["what"] == "watch" else _flat(run.results)
    return xr.Dataset({name: value for name, value in parts if isinstance(value, int | float)})


def _number(value: float | None) -> float:
    """What was not timed is NaN."""
    return float("nan") if value is None else value


def _rows(run: Run) -> tuple[Mapping[str, Any], str]:
    along = {"profile": "sentences", "ray": "job", "memory": "way", "precision": "precision"}.get(run.config["what"], "tokens")
    return (run.results if along != "tokens" else run.results.get("scores", {})), along


def _flat(results: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(f"{part}_{name}", value) for part, row in results.items() for name, value in row.items()]


def tables(run: Run) -> list[Table | str]:
    """What the command prints."""
    ways = {"watch": _watch, "profile": _profile, "ray": _ray, "memory": _memory, "precision": _precision}
    if run.config["what"] in ways:
        return ways[run.config["what"]](run.results)
    found: list[Table | str] = []
    if "scores" in run.results:
        found += _scores(list(run.results["scores"].values()))
    if "training" in run.results:
        found += _training(run.results, run.config["samples"])
    return found


def _scores(rows: list[Mapping[str, Any]]) -> list[Table | str]:
    def times(ratio: float | None, digits: int = 0) -> str:
        return "-" if ratio is None else f"{ratio:,.{digits}f}x"

    growth = [""] + [
        f"{row['scores'] / before['scores']:.1f}x, {(row['tokens'] / before['tokens']) ** 2:.1f}x"
        for before, row in pairwise(rows)
    ]
    lines = [
        [
            str(row["tokens"]),
            f"{row['swaps']:,}",
            str(row["inputs"]),
            times(row["scored_over_plain"], 2),
            *(times(row.get(f"faster_than_rerunning_{part}")) for part in ("blocks", "attention")),
            grown,
        ]
        for row, grown in zip(rows, growth, strict=True)
    ]
    titles = ["scored / plain pass", "faster than re-running blocks", "re-running attention", "scores cost, n² grew"]
    return [
        Table(["tokens", "swaps", "inputs", *titles], lines),
        "A scored pass gives both scores of all 12 layers over every swap. Re-running takes a plain pass and then each layer "
        "again for every swap: the whole block, as the code released with paper B does, or only what attention weights need.",
    ]


def _training(results: Mapping[str, Any], samples: int) -> list[Table | str]:
    drawn, trained = results["sampling"], results["training"]
    found: list[Table | str] = []
    for name in ("number", "letter"):
        ratio, seconds = drawn[f"{name}_loop_over_vectorised"], drawn[f"{name}_seconds"]
        took = f"{seconds:.1f} s; a plain Python loop takes {ratio:.0f}x as long"
        found.append(f"{samples:,} sequences of the {name} task: {took}")
    theirs = trained.get("transformers_over_ours")
    if theirs is None:
        found.append("a training step under the Trainer of transformers: left out, as accelerate is not installed")
    else:
        found.append(f"a training step under the Trainer of transformers takes {theirs:.2f}x as long as ours")
    return [*found, f"watching every 50 steps takes {trained['watching_share']:.1%} of training time"]


def _watch(found: Mapping[str, Any]) -> list[Table | str]:
    return [
        f"a look at {found['heads']} heads takes as long as {found['look_over_step']:.2f} steps of {found['batch']} x "
        f"{found['tokens']} tokens: every {found['every']} steps, {found['look_share']:.2%} of training time "
        f"({found['measured_share']:.2%} by steps with looks against steps without)"
    ]


def _profile(rows: Mapping[str, Any]) -> list[Table | str]:
    titles = [
        "scored / plain pass",
        "with planes",
        "everything",
        "error at most",
        "re-running attention takes",
        "scored is faster",
    ]

    def shown(value: float | None, form: str, times: float = 1) -> str:
        return "-" if value is None else form.format(value * times)

    lines = [
        [
            f"{row['tokens']:,}",
            f"{row['pairs']:,} {row.get('moves', 'sentences')}",
            f"{row['swaps']:,}",
            *(shown(row.get(f"{key}_over_plain"), "{:.2f}x") for key in ("scored", "planes", "sensitivity")),
            shown(max((row.get(key) or 0 for key in ("score_error", "plane_error")), default=None), "{:.0e}"),
            shown(row.get("seconds_of_rerunning"), "{:.2f} hours", 1 / 3600),
            shown(row.get("faster_than_rerunning"), "{:,.0f}x"),
        ]
        for row in rows.values()
    ]
    return [Table(["tokens", "what moves", "swaps", *titles], lines)]


def _ray(rows: Mapping[str, Any]) -> list[Table | str]:
    titles = ["work", "units", "speed-up", "at first", "while a node is lost", "units started again", "files, all the same"]
    lines = [
        [
            name,
            str(row["units"]),
            *(f"{row[key]:.2f}x" for key in ("speed_up", "speed_up_at_first", "speed_up_with_node_lost")),
            str(row["units_begun_again"]),
            f"{row['files']}, {'yes' if row['same_bytes'] else 'NO'}",
        ]
        for name, row in rows.items()
    ]
    return [Table(titles, lines)]


def _memory(rows: Mapping[str, Any]) -> list[Table | str]:
    titles = ["way", "passes", "time / one by one", "peak memory", "weights read per pass", *DIFFERENCES.values()]
    lines = [
        [
            WAYS[way],
            str(row["batches"]),
            f"{row['seconds_over_alone']:.2f}x",
            memory_of(row),
            f"{row['read_bytes'] / row['batches'] / row['stored_bytes']:.1%}" if row["stored_bytes"] else "-",
            *(f"{row[name]:.0e}" if name in row else "-" for name in DIFFERENCES),
        ]
        for way, row in rows.items()
    ]
    found: list[Table | str] = [
        Table(titles, lines),
        "The last columns: largest difference of a score of any head on any prompt.",
    ]
    if row := rows.get("batch_double"):
        found.append(
            f"In one batch {rows['batch']['prompts_apart']} prompts differ from one by one by more than 1e-9 (median "
            f"{rows['batch']['median_difference']:.0e}); where nothing is rounded to float32, {row['prompts_apart']} do."
        )
    return found


def memory_of(row: Mapping[str, Any]) -> str:
    """Peak memory of a way; of a streamed model also what the process took before the first pass."""
    before = f", {row['bytes_at_first'] / 1e9:.2f} before" if row["stored_bytes"] and row.get("bytes_at_first") else ""
    return f"{row['peak_bytes'] / 1e9:.2f} GB{before}"


def _precision(rows: Mapping[str, Any]) -> list[Table | str]:
    titles = ["precision", "mean difference", "largest", "heads that change sides", "self-check", "rounding explains"]
    titles += ["layer in float32"]
    lines = [
        [name, f"refused: {row['refused']}", *[""] * 5]
        if "refused" in row
        else [
            name,
            f"{row['mean']:.4f}",
            f"{row['largest']:.3f}",
            f"{row['changed']:.1%}",
            *(f"{row[key]:.1e}" for key in ("error", "limit", "single")),
        ]
        for name, row in rows.items()
    ]
    return [Table(titles, lines)]
