"""What it takes to profile a language model whole, in batches, and streamed from disk: each way in a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from ...models.adapter import Adapter
from ...models.adapter.single import DoublePrecision
from ...models.load import load_model
from ...models.stream import streams
from ...tasks.prompts import binding_prompts
from ..head_scores import Scoring
from ..profile.run import batches_for, rows_of

SCORES = ("positional", "symbolic")
WHOLE = ("alone", "batch", "alone_double")
"""Ways that others are compared with."""
EQUAL = 1e-9
"""Scores that differ by no more are equal in float64."""


def bench_memory(
    model: str, count: int, pairs: int, memory: str, dtype: str, seed: int
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The model, and of each way its seconds, peak memory, bytes read, and how far its scores are from those of others.

    Seconds are those of the processor, which other work on the machine changes less than those on the clock; reading files that
    are in memory already counts.

    alone     the whole model in memory, one prompt per forward pass
    batch     the same, all prompts in one pass
    streamed  with so much memory for weights and numbers, as many prompts at once as fit

    In float64 the first two are repeated as `alone_double` and `batch_double`: nothing is rounded to float32 there, as models
    do in their norms.
    """
    ways: dict[str, dict[str, Any]] = {
        "alone": {"batch": 1, "memory": None},
        "batch": {"batch": count, "memory": None},
        "streamed": {"batch": None, "memory": memory},
    }
    if dtype == "float64":
        ways |= {f"{way}_double": ways[way] | {"double": True} for way in ("alone", "batch")}
    about, found, scores = dict[str, Any](), dict[str, dict[str, Any]](), dict[str, dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        for way, options in ways.items():
            path = Path(folder) / way
            asked = {"model": model, "dtype": dtype, "count": count, "pairs": pairs, "seed": seed, **options, "out": str(path)}
            done = subprocess.run(
                [sys.executable, "-m", __name__, json.dumps(asked)], capture_output=True, encoding="utf-8", check=False
            )
            if done.returncode:
                raise ValueError(f"the benchmark's process failed: {done.stderr.strip().splitlines()[-1]}")
            about, found[way] = json.loads(done.stdout.splitlines()[-1])
            scores[way] = load_file(path)
    for way, row in found.items():
        row |= {
            f"difference_from_{other}": float(_apart(scores[way], scores[other]).max()) for other in found if other in WHOLE
        }
        prompts = _apart(scores[way], scores["alone_double" if way.endswith("_double") else "alone"])
        row |= {"median_difference": float(np.median(prompts)), "prompts_apart": int((prompts > EQUAL).sum())}
        row["seconds_over_alone"] = row["seconds"] / found["alone"]["seconds"]
        row["seconds_over_batch"] = row["seconds"] / found["batch"]["seconds"]
    return about, found


def _apart(one: dict[str, Any], other: dict[str, Any]) -> NDArray[np.float64]:
    """The largest difference of a score of any head, on each prompt."""
    differences = np.stack([np.abs(one[name] - other[name]) for name in SCORES], 1)
    found: NDArray[np.float64] = np.nanmax(differences.reshape(len(differences), -1), 1)
    return found


def measure_way(asked: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The model, and of one way its seconds, peak memory and bytes read. Scores are written to `out`."""
    loaded = load_model(asked["model"], asked["dtype"], memory=asked["memory"])
    at_first = status_bytes("VmRSS")
    adapter = Adapter(loaded.model)
    prompts = binding_prompts(loaded.tokenizer, asked["count"], asked["pairs"], asked["seed"])
    stream = streams.get(loaded.model)
    scoring = Scoring(planes=False, sensitivity=False)
    before, together = stream.stored.bytes_read if stream else 0, batches_for(adapter, asked["batch"], scoring)
    sizes: list[int] = []

    def counting(rest: Any) -> int:
        sizes.append(min(len(rest), max(1, together(rest))))
        return sizes[-1]

    started = time.perf_counter(), time.process_time()
    with DoublePrecision() if asked.get("double") else contextlib.nullcontext():
        rows = list(rows_of(adapter, prompts, scoring, counting))
    seconds, processor = time.perf_counter() - started[0], time.process_time() - started[1]
    save_file({name: np.stack([row[name] for row in rows]) for name in SCORES}, asked["out"])
    stored = sum(map(stream.stored.bytes_of, stream.stored.entries)) if stream else 0
    found = {
        "seconds": processor,
        "seconds_on_the_clock": seconds,
        "peak_bytes": peak_bytes(),
        "bytes_at_first": at_first,
        "batches": len(sizes),
        "tokens": sum(map(len, prompts)),
        "layers": len(adapter.layers),
        "stored_bytes": stored,
        "read_bytes": stream.stored.bytes_read - before if stream else 0,
    }
    return loaded.about, found


def peak_bytes() -> int:
    """The largest resident memory of this process so far."""
    if (found := status_bytes("VmHWM")) is not None:  # the other way counts the process that started this one, too
        return found
    import resource  # noqa: PLC0415  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def status_bytes(name: str) -> int | None:
    """A size of this process by its name in Linux (VmRSS: resident now); None elsewhere."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return None
    lines = status.read_text(encoding="utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    print(json.dumps(measure_way(json.loads(sys.argv[1]))))
