"""Become another program of ours that dies with its parent: `python -m workers.leash PARENT MODULE [ARGUMENT...]`.

The wish is kept across exec, so the program itself needs to know nothing of it.
"""

import os
import signal
import sys

from workers.process import die_with_parent


def main() -> None:
    """Ask to be stopped when the parent ends, then become `python -m MODULE`."""
    parent, module, *arguments = sys.argv[1:]
    die_with_parent(int(parent), signal.SIGTERM)
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606 - our own interpreter, no shell


if __name__ == "__main__":
    main()
