"""Where the command begins: signals end it in one sentence from the first moment on, while parts are still being loaded."""

from __future__ import annotations

import os
import signal
import types

ENDS = {signal.SIGINT: (b"interrupted", 130), signal.SIGTERM: (b"terminated", 143)}


def main() -> None:
    """Run the command line."""
    for number in ENDS:
        signal.signal(number, leave)
    from .cli import main as command  # noqa: PLC0415

    try:
        command()
    finally:
        for number in ENDS:
            signal.signal(number, signal.SIG_DFL)  # nothing is left to be said


def leave(number: int, frame: types.FrameType | None) -> None:
    """End this process at once. While parts are loaded nothing is being written, and an exception may get lost in them."""
    word, code = ENDS[signal.Signals(number)]
    os.write(2, b"ropescope: " + word + b"; files already written are whole\n")
    os._exit(code)


if __name__ == "__main__":
    main()
