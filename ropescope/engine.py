"""Work spread over processes and machines, with the results it would have here, to the bit.

Work is a function `work(shared, unit)` at the top of a module, and a list of units, each of which can be done anywhere, in any
order and more than once. Either this process does them one after another, or workers of a Ray cluster do them side by side.
Only this process writes results down, by the same lines in both cases; a unit whose worker is lost is begun again.

Ray sends `shared`, units and results from process to process, so they are plain data: numbers, texts, arrays, dataclasses.
Models are no such thing: a worker opens its own.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray

from .runs import kept_arrays

Shared = TypeVar("Shared")
Unit = TypeVar("Unit")
Result = TypeVar("Result")

ENGINES = ("here", "ray")
PATIENCE = 60
"""Seconds in which a cluster must answer."""
CRASHES = 5
"""How often a unit may bring down its worker on a machine that lives on; how often machines are lost is not counted."""
STORE = 128 << 20
"""Bytes in which a cluster started for a run keeps results until they are fetched; what does not fit goes to its disk."""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
"""Ray sends nothing home, does not warn of what it may change one day, and leaves it to us to tell of errors and lost nodes."""
JOIN = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level=40)"


@dataclass(frozen=True)
class Engine:
    """Where units are done.

    name     here: in this process, one after another; ray: by workers of a Ray cluster
    address  of the cluster: host:port, or auto for the one that this machine belongs to; else one is started here for the run
    on_lost  is told the number of a unit that is begun again, as its worker was lost
    """

    name: str = "here"
    address: str | None = None
    on_lost: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {self.name!r}")
        if self.address is not None and self.name != "ray":
            raise ValueError("--address is that of a Ray cluster: add --engine ray")
        if self.address is not None and self.address != "auto":
            host, _, port = self.address.rpartition(":")
            if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
                raise ValueError(f"--address must be host:port of a Ray cluster's head, or auto, not {self.address!r}")


HERE = Engine()


def spread(
    work: Callable[[Shared, Unit], Result],
    shared: Shared,
    units: Sequence[Unit],
    engine: Engine = HERE,
    threads: int | None = None,
) -> Generator[tuple[int, Result]]:
    """The number of each unit and its result, as they come: here in order, from a cluster in any.

    An error in a unit is raised when all units before it have come, and none after it is begun. Workers compute with
    `threads` threads, as many as this process has unless given: their number can change how sums are rounded.
    """
    if engine.name == "here":
        for number, unit in enumerate(units):
            yield number, work(shared, unit)
    elif units:
        with _cluster(engine.address) as ray:
            yield from _over_ray(ray, work, shared, units, threads or torch.get_num_threads(), engine.on_lost)


def in_order(coming: Iterator[tuple[int, Result]]) -> Iterator[Result]:
    """Results of `spread` in the order of units; those that come early are held until it is their turn."""
    early: dict[int, Result] = {}
    turn = 0
    for number, result in coming:
        early[number] = result
        while turn in early:
            yield early.pop(turn)
            turn += 1


def kept(
    paths: Sequence[Path],
    work: Callable[[Shared, Unit], Mapping[str, NDArray[Any]]],
    shared: Shared,
    units: Sequence[Unit],
    engine: Engine = HERE,
) -> Iterator[dict[str, NDArray[Any]]]:
    """Arrays of all units in order, each written to its file as soon as it comes: what is there already is not done again."""
    missing = [number for number, path in enumerate(paths) if not path.exists()]
    there = set(range(len(paths))).difference(missing)
    with closing(spread(work, shared, [units[number] for number in missing], engine)) as coming:
        for number, path in enumerate(paths):
            while number not in there:
                at, arrays = next(coming)
                kept_arrays(paths[missing[at]], lambda arrays=arrays: arrays)  # type: ignore[misc]
                there.add(missing[at])
            yield kept_arrays(path, partial(work, shared, units[number]))


# Ray


def _over_ray(
    ray: Any,
    work: Callable[[Shared, Unit], Result],
    shared: Shared,
    units: Sequence[Unit],
    threads: int,
    on_lost: Callable[[int], None] | None,
) -> Iterator[tuple[int, Result]]:
    _require_room(ray, threads)
    # Lost units are begun again here and not by Ray, which cannot tell a lost machine from a unit that always needs too much.
    do = ray.remote(max_retries=0, num_cpus=threads, scheduling_strategy="SPREAD")(_do)
    everywhere = ray.put((_import_path(work), shared, threads, installation()))
    waiting, under_way, crashes = list(range(len(units))), dict[Any, int](), Counter[int]()
    failed: tuple[int, BaseException] | None = None
    while waiting or under_way:
        while waiting and len(under_way) < 2 * max(1, _slots(ray, threads)):
            number = waiting.pop(0)
            under_way[do.remote(everywhere, units[number])] = number
        done, _ = ray.wait(list(under_way), timeout=1)  # not for ever: there may be more machines by then
        for reference in done:
            number = under_way.pop(reference)
            try:
                result = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                failed = (number, error.cause)
                waiting = [other for other in waiting if other < number]
                for other in [other for other, its in under_way.items() if its > number]:
                    ray.cancel(other)
                    del under_way[other]
                break
            except ray.exceptions.RayError as error:
                _judge_loss(ray, error, number, crashes)
                waiting.insert(0, number)
                if on_lost is not None:
                    on_lost(number)
            else:
                yield number, result
    if failed is not None:
        raise _said(failed[1])


def _judge_loss(ray: Any, error: Exception, number: int, crashes: Counter[int]) -> None:
    """Whether a unit is to be begun again: not if Ray itself failed, or if the unit brings down one worker after another."""
    kinds = ray.exceptions
    if isinstance(error, kinds.NodeDiedError | kinds.ObjectLostError):
        return
    if not isinstance(error, kinds.WorkerCrashedError | kinds.OutOfMemoryError):
        raise error
    crashes[number] += 1
    if crashes[number] >= CRASHES:
        raise ValueError(
            f"a unit of work brought down its worker {CRASHES} times: it may need more memory than the machines have"
        ) from None


def _said(error: BaseException) -> BaseException:
    """What to raise here for an error there."""
    missing = re.search(r"No module named '([\w.]+)'", str(error))
    if missing or "failed to import on the worker" in str(error):
        what = missing[1] if missing else "ropescope"
        return ValueError(f"a worker of the cluster lacks {what}: install what this machine has on all of them")
    return error


def _do(everywhere: tuple[str, Any, int, dict[str, str]], unit: Any) -> Any:
    """What a worker does."""
    path, shared, threads, theirs = everywhere
    for part, its in theirs.items():
        if (own := installation().get(part)) != its:
            raise ValueError(
                f"{part} is {own or 'not there'} on {socket.gethostname()} and {its} where the run was started: "
                "install the same on all machines, or results may differ"
            )
    torch.set_num_threads(threads)
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)(shared, unit)


@cache
def installation() -> dict[str, str]:
    """What results hang on: versions of the parts that compute, and the hash of this package's own code."""
    found = {}
    for part in ("torch", "numpy", "transformers"):
        try:
            found[part] = version(part)
        except PackageNotFoundError:
            found[part] = "not there"
    package = Path(__file__).parent
    code = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        code.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return found | {"the code of ropescope": code.hexdigest()[:12]}


def _import_path(work: Callable[..., Any]) -> str:
    module, name = work.__module__, work.__qualname__
    if module == "__main__" or not name.isidentifier():
        raise ValueError(f"workers import what they do, and {module}.{name} cannot be: put the function at the top of a module")
    return f"{module}:{name}"


def _slots(ray: Any, threads: int) -> int:
    """How many units can be done at once on the machines that are there."""
    return sum(int(node["Resources"].get("CPU", 0) // threads) for node in ray.nodes() if node["Alive"])


def _require_room(ray: Any, threads: int) -> None:
    if not _slots(ray, threads):
        most = max((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
        raise ValueError(
            f"a unit takes {threads} threads and no machine of the cluster has more than {most:g} CPUs: "
            "set OMP_NUM_THREADS to less"
        )


def own_token() -> dict[str, str]:
    """Settings of a cluster that nobody else can use, though Ray's processes listen on every network of the machine.

    Ray reads them when it is imported; if that has been done already, it is left to its own defaults.
    """
    return {} if "ray" in sys.modules else {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """Ray, connected to the cluster; left as it was found."""
    added = QUIET | (own_token() if address is None else {})
    added = {name: value for name, value in added.items() if name not in os.environ}
    os.environ |= added
    try:
        try:
            import ray  # noqa: PLC0415
        except ImportError:
            raise ValueError("--engine ray needs Ray: pip install 'ropescope[ray]'") from None
        if ray.is_initialized():  # by the caller, whose cluster it is then
            yield ray
            return
        how: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            how |= {"address": "local", "include_dashboard": False, "object_store_memory": STORE}
        else:
            _require_answer(address)
            how |= {"address": address}
        try:
            ray.init(**how)
        except Exception as error:
            raise ValueError(f"{_cluster_name(address)} cannot be used: {_first_line(error)}") from None
        try:
            yield ray
        except ray.exceptions.RayError as error:
            raise ValueError(f"Ray failed ({_first_line(error)}): what came is kept; run the same command again") from None
        finally:
            ray.shutdown()
    finally:
        for name in added:
            os.environ.pop(name, None)


def _require_answer(address: str) -> None:
    """Join the cluster in a process of its own first: Ray can hang for minutes, or end the process, if none is there."""
    if address != "auto":
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError as error:
            raise ValueError(f"no Ray cluster answers at {address} ({error.strerror or error}): is it running?") from None
    try:
        tried = subprocess.run(
            [sys.executable, "-c", JOIN, address], timeout=PATIENCE, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"{_cluster_name(address)} did not answer within {PATIENCE} seconds: is it one?") from None
    if "InvalidAuthToken" in tried.stderr:
        raise ValueError(
            f"{_cluster_name(address)} has another token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as it has them"
        )
    if tried.returncode:
        lines = [line for line in tried.stderr.splitlines() if line.strip() and not line.startswith((" ", "["))]
        raise ValueError(f"{_cluster_name(address)} cannot be joined: {(lines or ['Ray gave no reason'])[-1]}")


def _cluster_name(address: str | None) -> str:
    return "a Ray cluster on this machine" if address is None else f"the Ray cluster at {address}"


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
