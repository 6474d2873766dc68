"""What a cluster gains, and that it changes nothing: the same work here, on a Ray cluster, and on one that loses a node.

The cluster is a real one of several nodes, each with its own raylet and workers, all on this machine.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...console import silent, tell
from ...models.adapter import Adapter
from ...models.load import Loaded
from ...models.source import source_of
from ...runs import HERE, Engine
from ...runs.cluster import QUIET, own_token
from ...tasks.prompts import binding_prompts
from ..canonical import Settings as Canonical
from ..canonical.findings import findings
from ..canonical.sweeps import stack, trained_units, units
from ..head_scores import Scoring, dataset, packed
from ..profile.run import cached_rows
from ..profile.statistics import statistics
from ..study import Work

STORE = 80_000_000
WATCH = {
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "5",
    "RAY_health_check_timeout_ms": "10000",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_worker_niceness": "0",
}
"""A node that is gone is missed after a few seconds, one that is busy not that soon. Workers have the same share of the machine
as everybody else: at Ray's own niceness of 15 they stand still beside anything else that runs."""
START = "import sys; from ray.scripts.scripts import main; sys.argv[0] = 'ray'; main()"


@dataclass
class Loopback:
    """A Ray cluster whose nodes are all on this machine: a head without CPUs, and nodes with one each."""

    folder: Path
    address: str = ""
    nodes: list[int] = field(default_factory=list)
    """The process session of each node, the head's first."""

    def add(self, *options: str) -> int:
        """Start one more node; returns its number."""
        how = options or ("--address", self.address, "--num-cpus", "1", "--include-log-monitor", "false")
        command = [sys.executable, "-c", START, "start", "--object-store-memory", str(STORE), "--disable-usage-stats", *how]
        with (self.folder / "start.log").open("w+", encoding="utf-8") as log:
            started = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            self.nodes.append(started.pid)
            if started.wait():
                log.seek(0)
                said = [line for line in log if line.strip()] or ["no reason given"]
                raise ValueError(f"a node of the Ray cluster did not start: {said[-1].strip()}")
        return len(self.nodes) - 1

    def kill(self, number: int) -> None:
        """SIGKILL everything of a node at once, its raylet and its workers, as if the machine were gone."""
        listed = subprocess.run(["ps", "-A", "-o", "pid="], capture_output=True, check=True).stdout
        for process in map(int, listed.split()):
            with suppress(ProcessLookupError):
                if os.getsid(process) == self.nodes[number]:
                    os.kill(process, signal.SIGKILL)


@contextmanager
def loopback(nodes: int) -> Iterator[Loopback]:
    """A cluster of so many nodes besides its head; killed at the end, whatever happened."""
    if find_spec("ray") is None:
        raise ValueError("a Ray cluster needs Ray: pip install 'ropescope[ray]'")
    added = QUIET | WATCH | own_token()
    before = {name: os.environ.get(name) for name in added}
    os.environ |= added
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        cluster = Loopback(Path(folder))
        try:
            cluster.add("--head", "--port", "0", "--num-cpus", "0", "--include-dashboard", "false", "--temp-dir", folder)
            cluster.address = (cluster.folder / "ray_current_cluster").read_text(encoding="utf-8").strip()
            for _ in range(nodes):
                cluster.add()
            yield cluster
        finally:
            for number in range(len(cluster.nodes)):
                cluster.kill(number)
            for name, value in before.items():
                os.environ.pop(name, None)
                os.environ |= {} if value is None else {name: value}


@contextmanager
def joined(cluster: Loopback) -> Iterator[None]:
    """Join the cluster once for all that follows, as joining takes seconds."""
    import ray  # noqa: PLC0415

    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


@dataclass(frozen=True)
class Job:
    """Work to be compared: how many units, how to do them into a folder, and what is written of them in the end."""

    name: str
    units: int
    run: Callable[[Path, Engine], Iterator[Any]]
    end: Callable[[Sequence[Any], Path], None]


def profile_job(loaded: Loaded, model: str, count: int, pairs: int, seed: int) -> Job:
    """A profile of so many binding prompts."""
    source = source_of(loaded.model, model, loaded.about["dtype"], False)
    adapter = Adapter(loaded.model)
    prompts = binding_prompts(loaded.tokenizer, count, pairs, seed)
    settings = Scoring(seed=seed)

    def run(folder: Path, engine: Engine) -> Iterator[Any]:
        return cached_rows(adapter if engine.name == "here" else source, prompts, settings, {"pairs": pairs}, folder, engine)

    def end(rows: Sequence[Any], folder: Path) -> None:
        scores = dataset(rows, {"model": loaded.about["source"]})
        (folder / "profile.nc").write_bytes(packed(scores))
        (folder / "results.txt").write_text(repr(statistics(scores)), encoding="utf-8", newline="\n")

    return Job("profile", count, run, end)


def canonical_job(settings: Canonical) -> Job:
    """The sweeps of `ropescope canonical`."""

    def run(folder: Path, engine: Engine) -> Iterator[Any]:
        return trained_units(settings, Work(folder, engine, silent, tell))

    def end(rows: Sequence[Any], folder: Path) -> None:
        (folder / "results.txt").write_text(repr(findings(stack(rows), settings)), encoding="utf-8", newline="\n")

    return Job("canonical", len(units(settings)), run, end)


def bench_engine(job: Job, cluster: Loopback, folder: Path) -> dict[str, Any]:
    """The job here, on the cluster, and on the cluster while its last node is lost: how long, and are all files the same.

    On the cluster twice: at first its workers have to start and open the model.
    """
    lost: list[int] = []
    engine = Engine("ray", cluster.address, lost.append)
    took = {
        "here": _timed(job, folder / "here", HERE),
        "cluster at first": _timed(job, folder / "cluster at first", engine),
        "cluster": _timed(job, folder / "cluster", engine),
        "node lost": _timed(job, folder / "node lost", engine, partial(cluster.kill, len(cluster.nodes) - 1)),
    }
    files = {way: _files(folder / way) for way in took}
    return {
        "units": job.units,
        "seconds": {way: round(seconds, 1) for way, seconds in took.items()},
        "speed_up": took["here"] / took["cluster"],
        "speed_up_at_first": took["here"] / took["cluster at first"],
        "speed_up_with_node_lost": took["here"] / took["node lost"],
        "units_begun_again": len(lost),
        "files": len(files["here"]),
        "same_bytes": all(found == files["here"] for found in files.values()),
    }


def _timed(job: Job, folder: Path, engine: Engine, half_way: Callable[[], None] | None = None) -> float:
    """Seconds until all units are there; `half_way` is called when half of them are."""
    folder.mkdir(parents=True)
    started, rows = time.perf_counter(), []
    for row in job.run(folder, engine):
        rows.append(row)
        if half_way is not None and len(rows) == job.units // 2:
            half_way()
    seconds = time.perf_counter() - started
    job.end(rows, folder)
    return seconds


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
