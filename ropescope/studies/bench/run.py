"""Runs the benchmarks that are asked for."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from ...models.load import Loaded, load_model
from ..canonical import PRESETS
from ..canonical import Settings as Canonical
from ..study import Outcome, Work
from . import Settings, cluster, training
from .memory import bench_memory
from .precision import HALVES, bench_precision
from .profiles import bench_profile, bench_tokens
from .scores import bench
from .watch import BLOCKS, bench_watch


def run(settings: Settings, work: Work) -> Outcome:
    """Seconds and ratios of the parts that are asked for."""
    if settings.model is None:
        return _own(settings, work)
    if settings.what in ("memory", "ray") and sys.platform == "win32":  # peak memory of processes, and killing a group of them
        raise ValueError(f"the benchmark {settings.what} needs Linux or macOS")
    if settings.what == "memory":  # in processes of its own
        return _memory(settings)
    if settings.what == "ray":
        torch.set_num_threads(1)  # as many as a node has CPUs
    loaded = load_model(settings.model, "float32")
    if loaded.tokenizer is None:
        raise ValueError(f"{settings.model} has no tokenizer beside it: prompts need one")
    parts = {"watch": _watch, "profile": _profile, "ray": _ray, "precision": _precision}
    return parts[settings.what](settings, loaded, work)


def _memory(settings: Settings) -> Outcome:
    assert settings.model is not None
    asked: dict[str, Any] = {"count": settings.count, "pairs": settings.pairs[0]}
    asked |= {"memory": settings.memory, "dtype": settings.dtype}
    about, found = bench_memory(settings.model, **asked, seed=settings.seed)
    return Outcome({"what": settings.what, "model": about, **asked, "seed": settings.seed}, found)


def _precision(settings: Settings, loaded: Loaded, work: Work) -> Outcome:
    assert settings.model is not None
    config = _config(settings, loaded, "count") | {"pairs": settings.pairs[0]}
    found = bench_precision(loaded, settings.model, settings.count, settings.pairs[0], settings.seed)
    return Outcome(config, dict(work.progress(found, len(HALVES), "precisions")))


def _own(settings: Settings, work: Work) -> Outcome:
    """What needs no language model: scores of a GPT-J, drawing sequences, training."""
    asked, results = asdict(settings), dict[str, Any]()
    if settings.what != "training":
        timed = bench(list(settings.tokens), settings.rerun_up_to, settings.batch, settings.rounds, settings.seed)
        rows = work.progress(timed, len(settings.tokens), "lengths")
        results["scores"] = {str(row.tokens): asdict(row) | row.ratios() for row in rows}
    if settings.what != "scores":
        results["sampling"] = training.bench_sampling(settings.samples, max(1, settings.rounds // 5), settings.seed)
        results["training"] = training.bench_training(settings.steps, settings.seed)
    named = ("what", "tokens", "rerun_up_to", "batch", "rounds", "samples", "steps", "seed")
    return Outcome({name: asked[name] for name in named}, results)


def _watch(settings: Settings, loaded: Loaded, work: Work) -> Outcome:
    timed = bench_watch(loaded, settings.steps, settings.rounds, settings.seed)
    *_, found = work.progress(timed, settings.rounds + BLOCKS + 1, "rounds")
    return Outcome(_config(settings, loaded, "steps", "rounds"), found)


def _profile(settings: Settings, loaded: Loaded, work: Work) -> Outcome:
    timed = chain(
        (bench_profile(loaded, number, settings.rounds, settings.seed) for number in settings.pairs),
        (bench_tokens(loaded, number, settings.rounds, settings.seed) for number in settings.texts),
    )
    rows = work.progress(timed, len(settings.pairs) + len(settings.texts), "prompts")
    named = {"pairs": list(settings.pairs), "texts": list(settings.texts)}
    config = _config(settings, loaded, "rounds") | named
    return Outcome(config, {str(row["pairs"]): row for row in rows})


def _ray(settings: Settings, loaded: Loaded, work: Work) -> Outcome:
    assert settings.model is not None
    pairs, results = settings.pairs[0], dict[str, Any]()
    jobs = [
        cluster.profile_job(loaded, settings.model, settings.count, pairs, settings.seed),
        cluster.canonical_job(Canonical(**PRESETS["quick"], seed=settings.seed)),
    ]
    with cluster.loopback(settings.nodes) as nodes, cluster.joined(nodes), tempfile.TemporaryDirectory() as folder:
        for job in work.progress(jobs, len(jobs), "jobs"):
            results[job.name] = cluster.bench_engine(job, nodes, Path(folder) / job.name)
            nodes.add()  # in place of the one that was lost
    return Outcome(_config(settings, loaded, "pairs", "count", "nodes") | {"pairs": pairs}, results)


def _config(settings: Settings, loaded: Loaded, *names: str) -> dict[str, Any]:
    asked = asdict(settings)
    named = {name: asked[name] for name in names}
    return {"what": settings.what, "model": loaded.about, **named, "seed": settings.seed}
