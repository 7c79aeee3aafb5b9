"""Ends processes when their parent ends, however it ends: it reads process ids, one a line, until its input is closed.

Run as `python -m tests.support.reaper`; then it kills the processes that it was given, and all that they have started.
"""

import sys
from contextlib import suppress

import psutil


def main() -> None:
    known = []
    for line in sys.stdin:
        with suppress(psutil.Error):
            known.append(psutil.Process(int(line)))
    for process in known:
        with suppress(psutil.Error):
            if process.is_running():  # the same one, not another with its number
                doomed = [*process.children(recursive=True), process]
                for one in doomed:
                    with suppress(psutil.Error):
                        one.kill()


if __name__ == "__main__":
    main()
