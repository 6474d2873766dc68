"""Commands in the process of the test, through the program's own `main`: a process of its own takes seconds to import torch."""

import contextlib
import io
import os
import sys
import warnings
from dataclasses import dataclass

from ropescope import cli

HIDDEN = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
"""Warnings that Python does not show to users."""


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object, traceback: str = "1") -> Done:
    """What a command does, also with a mistake of ours, which is raised if `traceback` is given."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    argv, set_before, shown = sys.argv, os.environ.get("ROPESCOPE_TRACEBACK", ""), warnings.showwarning
    try:
        sys.argv, os.environ["ROPESCOPE_TRACEBACK"] = ["ropescope", *map(str, arguments)], traceback
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("default")
            for kind in HIDDEN:
                warnings.simplefilter("ignore", kind)
            cli.main()
    except SystemExit as leaving:
        code = leaving.code or 0
    finally:
        sys.argv, os.environ["ROPESCOPE_TRACEBACK"], warnings.showwarning = argv, set_before, shown
    return Done(code, out.getvalue(), err.getvalue())
