"""Where the command begins: Ctrl-C ends it in one sentence from the first moment on, while parts are still being loaded."""

from __future__ import annotations

import os
import signal
import types


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGINT, leave)
    from .cli import main as command  # noqa: PLC0415

    try:
        command()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to be said


def leave(number: int, frame: types.FrameType | None) -> None:
    """End this process at once. While parts are loaded nothing is being written, and an exception may get lost in them."""
    os.write(2, b"ropescope: interrupted; files already written are whole\n")
    os._exit(130)


if __name__ == "__main__":
    main()
