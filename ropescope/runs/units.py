"""Units of work, done in this process or on a Ray cluster, with the same results to the bit.

Work is a function `work(shared, unit)` at the top level of a module, and a list of units. Each unit can be done anywhere, in
any order and more than once. Only this process writes results, by the same code in both cases; a unit whose worker is lost is
started again.

Ray sends `shared`, units and results between processes, so they must be plain data: numbers, texts, arrays, dataclasses.
Models are not: each worker loads its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from .sealed import cached_arrays

Shared = TypeVar("Shared")
Unit = TypeVar("Unit")
Result = TypeVar("Result")

ENGINES = ("here", "ray")


@dataclass(frozen=True)
class Engine:
    """Where units are done.

    name     here: in this process, one after another; ray: by the workers of a Ray cluster
    address  of the cluster: host:port, or auto for the one that this machine belongs to; if None, one is started here
    on_lost  is called with the number of a unit that is started again because its worker was lost
    """

    name: str = "here"
    address: str | None = None
    on_lost: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {self.name!r}")
        if self.address is not None and self.name != "ray":
            raise ValueError("address is that of a Ray cluster: set engine to ray")
        if self.address is not None and self.address != "auto":
            host, _, port = self.address.rpartition(":")
            if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
                raise ValueError(f"address must be host:port of a Ray cluster's head, or auto, not {self.address!r}")


HERE = Engine()


def spread(
    work: Callable[[Shared, Unit], Result],
    shared: Shared,
    units: Sequence[Unit],
    engine: Engine = HERE,
    threads: int | None = None,
) -> Generator[tuple[int, Result]]:
    """The number of each unit and its result, as they are done: here in order, on a cluster in any order.

    An error in a unit is raised when all units before it are done, and none after it is started. Workers compute with
    `threads` threads, by default as many as this process has: their number can change how sums are rounded.
    """
    if engine.name == "here":
        for number, unit in enumerate(units):
            yield number, work(shared, unit)
    elif units:
        from .cluster import spread_over_ray  # noqa: PLC0415  # Ray is optional

        yield from spread_over_ray(work, shared, units, engine.address, engine.on_lost, threads)


def in_order(coming: Iterator[tuple[int, Result]]) -> Iterator[Result]:
    """Results of `spread` in the order of the units; early ones are held back until it is their turn."""
    early: dict[int, Result] = {}
    turn = 0
    for number, result in coming:
        early[number] = result
        while turn in early:
            yield early.pop(turn)
            turn += 1


def cached_units(
    paths: Sequence[Path],
    work: Callable[[Shared, Unit], Mapping[str, NDArray[Any]]],
    shared: Shared,
    units: Sequence[Unit],
    engine: Engine = HERE,
) -> Iterator[dict[str, NDArray[Any]]]:
    """Arrays of all units in order, each written to its file as soon as it is done; units with a file are not done again."""
    return cached_batches(paths, _singly, (work, shared), units, lambda _: 1, engine)


def _singly(shared: tuple[Callable[[Any, Any], Result], Any], units: Sequence[Any]) -> list[Result]:
    work, inner = shared
    return [work(inner, unit) for unit in units]


def cached_batches(
    paths: Sequence[Path],
    work: Callable[[Shared, Sequence[Unit]], Sequence[Mapping[str, NDArray[Any]]]],
    shared: Shared,
    units: Sequence[Unit],
    together: Callable[[Sequence[Unit]], int],
    engine: Engine = HERE,
) -> Iterator[dict[str, NDArray[Any]]]:
    """The same for work that does several units at once: of those that are missing, `together` says how many are next."""
    missing = [number for number, path in enumerate(paths) if not path.exists()]
    there, batches, rest = set(range(len(paths))).difference(missing), list[list[int]](), missing
    while rest:
        count = max(1, together([units[number] for number in rest]))
        batches.append(rest[:count])
        rest = rest[count:]
    with closing(spread(work, shared, [[units[n] for n in batch] for batch in batches], engine)) as coming:
        for number, path in enumerate(paths):
            while number not in there:
                at, results = next(coming)
                for done, arrays in zip(batches[at], results, strict=True):
                    cached_arrays(paths[done], lambda arrays=arrays: arrays)  # type: ignore[misc]
                    there.add(done)
            yield cached_arrays(path, lambda number=number: work(shared, [units[number]])[0])  # type: ignore[misc]
