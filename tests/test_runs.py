"""Run folders: one writer, files written whole, hashes that notice damage; on every system that Python runs on."""

import ast
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save

import ropescope
from ropescope import console, runs
from ropescope.runs.lock import hold

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

# One writer

HOLDER = "import sys, time\nfrom pathlib import Path\nfrom ropescope import runs\n"
HOLDER += "with runs.locked(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(600)\n"


def test_a_killed_writer_holds_nothing(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, env=ENVIRONMENT)
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(ValueError, match="another process writes to"), runs.locked(tmp_path):
        pass
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert (tmp_path / ".lock").exists()  # nobody was left to remove it; it means nothing
    with runs.locked(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_who_waits_gets_the_folder(tmp_path):
    """The lock file that it waits for is removed by its holder."""
    from threading import Timer  # noqa: PLC0415

    with runs.locked(tmp_path / "other"):
        pass
    first = runs.locked(tmp_path)
    first.__enter__()
    timer = Timer(0.3, first.__exit__, (None, None, None))
    timer.start()
    with runs.locked(tmp_path, patience=20):
        timer.join()
        assert (tmp_path / ".lock").exists()
        with pytest.raises(ValueError, match="another process"), runs.locked(tmp_path):
            pass


def test_a_lock_that_leads_elsewhere_is_not_followed(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"), runs.locked(tmp_path / "run"):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_leftovers_of_killed_writers_are_removed_and_nothing_else(tmp_path):
    program = "import os, sys, signal\nfrom pathlib import Path\nfrom ropescope import runs\n"
    program += "os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)\n"
    program += "runs.write_whole(Path(sys.argv[1]) / 'a.json', 'half')\n"
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=ENVIRONMENT, check=False).returncode == -9
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".held", ".part"]
    (tmp_path / ".d.json.76543210.held").touch()  # as when a process is killed after it has renamed its file
    mine, alive = tmp_path / ".mine.held", tmp_path / ".b.json.01234567.part"
    for path in (mine, alive):
        path.write_text("not ours")
    with hold(alive.with_suffix(".held")):  # as a live process that writes it does
        runs.write_whole(tmp_path / "c.json", "whole")
        names = {path.name for path in tmp_path.iterdir()}
    assert names == {mine.name, alive.name, alive.with_suffix(".held").name, "c.json"}


# Damage


def test_cached_arrays_that_were_changed_are_computed_again(tmp_path, capsys):
    path, right = tmp_path / "00000.safetensors", {"x": np.arange(5.0)}
    runs.cached_arrays(path, lambda: right)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:-1] + b"\x00", b"", whole.replace(b"sha256", b"sha255"), whole[:20]):
        path.write_bytes(damaged)
        assert np.array_equal(runs.cached_arrays(path, lambda: right)["x"], right["x"])
        line = capsys.readouterr().err
        assert line.startswith(f"ropescope: {path} is damaged (")
        assert line.endswith("): it is computed again\n")
        assert path.read_bytes() == whole
    path.write_bytes(save({"x": np.arange(3.0)}))  # as earlier versions wrote them
    assert len(runs.cached_arrays(path, lambda: right)["x"]) == 3
    assert capsys.readouterr().err == ""


def test_arrays_come_back_bit_for_bit(tmp_path):
    arrays = {"a": np.array([np.nan, -0.0, np.inf]), "b": np.array(3), "c": np.zeros((2, 0), np.float32), "d": np.array([True])}
    path = tmp_path / "x.safetensors"
    path.write_bytes(runs.packed_arrays(arrays))
    found = runs.read_arrays(path)
    for name, values in arrays.items():
        assert found[name].dtype == values.dtype
        assert found[name].shape == values.shape
        assert found[name].tobytes() == values.tobytes()


@pytest.mark.parametrize("text", ["results", "written", "theory"])
def test_a_summary_that_was_changed_is_refused(text, tmp_path):
    (tmp_path / "data.json").write_text("{}")
    path = runs.write_summary(tmp_path, "theory", {"seed": 0}, {"results": 0.1, 3: [None]}, ["data.json"])
    assert runs.read_run(tmp_path).results["results"] == 0.1
    path.write_text(path.read_text().replace(f'"{text}"', f'"{text}s"', 1))
    with pytest.raises(ValueError, match=r"summary.json is damaged \(its content is not what was written\)"):
        runs.read_run(tmp_path)


def test_a_summary_names_files_of_its_own_folder(tmp_path):
    for name in ("../other.json", "/etc/passwd", "a/../../b"):
        summary = {"command": "theory", "config": {}, "results": {}, "sha256": {name: "0"}}
        (tmp_path / "summary.json").write_text(json.dumps(summary))
        with pytest.raises(ValueError, match="names a file outside of its folder"):
            runs.read_run(tmp_path)


@pytest.mark.parametrize("error", [RuntimeError("\n  first \nsecond"), RuntimeError(""), RuntimeError("x" * 1000)])
def test_the_first_line_of_an_error(error):
    assert console.first_line(error) in ("first", "RuntimeError", "x" * 300 + "…")


def test_names_of_files_cannot_steer_a_terminal(tmp_path, capsys):
    path = tmp_path / "\x1b[2J.safetensors"
    path.write_bytes(b"damaged")
    runs.cached_arrays(path, lambda: {"x": np.zeros(1)})
    line = capsys.readouterr().err
    assert line.startswith(f"ropescope: {tmp_path}/\\x1b[2J.safetensors is damaged (")
    assert line.count("\n") == 1


def test_headers_of_safetensors(tmp_path):
    data = save({"x": np.arange(3.0)}, metadata={"a": "b"})
    (tmp_path / "x.safetensors").write_bytes(data)
    header, begin = runs.read_header(data)
    assert runs.read_header(tmp_path / "x.safetensors") == (header, begin)
    assert header["__metadata__"] == {"a": "b"}
    assert begin + header["x"]["data_offsets"][1] == len(data)
    deep = b"[" * 100_000
    for damaged, why in (
        (b"", "longer than the file"),
        ((1 << 62).to_bytes(8, "little") + data[8:], "longer than the file"),
        ((2).to_bytes(8, "little") + b"[]", "has no entries"),
        (len(deep).to_bytes(8, "little") + deep, "nested too deeply"),
        (data[:8] + data[9:] + b" ", "."),
    ):
        with pytest.raises(ValueError, match=why):
            runs.read_header(damaged)


# Every system

UNIX_ONLY = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "posix", "syslog", "readline", "curses"}


SAID_TO_BE_UNIX = {"memory.py": {"resource"}}
"""Benchmarks that are refused on Windows: see the next test."""


@pytest.mark.slow
def test_no_module_imports_what_only_unix_has():
    for path in (ROOT / "ropescope").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            found = UNIX_ONLY.intersection(name.partition(".")[0] for name in names)
            assert found <= SAID_TO_BE_UNIX.get(path.name, set()), path


@pytest.mark.parametrize("what", ["memory", "ray"])
def test_benchmarks_that_need_unix_say_so(what, tmp_path, monkeypatch):
    from ropescope.studies.bench import run as bench  # noqa: PLC0415

    monkeypatch.setattr(bench, "sys", SimpleNamespace(platform="win32"))  # of this module alone: others would look for Windows
    with pytest.raises(ValueError, match=f"^the benchmark {what} needs Linux or macOS$"):
        ropescope.run("bench", what=what, model="x", out=tmp_path / "out", progress=False)


NO_LOCKS = """
import builtins, errno, fcntl, importlib, os, sys
from pathlib import Path

unix_only, modules, folder = sys.argv[1].split(","), sys.argv[2].split(","), Path(sys.argv[3])
real = builtins.__import__

def no_locks(*_):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

fcntl.flock = no_locks
del os.O_NOFOLLOW, os.fchmod

def refusing(name, globals=None, *more, **named):
    if name in unix_only and (globals or {}).get("__name__", "").startswith("ropescope"):
        raise ModuleNotFoundError(name)
    return real(name, globals, *more, **named)

builtins.__import__ = refusing
for module in modules:
    importlib.import_module(module)

from ropescope import runs
for _ in range(2):
    with runs.locked(folder):
        runs.write_whole(folder / "a.json", "whole")
"""


@pytest.mark.slow
def test_the_package_works_without_locks_and_without_what_only_unix_has(tmp_path):
    modules = [module.name for module in pkgutil.walk_packages(ropescope.__path__, "ropescope.")]
    modules = ["ropescope", *(name for name in modules if not name.endswith("__main__"))]
    asked = [sys.executable, "-c", NO_LOCKS, ",".join(UNIX_ONLY), ",".join(modules), str(tmp_path)]
    done = subprocess.run(asked, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("ropescope")]  # other packages speak at import, too
    assert said == 2 * [f"ropescope: {tmp_path} is on a file system without locks: let no other process write to it"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
