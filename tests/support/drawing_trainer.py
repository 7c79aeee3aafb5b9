"""A trainer that has no order: it tells what it draws, in the lines that two processes must never have in common."""

import os
import random
import socket
import sys
import threading
import time
from typing import Final

from core.mechanisms.generator import SystemGenerator
from core.mechanisms.self_test import noise_line
from workers.forkserver import WORD, fork_for
from workers.process import die_with_parent

LINES: Final = 3
THREAD: Final = "DRAWING_THREAD"
"""Names a wish for a second thread."""


def main() -> None:
    """Draw once, be forked where that is asked for, and tell what is drawn from then on."""
    parent, channel = map(int, sys.argv[1:3])
    die_with_parent(parent)
    generator = SystemGenerator()
    assert noise_line(generator)
    if THREAD in os.environ:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    if sys.argv[3:] == [WORD]:
        orders, channel = fork_for(socket.socket(fileno=channel))
        os.close(orders)
        die_with_parent(parent)
    drawn = noise_line(generator), noise_line(SystemGenerator()), str(random.random())
    os.write(channel, "".join(f"{line}\n" for line in drawn).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
