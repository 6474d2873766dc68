"""Kill commands at random moments, over and over: what was killed is resumed and must end with the files of an undisturbed run.

    python -m tests.soak --points 200 --out out/soak

Every life is a process that runs the command and resumes where the one before was killed. Most are forked from a process that
has loaded torch already, so that kills hit the work; every tenth is the command from a cold start. Moments are uniform over the
time of an undisturbed run, or just after a file has appeared. After each kill every file must be readable; after the last life
of a run all files must be those of the undisturbed run, byte for byte, except for dates and durations. An interrupted soak can
be resumed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import real  # noqa: E402
from test_reproduce import COMMAND, SOAKED  # noqa: E402

from ropescope import runs  # noqa: E402

SHARES = {"train": 0.82, "profile": 0.12, "reproduce": 0.06}
"""The share of all points for each command: a life of `reproduce` takes far longer than one of `train`."""
KILLS = (4, 14)
"""The least and most kills of one run before it may finish."""
TIMES = ("seconds", "processor_seconds", "steps_timed")
"""Entries of results that are durations."""

RECIPE = ['task_sizes={"targets":3,"stops":3,"hops":2}', "samples=[300,60,60]", "layers=2", "width=16", "steps=90", "warm_up=2"]
RECIPE += ["watch_every=10", "checkpoint_every=3", "probe=20", "batch=8"]
WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "then",
    "went",
    "home",
    "with",
    "her",
    "friend",
    "to",
    "see",
    "what",
    "was",
    "for",
    "tea",
]
PROMPTS = 16


@dataclass
class Point:
    """One kill: when it came, and whether a file was being written at that moment."""

    how: str
    cold: bool
    seconds: float
    inside_write: bool


@dataclass
class Tale:
    """One run from its first life to its last, and the faults found in its files."""

    case: str
    number: int
    points: list[Point] = field(default_factory=list)
    files: int = 0
    lost: list[str] = field(default_factory=list)
    corrupt: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)


def arguments(case: str, at: Path, folder: Path) -> list[str]:
    """The command line of a case."""
    if case == "train":
        return ["train", "number", "--resume", "--out", str(folder), *(part for change in RECIPE for part in ("--set", change))]
    if case == "profile":
        source, prompts = str(real.WEIGHTS / "stories15M"), str(at / "prompts.txt")
        return ["profile", source, "--prompts", prompts, "--no-sensitivity", "--out", str(folder)]
    return ["reproduce", "--out", str(folder), "--jobs", "1"]


def write_prompts(path: Path) -> None:
    """Short texts of a few words."""
    draw = random.Random(0)
    texts = ("\n".join(" ".join(draw.choices(WORDS, k=4)) + "." for _ in range(5)) for _ in range(PROMPTS))
    runs.write_whole(path, "\n\n".join(texts) + "\n")


class Life:
    """A process that runs a command and leads its own process group."""

    def __init__(self, case: str, given: list[str], log: Path, cold: bool) -> None:
        self.log = log
        if cold:
            head = ["-c", COMMAND, str(HERE), "SOAKED"] if case == "reproduce" else ["-m", "ropescope"]
            with log.open("wb") as said:
                started = subprocess.Popen(
                    [sys.executable, *head, *given], stdout=said, stderr=said, stdin=subprocess.DEVNULL, start_new_session=True
                )
            self.pid = started.pid
            started.returncode = 0  # waited for here
        else:
            self.pid = os.fork()
            if not self.pid:
                _be(case, given, log)
        self.status: int | None = None

    def ended(self, wait: bool = False) -> bool:
        """Whether it has ended; `status` is its exit code."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, 0 if wait else os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def kill(self, group: bool) -> bool:
        """Kill it; returns whether it was still alive."""
        if self.ended():
            return False
        os.killpg(self.pid, signal.SIGKILL) if group else os.kill(self.pid, signal.SIGKILL)
        self.ended(wait=True)
        return self.status == -signal.SIGKILL


def _be(case: str, given: list[str], log: Path) -> None:
    """Run the command in a forked process."""
    code: Any = 99
    try:
        os.setsid()
        out, nothing = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), os.open(os.devnull, os.O_RDONLY)
        for number, file in enumerate((nothing, out, out)):
            os.dup2(file, number)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
        sys.argv = ["ropescope", *given]
        if case == "reproduce":
            from ropescope.studies.reproduce import run  # noqa: PLC0415

            run.steps = lambda preset, model, chat: SOAKED
        from ropescope.cli import main  # noqa: PLC0415

        main()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 0
    except BaseException:
        import traceback  # noqa: PLC0415

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def stamp(folder: Path) -> dict[str, tuple[int, int]]:
    """Time of change and size of every file in a folder."""
    found: dict[str, tuple[int, int]] = {}
    for at, _, names in os.walk(folder):
        for name in names:
            try:
                about = os.stat(os.path.join(at, name))  # noqa: PTH116, PTH118  # quick: it is done a thousand times a second
            except FileNotFoundError:
                continue
            found[f"{at}/{name}"] = (about.st_mtime_ns, about.st_size)
    return found


def wait(life: Life, folder: Path, draw: random.Random, how: str, usual: float) -> None:
    """Wait until the moment of the kill, or until the process has ended."""
    if how == "uniform":
        until = time.monotonic() + draw.uniform(0, usual)
        while time.monotonic() < until and not life.ended():
            time.sleep(0.004)
        return
    seen, left = stamp(folder), draw.randrange(1, 30)
    while left and not life.ended():
        now = stamp(folder)
        left -= now != seen
        seen = now
        time.sleep(0.004)
    time.sleep(draw.choice((0, draw.uniform(0, 0.02))))


def files(folder: Path) -> dict[str, Path]:
    """Result files by name: all but locks, half-written files and the output of commands."""
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path for name, path in found.items() if not path.name.startswith(".") and path.suffix != ".txt"}


def readable(path: Path) -> bool:
    """Whether a file is whole, by its format and its hash."""
    data = path.read_bytes()
    try:
        if path.suffix == ".json":
            runs.read_sealed(path) if data.startswith(b"{") else json.loads(data)
        elif path.suffix == ".safetensors":
            load(data) if path.name == "model.safetensors" else runs.read_arrays(path)
        elif path.suffix == ".nc":
            runs.read_profile(path)
        elif path.suffix == ".png":
            return data.endswith(b"IEND\xaeB`\x82")
        elif path.suffix in (".html", ".svg"):
            return data.rstrip().endswith((b"</html>", b"</svg>"))
    except (ValueError, SafetensorError):
        return False
    return True


def plain(path: Path) -> Any:
    """The content of a file without dates and durations."""
    if path.suffix == ".html":
        return re.sub(rb"<dt>Written</dt><dd[^>]*>[^<]*</dd>", b"", path.read_bytes())
    if path.suffix != ".json":
        return path.read_bytes()
    return _timeless(json.loads(path.read_text()))


def _timeless(found: Any) -> Any:
    if isinstance(found, list):
        return [_timeless(entry) for entry in found]
    if not isinstance(found, Mapping):
        return found
    left = {key: _timeless(entry) for key, entry in found.items() if key not in (*TIMES, "written", runs.SEAL)}
    if isinstance(made_from := left.get("made_from"), dict):  # hashes of summaries, which tell when they were written
        left["made_from"] = list(made_from)
    return left


def run(tale: Tale, at: Path, usual: float, draw: random.Random, wanted: int) -> None:
    """Kill lives until there are as many kills as wanted, let one finish, and check its files."""
    folder, expected = at / "run", files(at / f"{tale.case}-undisturbed")
    shutil.rmtree(folder, ignore_errors=True)
    given = arguments(tale.case, at, folder)
    seen: set[str] = set()
    for number in range(wanted):
        cold, how = (tale.number + number) % 10 == 9, draw.choice(("uniform", "at a write", "at a write", "at a write"))
        life = Life(tale.case, given, at / "said.txt", cold)
        began = time.monotonic()
        wait(life, folder, draw, how, usual)
        if not life.kill(group=tale.case != "reproduce" or draw.random() < 0.5):
            if life.status != 0 and not _busy(life):
                raise RuntimeError(f"{' '.join(given)} ended with code {life.status}: {life.log.read_text()}")
            continue
        halves = list(folder.rglob(".*.part"))
        tale.points.append(Point(how, cold, round(time.monotonic() - began, 3), bool(halves)))
        now = files(folder)
        tale.lost += sorted(seen - set(now))
        tale.corrupt += [name for name, path in now.items() if path.exists() and not readable(path)]
        seen = set(now)
    for _ in range(60):
        life = Life(tale.case, given, at / "said.txt", cold=False)
        life.ended(wait=True)
        if not _busy(life):
            break
        time.sleep(1)  # processes of a killed `reproduce` are still leaving
    if life.status != 0:
        raise RuntimeError(f"{' '.join(given)} ended with code {life.status}: {life.log.read_text()}")
    found = files(folder)
    tale.files = len(expected)
    tale.lost += sorted(set(expected) - set(found))
    tale.different += sorted(set(found) - set(expected))
    tale.different += [name for name in expected if name in found and plain(found[name]) != plain(expected[name])]
    tale.left_over += [
        str(path.relative_to(folder)) for path in folder.rglob(".*.part")
    ]  # locks that nobody holds do not count
    shutil.rmtree(folder)


def _busy(life: Life) -> bool:
    return life.status == 2 and "another process writes to" in life.log.read_text()


def soak(points: int, at: Path, seed: int, cases: list[str]) -> Iterator[list[Tale]]:
    """All runs so far, after each one, until there are as many kills as wanted."""
    kept = at / "points.json"
    told = [Tale(**{**row, "points": [Point(**point) for point in row["points"]]}) for row in _told(kept)]
    write_prompts(at / "prompts.txt")
    for case in cases:
        wanted = round(points * SHARES[case] / sum(SHARES[case] for case in cases))
        usual = undisturbed(case, at) if sum(len(tale.points) for tale in told if tale.case == case) < wanted else 0.0
        while (have := sum(len(tale.points) for tale in told if tale.case == case)) < wanted:
            tale = Tale(case, sum(tale.case == case for tale in told))
            draw = random.Random(f"{seed} {case} {tale.number}")
            run(tale, at, usual, draw, min(draw.randint(*KILLS), wanted - have))
            told.append(tale)
            runs.write_whole(kept, runs.sealed({"tales": [asdict(tale) for tale in told]}, indent=1))
            yield told


def _told(kept: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = runs.read_sealed(kept)["tales"] if kept.exists() else []
    return found


def undisturbed(case: str, at: Path) -> float:
    """Make the run that others are compared with; returns its seconds."""
    folder = at / f"{case}-undisturbed"
    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    life = Life(case, arguments(case, at, folder), at / "said.txt", cold=False)
    life.ended(wait=True)
    if life.status != 0:
        raise RuntimeError(life.log.read_text())
    return time.monotonic() - began


def counted(told: list[Tale]) -> dict[str, Any]:
    """Counts of kills and faults, by command and in all."""

    def row(tales: list[Tale]) -> dict[str, int]:
        points = [point for tale in tales for point in tale.points]
        found = {"points": len(points), "runs": len(tales), "cold": sum(point.cold for point in points)}
        found |= {"at_writes": sum(point.how != "uniform" for point in points)}
        found |= {"inside_writes": sum(point.inside_write for point in points), "files": sum(tale.files for tale in tales)}
        return found | {
            key: sum(len(getattr(tale, key)) for tale in tales) for key in ("lost", "corrupt", "different", "left_over")
        }

    return {case: row([tale for tale in told if tale.case == case]) for case in SHARES} | {"all": row(told)}


def main() -> None:
    """Parse, run, show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("out/soak"))
    parser.add_argument("--cases", default=",".join(SHARES))
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    # Load what lives need before forking, so that their time goes into work; nothing that starts threads, which a fork loses.
    import altair  # noqa: F401, PLC0415

    with runs.locked(asked.out):
        at, told = asked.out.resolve(), []
        for told in soak(asked.points, at, asked.seed, asked.cases.split(",")):
            tale, done = told[-1], sum(len(tale.points) for tale in told)
            wrong = tale.lost + tale.corrupt + tale.different + tale.left_over
            print(
                f"{done} of {asked.points}: {tale.case}, {len(tale.points)} kills: {', '.join(wrong) or 'all whole'}",
                flush=True,
            )
        results = counted(told)
        runs.write_summary(at, "soak", {"points": asked.points, "seed": asked.seed}, results, ["points.json"])
        for case in SHARES:
            shutil.rmtree(at / f"{case}-undisturbed", ignore_errors=True)
        for name in ("prompts.txt", "said.txt"):
            (at / name).unlink(missing_ok=True)
    print(json.dumps(results["all"]))
    sys.exit(any(results["all"][key] for key in ("lost", "corrupt", "different", "left_over")))


if __name__ == "__main__":
    main()
