"""Units of work on a Ray cluster: joining it, or starting one for the run, and starting lost units again."""

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from ..console import first_line
from .units import Result, Shared, Unit

PATIENCE = 60
"""Seconds in which a cluster must answer."""
CRASHES = 5
"""How often a unit may crash its worker on a machine that stays up; lost machines are not counted."""
STORE = 128 << 20
"""Bytes of memory in which a cluster started for a run holds results until they are fetched; the rest goes to its disk."""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
"""Ray sends no usage statistics, prints no warnings about future versions, and leaves it to us to report errors."""
JOIN = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level=40)"


def spread_over_ray(
    work: Callable[[Shared, Unit], Result],
    shared: Shared,
    units: Sequence[Unit],
    address: str | None,
    on_lost: Callable[[int], None] | None,
    threads: int | None,
) -> Iterator[tuple[int, Result]]:
    """The number of each unit and its result, as workers of the cluster at `address` finish them."""
    with _cluster(address) as ray:
        yield from _over_ray(ray, work, shared, units, threads or torch.get_num_threads(), on_lost)


def _over_ray(
    ray: Any,
    work: Callable[[Shared, Unit], Result],
    shared: Shared,
    units: Sequence[Unit],
    threads: int,
    on_lost: Callable[[int], None] | None,
) -> Iterator[tuple[int, Result]]:
    _require_room(ray, threads)
    # Lost units are started again here and not by Ray, which cannot tell a lost machine from a unit that always needs too much.
    do = ray.remote(max_retries=0, num_cpus=threads, scheduling_strategy="SPREAD")(_do)
    everywhere = ray.put((_import_path(work), shared, threads, installation()))
    waiting, under_way, crashes = list(range(len(units))), dict[Any, int](), Counter[int]()
    failed: tuple[int, BaseException] | None = None
    while waiting or under_way:
        while waiting and len(under_way) < 2 * max(1, _slots(ray, threads)):
            number = waiting.pop(0)
            under_way[do.remote(everywhere, units[number])] = number
        done, _ = ray.wait(list(under_way), timeout=1)  # not forever: machines may have been added by then
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
        raise _explained(failed[1])


def _judge_loss(ray: Any, error: Exception, number: int, crashes: Counter[int]) -> None:
    """Raise the error unless the unit should be started again: if Ray itself failed, or the unit crashes every worker."""
    errors = ray.exceptions
    if isinstance(error, errors.NodeDiedError | errors.ObjectLostError):
        return
    if not isinstance(error, errors.WorkerCrashedError | errors.OutOfMemoryError):
        raise error
    crashes[number] += 1
    if crashes[number] >= CRASHES:
        raise ValueError(
            f"a unit of work crashed its worker {CRASHES} times: it may need more memory than the machines have"
        ) from None


def _explained(error: BaseException) -> BaseException:
    """The error to raise here for an error of a worker."""
    missing = re.search(r"No module named '([\w.]+)'", str(error))
    if missing or "failed to import on the worker" in str(error):
        what = missing[1] if missing else "ropescope"
        return ValueError(f"a worker of the cluster lacks {what}: install what this machine has on all of them")
    return error


def _do(everywhere: tuple[str, Any, int, dict[str, str]], unit: Any) -> Any:
    """The result of a unit, computed by a worker whose installation must be that of the process that started the run."""
    path, shared, threads, theirs = everywhere
    for package, expected in theirs.items():
        if (own := installation().get(package)) != expected:
            raise ValueError(
                f"{package} is {own or 'missing'} on {socket.gethostname()} and {expected} where the run was started: "
                "install the same on all machines, or results may differ"
            )
    torch.set_num_threads(threads)
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)(shared, unit)


@cache
def installation() -> dict[str, str]:
    """What results depend on: versions of the packages that compute, and the hash of the code of this one."""
    found = {}
    for package in ("torch", "numpy", "transformers"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    root = Path(__file__).parents[1]
    code = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        code.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return found | {"the code of ropescope": code.hexdigest()[:12]}


def _import_path(work: Callable[..., Any]) -> str:
    module, name = work.__module__, work.__qualname__
    if module == "__main__" or not name.isidentifier():
        raise ValueError(f"workers cannot import {module}.{name}: put the function at the top level of a module")
    return f"{module}:{name}"


def _slots(ray: Any, threads: int) -> int:
    """How many units can be done at once on the machines that are up."""
    return sum(int(node["Resources"].get("CPU", 0) // threads) for node in ray.nodes() if node["Alive"])


def _require_room(ray: Any, threads: int) -> None:
    if not _slots(ray, threads):
        most = max((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
        raise ValueError(
            f"a unit needs {threads} threads and no machine of the cluster has more than {most:g} CPUs: lower OMP_NUM_THREADS"
        )


def own_token() -> dict[str, str]:
    """Environment variables for a cluster that nobody else can use, though Ray listens on every network of the machine.

    Ray reads them when it is imported; if it is imported already, its own defaults stay.
    """
    return {} if "ray" in sys.modules else {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """The `ray` module, connected to the cluster until the end of the block; the environment is restored."""
    added = QUIET | (own_token() if address is None else {})
    added = {name: value for name, value in added.items() if name not in os.environ}
    os.environ |= added
    try:
        try:
            import ray  # noqa: PLC0415
        except ImportError:
            raise ValueError("engine ray needs Ray: pip install 'ropescope[ray]'") from None
        if ray.is_initialized():  # by the caller, who owns the cluster
            yield ray
            return
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            options |= {"address": "local", "include_dashboard": False, "object_store_memory": STORE}
        else:
            _require_answer(address)
            options |= {"address": address}
        try:
            ray.init(**options)
        except Exception as error:
            raise ValueError(f"{_cluster_name(address)} cannot be used: {first_line(error)}") from None
        try:
            yield ray
        except ray.exceptions.RayError as error:
            raise ValueError(
                f"Ray failed ({first_line(error)}): finished units are stored; run the same command again"
            ) from None
        finally:
            ray.shutdown()
    finally:
        for name in added:
            os.environ.pop(name, None)


def _require_answer(address: str) -> None:
    """Raise a ValueError unless another process can join the cluster: else Ray can hang, or end this process."""
    if address != "auto":
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError as error:
            raise ValueError(f"no Ray cluster answers at {address} ({error.strerror or error}): is it running?") from None
    try:
        tried = subprocess.run(
            [sys.executable, "-c", JOIN, address],
            timeout=PATIENCE,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
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
