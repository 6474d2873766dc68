"""Profiles made by hand, of the shape `ropescope.profile` gives: with trends planted in them, or with none at all."""

import json
from pathlib import Path

import numpy as np
import xarray as xr

from ropescope.measures.view import DRAWS
from ropescope.runs import Run, read_run, write_summary
from ropescope.studies.head_scores import packed
from ropescope.studies.profile.statistics import statistics

TAUS = (1e-5, 1e-4, 1e-3, 1e-2)
BINDING = {"prompts": {"kind": "binding"}}
UNROTATED, UNSCORED, RARELY_SCORED = 12, (3, 4), (20, 0)


def make_profile(trend=True, inputs=20, layers=30, heads=9, planes=32, seed=0):
    """Heads turn from positional to symbolic with depth, and from slow planes to fast ones; without `trend` all is noise.

    One layer does not rotate, one head has no scores, one has them on the first five inputs only, and induction is unknown on
    some inputs.
    """
    draws = np.random.default_rng(seed)
    shape = (inputs, layers, heads)

    def scores(*parts):
        return np.clip(sum(parts), 0.0, 1.0)

    depth = np.linspace(-0.5, 0.5, layers)[:, None] if trend else np.zeros((layers, 1))
    lead = 1.1 * depth + draws.normal(0, 0.25, (layers, heads))
    other = draws.normal(0, 0.05 if trend else 0.25, (layers, heads))
    positional = scores(0.72 - 0.35 * (lead if trend else other), draws.normal(0, 0.03, shape))
    symbolic = scores(0.62 + 0.35 * lead, other if trend else 0, draws.normal(0, 0.03, shape))

    plane = np.arange(1, planes + 1)
    place = (plane - 1) / (planes - 1)
    frequency = np.tile(10_000.0 ** -((plane - 1) / planes), (layers, 1))
    turn = place + 0.25 * lead[..., None] if trend else np.zeros((layers, heads, planes)) + 0.5
    fastest = np.exp(-place / 0.06) if trend else np.zeros(planes)
    mine = draws.normal(0, 0.05, (layers, heads, planes))
    noise = (*shape, planes)
    plane_positional = scores(0.95 - 0.55 / (1 + np.exp(-8 * (turn - 0.6))) + 0.3 * fastest, mine, draws.normal(0, 0.02, noise))
    plane_symbolic = scores(0.45 + 0.5 / (1 + np.exp(-8 * (turn - 0.5))) + 0.5 * fastest, -mine, draws.normal(0, 0.02, noise))
    peak = (0.55 + 0.5 * lead if trend else draws.uniform(0, 1, (layers, heads)))[..., None]
    plane_norm = (0.2 + 3 * np.exp(-(((place - peak) / 0.15) ** 2))) * np.exp(draws.normal(0, 0.2, noise))

    def near(values, size):
        return scores(values, draws.normal(0, size, values.shape))

    of_heads, of_planes = ("input", "layer", "head"), ("input", "layer", "head", "plane")
    share = draws.dirichlet((2, 2, 1), shape)
    if trend:
        share[..., 0] = np.clip(0.45 + 0.5 * (symbolic - positional), 0.02, 0.9)
        share[..., 1] = 0.95 - share[..., 0]
        share[..., 2] = 0.05
    variance = draws.gamma(2.0, 1.0, shape)
    previous = 0.8 * np.clip(-lead, 0, 1) ** 2 if trend else draws.beta(0.5, 6, (layers, heads))
    noise_of_draws = np.random.default_rng(seed + 1).normal(0, 0.1, (2, 1, DRAWS, layers, heads)).repeat(inputs, 1)
    arrays = {
        "positional_redrawn": (("input", "draw", "layer", "head"), 0.6 + noise_of_draws[0]),
        "symbolic_redrawn": (("input", "draw", "layer", "head"), 0.6 - 0.5 * noise_of_draws[0] + 0.5 * noise_of_draws[1]),
        "positional": (of_heads, positional),
        "symbolic": (of_heads, symbolic),
        "symbol_share": (of_heads, share[..., 0]),
        "position_share": (of_heads, share[..., 1]),
        "binding_share": (of_heads, share[..., 2]),
        "entropy": (of_heads, draws.uniform(0.2, 0.9, shape)),
        "exclusion_variance": (of_heads, variance),
        "exclusion_bound": (of_heads, variance * draws.uniform(1.0, 3.0, shape)),
        "previous_token": (of_heads, near(np.tile(previous, (inputs, 1, 1)), 0.01)),
        "induction": (of_heads, near(np.tile(draws.beta(0.3, 8, (layers, heads)), (inputs, 1, 1)), 0.01)),
        "sink": (of_heads, near(np.tile(draws.beta(1, 1, (layers, heads)), (inputs, 1, 1)), 0.05)),
        "on_blocks": (of_heads, draws.uniform(0.1, 0.6, shape)),
        **{
            f"{name}_by_tau": (("tau", *of_heads), np.stack([near(table, 0.02 * n) for n in (1, 0, 2, 4)]))
            for name, table in (("positional", positional), ("symbolic", symbolic))
        },
        "positional_permuted": (of_heads, near(positional, 0.1)),
        "symbolic_permuted": (of_heads, near(symbolic, 0.1)),
        "positional_by_token": (of_heads, scores(positional * 0.9, draws.normal(0, 0.05, shape))),
        "symbolic_by_token": (of_heads, scores(symbolic * 0.9, draws.normal(0, 0.05, shape))),
        "plane_positional": (of_planes, plane_positional),
        "plane_symbolic": (of_planes, plane_symbolic),
        "plane_norm": (of_planes, plane_norm),
        "plane_spread": (of_planes, plane_norm**2 * draws.uniform(0.1, 0.9, noise)),
        "plane_largest": (of_planes, 2 * plane_norm),
        "frequency": (("layer", "plane"), frequency),
        "right": (("input",), np.arange(inputs) % 5 < 3),
        "right_among_choices": (("input",), np.arange(inputs) % 5 < 4),
        "tokens": (("input",), draws.integers(150, 170, inputs)),
        "blocks": (("input",), np.full(inputs, 24)),
        "check_error": (("input", "layer"), draws.uniform(0, 2e-6, (inputs, layers))),
    }
    dataset = xr.Dataset(
        arrays,
        coords={
            "input": np.arange(inputs),
            "layer": np.arange(layers),
            "head": np.arange(heads),
            "plane": plane,
            "tau": list(TAUS),
            "draw": np.arange(DRAWS),
        },
        attrs={"model": "made-by-hand", "precision": "float32", "prompts": f"{inputs} made up", "seed": seed},
    )
    return _with_holes(dataset)


def _with_holes(dataset):
    """What a real profile does not have is NaN: shapes too small to hold the holes stay as they are."""
    if dataset.sizes["layer"] < 30:
        return dataset
    by_head = [name for name, x in dataset.items() if {"input", "layer", "head"} <= set(x.dims)]
    for name in by_head:
        dataset[name][{"layer": UNSCORED[0], "head": UNSCORED[1]}] = np.nan
        dataset[name][{"input": slice(5, None), "layer": RARELY_SCORED[0], "head": RARELY_SCORED[1]}] = np.nan
        if "plane" in dataset[name].dims:
            dataset[name][{"layer": UNROTATED, "plane": slice(1, None)}] = np.nan
    dataset["frequency"][UNROTATED] = np.nan
    dataset["frequency"][UNROTATED, 0] = 0.0
    dataset["induction"][::4] = np.nan
    return dataset


def run_of(dataset: xr.Dataset) -> Run:
    """A run with the statistics of a profile, of which no file was written."""
    summary = {"command": "profile", "config": BINDING, "results": statistics(dataset), "sha256": {}}
    return Run(Path("profile-made-by-hand"), summary)


def write_profile(folder: Path, dataset: xr.Dataset, details=None, **summary) -> Run:
    """The run folder of a profile; `details` are those of a few heads, and `summary` changes config or results."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "profile.nc").write_bytes(packed(dataset))
    files = ["profile.nc"]
    if details is not None:
        (folder / "head_details.json").write_text(json.dumps(details))
        files.append("head_details.json")
    results = statistics(dataset) | summary.get("results", {})
    write_summary(folder, "profile", summary.get("config", {"seed": 0}), results, files)
    return read_run(folder)


def without_planes(dataset: xr.Dataset) -> xr.Dataset:
    """The same profile if planes had not been scored."""
    names = [name for name in dataset.data_vars if str(name).startswith("plane_")]
    return dataset.assign({name: dataset[name] * np.nan for name in names})


def trace_rows(blocks=24):
    """A positional, a symbolic and a mixed head that attend to block 5 (and 9), in the input as it is and after three swaps."""
    rows = []
    for head, kind in (("L2 H1", "positional"), ("L24 H3", "symbolic"), ("L13 H7", "mixed")):
        weights = np.random.default_rng(len(rows)).uniform(0, 0.01, blocks)
        weights[[4, 8]] = 0.3, 0.1
        for first, second in ((None, None), (5, 18), (9, 11), (2, 23)):
            order = np.arange(blocks)
            if first is not None:
                order[[first - 1, second - 1]] = order[[second - 1, first - 1]]
            moved = {"positional": weights, "symbolic": weights[order], "mixed": (weights + weights[order]) / 2}[kind]
            name = "nothing moved" if first is None else f"{first} and {second} swapped"
            rows += [
                {
                    "head": head,
                    "kind": kind,
                    "swap": name,
                    "block": n + 1,
                    "weight": float(weight),
                    "moved": bool(order[n] != n),
                }
                for n, weight in enumerate(moved)
            ]
    return rows


def path_rows(planes=32):
    """Three heads that wander from a corner to where they belong as planes are added."""
    draws, rows = np.random.default_rng(0), []
    goals = {("L2 H1", "positional"): (0.93, 0.3), ("L24 H3", "symbolic"): (0.35, 0.95), ("L13 H7", "mixed"): (0.7, 0.65)}
    for (head, kind), goal in goals.items():
        for kept in range(1, planes + 1):
            near = 1 - 1 / kept
            at = np.clip(near * np.array(goal) + (1 - near) * np.array([0.9, 0.9]) + draws.normal(0, 0.1 / kept, 2), 0, 1)
            rows.append({"head": head, "kind": kind, "kept": kept, "positional": float(at[0]), "symbolic": float(at[1])})
    return rows


def geometry_rows(keys=120):
    """One query and keys of three heads: keys on a circle by position, in clusters, or everywhere."""
    draws, rows = np.random.default_rng(0), []
    for head, kind, plane in (("L2 H1", "positional", 6), ("L24 H3", "symbolic", 29), ("L13 H7", "mixed", 17)):
        angle = {
            "positional": np.arange(keys) * 0.05,
            "symbolic": draws.choice([0.3, 2.5, 4.0], keys),
            "mixed": np.zeros(keys),
        }[kind]
        points = np.stack([np.cos(angle), np.sin(angle)], 1) * draws.uniform(1.5, 2.5, (keys, 1)) + draws.normal(
            0, 0.2, (keys, 2)
        )
        rows += [
            {
                "head": head,
                "kind": kind,
                "plane": plane,
                "what": "key",
                "x": float(x),
                "y": float(y),
                "position": n,
                "block": n // 6,
            }
            for n, (x, y) in enumerate(points)
        ]
        rows.append(
            {"head": head, "kind": kind, "plane": plane, "what": "query", "x": 14.0, "y": 9.0, "position": keys, "block": None}
        )
    return rows
