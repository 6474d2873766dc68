"""Files changed at random, and what must hold of a command that reads them. Used by test_fuzz.py."""

import contextlib
import copy
import hashlib
import io
import json
import os
import resource
import signal
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, currently_in_test_context, event, note, settings
from hypothesis import strategies as st

from ropescope import cli, runs

RESULTS = Path(__file__).parents[1] / "results"
NOWHERE = "/proc/nowhere"
"""A folder that cannot be written to: commands that would go on to work for a long time end there."""
SECONDS = 60
"""Of computing, as others may be at work on the same machine."""
MEMORY = 3 << 30
"""That a command may take beside what is loaded."""

usual = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture])


def at_most(examples: int):
    """Fewer examples than the profile asks for, in proportion, for what takes long."""
    return settings(usual, max_examples=max(1, settings.default.max_examples * examples // 60))


# What must hold


def touched(root: Path) -> dict[str, tuple[int, str]]:
    """All that lies below a folder, but for what a command was asked to write."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and "out" not in path.relative_to(root).parts[:1]:
            found[str(path)] = (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
    return found


def too_slow(number, frame):
    raise AssertionError(f"it takes more than {SECONDS} seconds")


def outcome(arguments: list[str], root: Path) -> tuple[int, str]:
    """Exit code and what was said of a command run here, with a home and a working folder in which nothing may change."""
    for name in ("home", "cwd"):
        (root / name).mkdir(exist_ok=True)
        (root / name / "mine.txt").write_text("mine")
    before, said, code = touched(root), io.StringIO(), 0
    here, argv, home = Path.cwd(), sys.argv, os.environ.get("HOME", "")
    least, most = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    clock = signal.signal(signal.SIGPROF, too_slow)
    try:
        os.chdir(root / "cwd")
        os.environ["HOME"] = str(root / "home")
        sys.argv = ["ropescope", *arguments]
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY, most))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            cli.main()
    except SystemExit as leaving:
        code = leaving.code or 0
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, clock)
        resource.setrlimit(resource.RLIMIT_DATA, (least, most))
        os.chdir(here)
        os.environ["HOME"], sys.argv = home, argv
    check(code, said.getvalue())
    assert touched(root) == before
    return code, said.getvalue()


COUNTS: dict[str, dict[str, int]] = {}


@pytest.fixture(autouse=True)
def counted(request):
    """After each test, what came out of its examples."""
    yield
    if folder := os.environ.get("ROPESCOPE_FUZZ"):
        rows = {"examples": sum(map(sum_of, COUNTS.values())), "refused": sum(sum_of(row, "0") for row in COUNTS.values())}
        runs.write_summary(Path(folder), "fuzz", {"examples": settings.default.max_examples}, COUNTS | {"all": rows})


def sum_of(row: dict[str, int], but: str = "") -> int:
    return sum(count for code, count in row.items() if code != but)


def check(code: int, said: str) -> None:
    if currently_in_test_context():
        note(said)
        event(f"code {code}")
        row = COUNTS.setdefault(os.environ["PYTEST_CURRENT_TEST"].split("::")[1].split()[0].removeprefix("test_"), {})
        row[str(code)] = row.get(str(code), 0) + 1
    assert code in (0, 1, 2), said
    assert "Traceback" not in said
    if code:
        last = said.splitlines()[-1]
        assert last.startswith("ropescope: "), said
        assert len([line for line in said.splitlines() if line.startswith("ropescope: ")]) == 1, said
        assert len(last) < 2000


# How files are changed

SIZES = [0, 1, 2, 0x7F, 0xFF, 1 << 16, (1 << 31) - 1, 1 << 32, 1 << 40, (1 << 63) - 1, (1 << 64) - 1]


@st.composite
def changed_bytes(draw, data: bytes, head: int | None = None) -> bytes:
    """A file cut short, with some bytes turned, or with a number in it that is as good as any other."""
    found = bytearray(data)
    places = st.integers(0, max(0, min(len(data), head or len(data)) - 1))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(places)
        match draw(st.sampled_from(["cut", "turn", "number", "short number", "put in", "take out", "again"])):
            case "cut":
                del found[at:]
            case "turn" if at < len(found):
                found[at] ^= 1 << draw(st.integers(0, 7))
            case "number":
                found[at : at + 8] = struct.pack("<Q", draw(st.sampled_from(SIZES)))
            case "short number":
                found[at : at + 4] = struct.pack("<I", draw(st.sampled_from(SIZES)) & 0xFFFFFFFF)
            case "put in":
                found[at:at] = draw(st.binary(max_size=20))
            case "take out":
                del found[at : at + draw(st.integers(1, 20))]
            case _:
                found[at:at] = found[at : at + 40]
    return bytes(found)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([0, 1, -1, 2**31, 10**6, 10**12])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["../../x", "/etc/passwd", "\x1b[2J", "\u202e", "<script>alert(1)</script>", "\x00", "1e999", "nan"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def changed_json(draw, content):
    """Some entries replaced by anything, taken out, renamed, or put in the place of others."""
    found = copy.deepcopy(content)
    for _ in range(draw(st.integers(1, 3))):
        at = found
        while isinstance(at, dict | list) and at:
            key = draw(st.sampled_from(sorted(at))) if isinstance(at, dict) else draw(st.integers(0, len(at) - 1))
            inner = at[key]
            if not (isinstance(inner, dict | list) and inner) or draw(st.integers(0, 3)) == 0:
                break
            at = inner
        if not (isinstance(at, dict | list) and at):
            return draw(anything)
        match draw(st.sampled_from(["replace", "replace", "take out", "rename", "deepen"])):
            case "replace":
                at[key] = draw(anything)
            case "take out":
                del at[key]
            case "rename" if isinstance(at, dict):
                at[draw(st.text(max_size=8))] = at.pop(key)
            case _:
                at[key] = [at[key]]
    return found


@st.composite
def changed_text(draw, content) -> bytes:
    """A JSON file whose entries, or bytes, were changed."""
    if draw(st.integers(0, 4)):
        return json.dumps(draw(changed_json(content))).encode()
    if draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from([b"", b"[" * 100_000, b'{"a":' * 50_000, b"NaN", b"\xff\xfe", b"null", b"\x00" * 64]))
    return draw(changed_bytes(json.dumps(content).encode()))


# Run folders
