"""Become another program of ours that dies with its parent.

Run as `python -m workers.exec_with_parent PARENT MODULE [ARGUMENT...]`. The kernel keeps the parent-death signal across
exec, so the program itself does nothing for it.
"""

import os
import signal
import sys

from workers.process import die_with_parent


def main() -> None:
    """Ask to be stopped when the parent ends, then become `python -m MODULE`."""
    parent, module, *arguments = sys.argv[1:]
    # SIGTERM, on which an orphaned supervisor drains; killed, it would take its children with it.
    die_with_parent(int(parent), signal.SIGTERM)
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606 - our own interpreter, no shell


if __name__ == "__main__":
    main()
