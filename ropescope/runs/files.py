"""Files written whole or not at all, and their hashes."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from .lock import hold

HELD = re.compile(r"\..+\.[0-9a-f]{8}\.held")
"""Names of lock files: `.NAME.xxxxxxxx.held` is held as long as a live process writes `.NAME.xxxxxxxx.part`."""
PATIENCE = 60.0
"""Seconds: a process that looks for leftovers may hold a new lock file for a moment."""


def write_whole(path: Path, data: str | bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old one or the new one and nothing in between."""
    # Names of files may hold bytes that are not UTF-8: they are written as JSON has them, \udcff.
    content = data.encode(errors="backslashreplace") if isinstance(data, str) else data
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(path.parent)
        with hold(part.with_suffix(".held"), PATIENCE):
            try:
                with part.open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                part.replace(path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
        _sync_names(path.parent)
    except OSError as error:  # under the name of the file that was asked for
        raise OSError(error.errno, error.strerror, str(path)) from error


_cleared: set[Path] = set()


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left half-written, once per folder; files of live processes are held and stay."""
    if folder in _cleared:
        return
    _cleared.add(folder)
    for lock in [path for path in folder.glob(".*.held") if HELD.fullmatch(path.name) and not path.lstat().st_size]:
        with suppress(OSError), hold(lock) as has_locks:  # a lock that another process holds is an OSError, too
            if has_locks:
                lock.with_suffix(".part").unlink(missing_ok=True)


def _sync_names(folder: Path) -> None:
    """Have names on the disk in the order in which files were written, should the machine lose power."""
    with suppress(OSError):  # not every system can open a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sha256(path: Path) -> str:
    """The SHA-256 hash of a file, by which results name it."""
    with path.open("rb") as data:  # not all at once: weights of language models are large
        return hashlib.file_digest(data, "sha256").hexdigest()
