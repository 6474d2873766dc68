"""What the process of one step runs: a study with its settings, given as JSON on the command line."""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

from ... import console


def main() -> None:
    """Run the study and print its tables; end with one sentence and code 2 if it cannot be run with these settings."""
    leave_with_parent()
    from .. import study_named  # noqa: PLC0415
    from ..runner import make_settings, run_study  # noqa: PLC0415

    asked = json.loads(sys.argv[1])
    study = study_named(asked["study"])
    try:
        settings = make_settings(study, asked["settings"], asked["preset"])
        result = run_study(study, settings, Path(asked["out"]), progress=console.silent, patience=10.0)
    except (ValueError, OSError) as error:
        sys.exit(f"ropescope: {console.printable(str(error))}")
    console.say(result.headline)
    print(result.table())  # which is safe text, as it is in Python


def leave_with_parent() -> None:
    """End this process when the one that started it ends, however that ends: its standard input is then closed."""

    def wait() -> None:
        with suppress(OSError):
            while os.read(0, 1024):
                pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
