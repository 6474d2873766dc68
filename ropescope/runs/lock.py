"""Locks on folders: one process at a time writes to a run folder.

The operating system releases a lock when the process that holds it ends, however it ends. See docs/faults.md.
"""

from __future__ import annotations

import errno
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ..console import tell

LOCK = ".lock"
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
"""Errors of file systems that have no locks."""


@contextmanager
def hold(path: Path, patience: float = 0.0) -> Iterator[bool]:
    """Hold the lock file at `path`, and remove it at the end; yields False where the file system has no locks.

    Raises `filelock.Timeout` if another holder does not release it within `patience` seconds.
    """
    # A lock without the system's help would stay behind when its process is killed: then rather none.
    lock = FileLock(path, timeout=patience, poll_interval=0.1, thread_local=False, fallback_to_soft=False)
    has_locks = True
    try:
        lock.acquire()
    except Timeout:
        raise
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        has_locks = False
    ending = sys.is_finalizing  # when Python ends, `sys` itself may be gone already; the system releases the lock then
    try:
        yield has_locks
    finally:
        if not ending():
            with suppress(OSError):
                path.unlink()  # while it is held: a process that waits for it sees that it is gone and makes another
            lock.release()


@contextmanager
def locked(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold a folder for results, made if need be, against other writers until the end of the block.

    Raises a ValueError if another process holds it and does not release it within `patience` seconds.
    """
    path = new_folder(folder) / LOCK
    if path.is_file() and path.stat().st_size:  # ours are empty; it would be emptied, and removed at the end
        raise ValueError(f"{path} is no lock of ropescope: choose another folder")
    with ExitStack() as held:
        try:
            has_locks = held.enter_context(hold(path, patience))
        except Timeout:
            raise ValueError(f"another process writes to {folder}: wait for it or choose another folder") from None
        if not has_locks:
            tell(f"ropescope: {folder} is on a file system without locks: let no other process write to it")
        yield


def new_folder(path: Path) -> Path:
    """The folder for results, made if need be; raises a ValueError in one sentence if it cannot be written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise ValueError(f"{path} cannot be written to ({error.strerror}): choose another folder") from None
