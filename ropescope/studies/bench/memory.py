"""What it takes to profile a language model whole, in batches, and streamed from disk: each way in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from ...models.adapter import Adapter
from ...models.load import load_model
from ...models.stream import streams
from ...tasks.prompts import binding_prompts
from ..head_scores import Scoring
from ..profile.run import batches_for, rows_of

SCORES = ("positional", "symbolic")


def bench_memory(
    model: str, count: int, pairs: int, memory: str, dtype: str, seed: int
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The model, and of each way its seconds, peak memory, bytes read, and how far its scores are from those of others.

    Seconds are those of the processor, which other work on the machine changes less than those on the clock; reading files that
    are in memory already counts.

    alone     the whole model in memory, one prompt per forward pass
    batch     the same, all prompts in one pass
    streamed  with so much memory for weights and numbers, as many prompts at once as fit
    """
    ways: dict[str, dict[str, Any]] = {
        "alone": {"batch": 1, "memory": None},
        "batch": {"batch": count, "memory": None},
        "streamed": {"batch": None, "memory": memory},
    }
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
        for other in ("alone", "batch"):
            row[f"difference_from_{other}"] = max(float(np.nanmax(np.abs(scores[way][n] - scores[other][n]))) for n in SCORES)
        row["seconds_over_alone"] = row["seconds"] / found["alone"]["seconds"]
        row["seconds_over_batch"] = row["seconds"] / found["batch"]["seconds"]
    return about, found


def measure_way(asked: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The model, and of one way its seconds, peak memory and bytes read. Scores are written to `out`."""
    loaded = load_model(asked["model"], asked["dtype"], memory=asked["memory"])
    adapter = Adapter(loaded.model)
    prompts = binding_prompts(loaded.tokenizer, asked["count"], asked["pairs"], asked["seed"])
    stream = streams.get(loaded.model)
    before, together = stream.stored.bytes_read if stream else 0, batches_for(adapter, asked["batch"])
    sizes: list[int] = []

    def counting(rest: Any) -> int:
        sizes.append(min(len(rest), max(1, together(rest))))
        return sizes[-1]

    started = time.perf_counter(), time.process_time()
    rows = list(rows_of(adapter, prompts, Scoring(planes=False, sensitivity=False), counting))
    seconds, processor = time.perf_counter() - started[0], time.process_time() - started[1]
    save_file({name: np.stack([row[name] for row in rows]) for name in SCORES}, asked["out"])
    stored = sum(map(stream.stored.bytes_of, stream.stored.entries)) if stream else 0
    found = {
        "seconds": processor,
        "seconds_on_the_clock": seconds,
        "peak_bytes": peak_bytes(),
        "batches": len(sizes),
        "tokens": sum(map(len, prompts)),
        "layers": len(adapter.layers),
        "stored_bytes": stored,
        "read_bytes": stream.stored.bytes_read - before if stream else 0,
    }
    return loaded.about, found


def peak_bytes() -> int:
    """The largest resident memory of this process so far."""
    status = Path("/proc/self/status")
    if status.is_file():  # the other way counts the process that started this one, too
        return 1024 * next(
            int(line.split()[1]) for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM")
        )
    import resource  # noqa: PLC0415  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


if __name__ == "__main__":
    print(json.dumps(measure_way(json.loads(sys.argv[1]))))
