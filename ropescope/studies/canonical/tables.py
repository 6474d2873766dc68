"""Headline, tables and the labelled dataset of a run on the canonical tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...runs import Run
from ..study import Table

if TYPE_CHECKING:
    import xarray as xr


def headline(run: Run) -> str:
    """One line on what came out."""
    trained = run.results["trained"]
    solved = "; ".join(f"{sweep.capitalize()} is solved {_range(trained['sweeps'][sweep])}" for sweep in ("index", "retrieval"))
    at = trained["crossing"].get("of_means")
    return f"{solved}; {'they do not cross once' if at is None else f'both do equally well at {at:.3g}'}"


def _range(sweep: Mapping[str, Any]) -> str:
    if sweep.get("solved_from") is None:
        return "at no angle"
    return f"at angles from {sweep['solved_from']:.3g} to {sweep['solved_to']:.3g}"


def dataset(run: Run) -> xr.Dataset:
    """Test accuracy over training, and at the end by the place of the answer."""
    import xarray as xr  # noqa: PLC0415

    curves = run.read("curves.json")
    if curves is None:
        raise ValueError(f"{run.folder} holds no curves.json: run the study again")
    sweeps, tasks, seed = list(curves["accuracy"]), list(curves["place"]), run.config["seed"]
    return xr.Dataset(
        {
            "accuracy": (("sweep", "seed", "step", "angle"), [curves["accuracy"][sweep] for sweep in sweeps]),
            "accuracy_by_place": (("task", "seed", "angle", "place"), [curves["place"][task] for task in tasks]),
        },
        coords={
            "sweep": sweeps,
            "task": tasks,
            "seed": list(range(seed, seed + run.config["seeds"])),
            "step": curves["steps"],
            "angle": run.results["trained"]["angles"],
            "place": list(range(run.config["items"])),
        },
    )


def tables(run: Run) -> list[Table | str]:
    """What the command prints."""
    trained, built = run.results["trained"], run.results["built"]
    sweeps, planes, small = trained["sweeps"], trained["planes"], built["every_input"]
    by_angle = [
        [f"{angle:.3g}", *(f"{row['mean'][at]:.3f} ± {row['sd'][at]:.3f}" for row in sweeps.values())]
        for at, angle in enumerate(trained["angles"])
    ]
    scored = [
        [
            name,
            f"{row['beta']:.1f}",
            "" if row.get("accuracy") is None else f"{row['accuracy']:.3f}",
            *(f"{row[key]:.3f}" for key in ("positional", "symbolic")),
        ]
        for name, row in built["scores"].items()
    ]
    right = ", ".join(f"{head} {number}" for head, number in built["limits"]["right_on_both"].items())
    return [
        Table(["angle", *sweeps], by_angle, "Accuracy after training, mean and deviation over seeds"),
        f"trained with planes of 0 and {planes['angle']:.3g}, each plane alone: "
        + ", ".join(f"{name} {mean:.3f}" for name, (mean, *_) in planes["at_best"].items()),
        f"built heads on every input of {len(small['cases'])} small sizes: {small['inputs']:,}, {small['wrong']} wrong",
        Table(["built head", "beta", "accuracy", "positional", "symbolic"], scored),
        f"of {built['limits']['heads_of_each_kind']} random heads, right on both inputs of a counterexample: {right}",
        *(
            f"{row['models']} models of {sweep} at once: {row['one_by_one_over_together']:.1f}x as fast as one after the other"
            for sweep, row in run.results["speed"].items()
        ),
    ]
