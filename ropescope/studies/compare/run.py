"""Compares two profiles: those in run folders, or those of two models, which are made first."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...measures.purity import head_kinds
from ...runs import Run, plain, read_profile, read_run
from .. import study_named
from ..runner import make_settings, run_study
from ..study import Outcome, Work
from . import Settings
from .changes import Table, head_changes, leads

if TYPE_CHECKING:
    import xarray as xr

KINDS = ("positional", "mixed", "symbolic", "unscored")
FILE = "heads.csv"
COLUMNS = ("layer", "head", "lead_a", "lead_b", "change", "low", "high", "p_value", "kind_a", "kind_b")
DEPTHS = ("first third", "second third", "last third")


def run(settings: Settings, work: Work) -> Outcome:
    """The outcome of `ropescope compare`. Profiles of models are stored in the folders a and b, and resumed there."""
    runs = [_profiled(name, settings, work) for name in ("a", "b")]
    paths = [found.folder / "profile.nc" for found in runs]
    for found, path in zip(runs, paths, strict=True):
        if not path.is_file():
            raise ValueError(f"{found.folder} holds no scores of single prompts: profile again")
    scores = [read_profile(path) for path in paths]
    about = [
        {"model": each.config["model"], "prompts": each.config["prompts"], "sha256": each.summary["sha256"]["profile.nc"]}
        for each in runs
    ]
    paired = about[0]["prompts"] == about[1]["prompts"] and scores[0].sizes["input"] == scores[1].sizes["input"]
    config = asdict(settings) | {"profiles": dict(zip("ab", about, strict=True))}
    results, table = compared(scores[0], scores[1], paired, seed=settings.seed)
    results["names"] = {name: _called(each, runs) for name, each in zip("ab", runs, strict=True)}
    return Outcome(config, results, {FILE: table} if table else {}, sources=[each.folder for each in runs])


def _profiled(name: str, settings: Settings, work: Work) -> Run:
    """The run of a profile: the one in the folder given, or one made of the model given."""
    source = getattr(settings, name)
    if (Path(source) / "summary.json").is_file():
        found = read_run(Path(source))
        if found.command != "profile":
            raise ValueError(f"{source} holds a run of {found.command}: give the run folder of a profile, or a model")
        return found
    study = study_named("profile")
    chosen = {key: getattr(settings, key) for key in ("prompts", "count", "pairs", "dtype", "seed")}
    asked = make_settings(study, {"model": source, "planes": False, "sensitivity": False, **chosen})
    return run_study(study, asked, work.folder / name, work.engine, work.progress, work.patience).run


def _called(run: Run, runs: list[Run]) -> str:
    """What tells a profile from the other: its model; of one model, precision or prompts; else its folder."""
    words = [
        {**{name: str(each.results[name]) for name in ("model", "precision", "prompts")}, "kind": _kind(each)} for each in runs
    ]
    own = words[runs.index(run)]
    differs = [name for name in own if words[0][name] != words[1][name]]
    if "model" in differs:
        return own["model"]
    if "kind" in differs:  # binding, prose: no need to describe them
        differs.remove("prompts")
    elif "prompts" in differs:
        other = words[1 - runs.index(run)]["prompts"].split(", ")
        own["prompts"] = ", ".join(part for part in own["prompts"].split(", ") if part not in other) or own["prompts"]
    return ", ".join(own[name] for name in ("model", *differs)) if differs else run.name


def _kind(run: Run) -> str:
    """The kind of a profile's prompts, such as binding or prose."""
    about = run.config["prompts"]
    return str(about.get("kind", "")) if isinstance(about, Mapping) else str(about)


def compared(a: xr.Dataset, b: xr.Dataset, paired: bool, seed: int = 0) -> tuple[dict[str, Any], str]:
    """Results for the summary, and a table of heads as CSV; the table is empty if the models have different heads."""
    both = [leads(a), leads(b)]
    kinds = [head_kinds(_mean(each, "positional"), _mean(each, "symbolic")) for each in (a, b)]
    results: dict[str, Any] = {
        "inputs": [len(each) for each in both],
        "paired": paired,
        "kinds": [{kind: int((table == kind).sum()) for kind in KINDS} for table in kinds],
        "depth": [_by_depth(table) for table in kinds],
    }
    if both[0].shape[1:] != both[1].shape[1:]:
        return results | {"same_heads": False}, ""
    flat = [each.reshape(len(each), -1) for each in both]
    found = head_changes(flat[0], flat[1], paired, seed)
    means = [each.mean(0) for each in flat]
    names = [(int(layer), int(head)) for layer in a["layer"].values for head in a["head"].values]
    columns = [*means, *found]
    rows = [
        [*name, *(round(float(column[n]), 6) for column in columns), kinds[0].ravel()[n], kinds[1].ravel()[n]]
        for n, name in enumerate(names)
    ]
    moves = {x: {y: int(((kinds[0] == x) & (kinds[1] == y)).sum()) for y in KINDS} for x in KINDS}
    scored = (kinds[0] != "unscored") & (kinds[1] != "unscored")
    sure = found.p_value < 0.05
    tested = bool(np.isfinite(found.p_value).any())
    results |= {
        "same_heads": True,
        "moves": moves,
        "heads": int(scored.sum()),
        "kept": int((scored & (kinds[0] == kinds[1])).sum()),
        "changed": int(sure.sum()) if tested else None,
        "changed_kind_surely": int((sure & (kinds[0] != kinds[1]).ravel()).sum()) if tested else None,
        "median_change": _known(np.nanmedian(np.abs(found.change))) if np.isfinite(found.change).any() else None,
        "largest_change": _known(np.nanmax(np.abs(found.change))) if np.isfinite(found.change).any() else None,
    }
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *rows])
    return results, text.getvalue()


def _known(value: float) -> float:
    return float(plain(np.asarray(value)))


def _mean(dataset: xr.Dataset, name: str) -> Table:
    """Mean over everything but layer and head, where there are scores."""
    score = dataset[name]
    found: Table = score.mean([dim for dim in score.dims if dim not in ("layer", "head")]).transpose("layer", "head").values
    return found.astype(np.float64)


def _by_depth(kinds: Any) -> dict[str, dict[str, float]]:
    """Share of heads of each kind in each third of the layers."""
    thirds = np.array_split(kinds, 3)
    return {
        name: {kind: round(float((part == kind).mean()), 6) for kind in KINDS}
        for name, part in zip(DEPTHS, thirds, strict=True)
        if part.size
    }
