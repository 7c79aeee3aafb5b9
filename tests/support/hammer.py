"""A process that sends one request again and again, on some connections at a time, and says which statuses it got.

It is apart from the test that starts it, so that it takes no time from the honest tenant that is timed there. Run it as
`python -m tests.support.hammer HOST PORT CONNECTIONS`, with the request on standard input until its end. It ends, and
prints the statuses as JSON, when SIGTERM comes. Ten `@` in the request are another number each time.
"""

import json
import os
import signal
import socket
import sys
import threading
from collections import Counter
from typing import BinaryIO

NUMBER = b"@" * 10
SECONDS = 60.0


def main() -> None:
    host, port, connections = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    request, seen, done = sys.stdin.buffer.read(), Counter[str](), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: done.set())
    for place in range(connections):
        threading.Thread(target=_hammer, args=((host, port), request, place, seen, done), daemon=True).start()
    done.wait()
    sys.stdout.write(json.dumps(seen))
    sys.stdout.flush()
    os._exit(0)  # whatever the threads still wait for


def _hammer(address: tuple[str, int], request: bytes, place: int, seen: Counter[str], done: threading.Event) -> None:
    connection, number = None, 0
    while not done.is_set():
        try:
            if connection is None:
                connection = socket.create_connection(address, SECONDS)
                answers = connection.makefile("rb")
            number += 1
            connection.sendall(request.replace(NUMBER, b"%03d%07d" % (place, number)))
            status, goes_on = _answer(answers)
            seen[status] += 1
        except OSError:
            goes_on = False
            seen["none"] += 1
        if not goes_on and connection is not None:
            connection.close()
            connection = None


def _answer(answers: BinaryIO) -> tuple[str, bool]:
    """Read one answer, of a stream its first line; return its status, and whether the connection goes on."""
    line = answers.readline().split()
    if len(line) < 2:
        raise ConnectionError
    length, goes_on = 0, True
    while (field := answers.readline().lower()) not in {b"\r\n", b""}:
        name, _, value = field.partition(b":")
        if name == b"content-length":
            length = int(value)
        goes_on &= name != b"transfer-encoding" and not (name == b"connection" and b"close" in value)
    if goes_on:
        answers.read(length)
    else:
        answers.readline()
    return line[1].decode(), goes_on


if __name__ == "__main__":
    main()
