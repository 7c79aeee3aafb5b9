"""Attacks on an API over bare sockets, and the waiting time of an honest tenant meanwhile.

Times are ratios: rounds without and with the attack take turns on one service, so that what else the machine does meets
both. All of it is bounded in count and in time, and stays on the loopback address.
"""

import json
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from statistics import median
from urllib.parse import urlsplit

import httpx

from tests.support.api import ROOT, Service

ROUNDS = 2
SAMPLES = 50
"""Of one round."""
LONGEST_SECONDS = 20.0
"""The longest wait of an honest request; a longer one counts as this."""


def address_of(service: Service) -> tuple[str, int]:
    """Return where a service listens."""
    parts = urlsplit(service.url)
    assert parts.hostname
    assert parts.port
    return parts.hostname, parts.port


def head(
    path: str, key: str | None, length: int, *more: str, method: str = "POST", kind: str = "application/json"
) -> bytes:
    """Return the head of a request whose body has `length` bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Type: {kind}", f"Content-Length: {length}", *more]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    return "\r\n".join([*lines, "", ""]).encode()


def opened(service: Service, sent: bytes) -> socket.socket:
    """Return a new connection on which `sent` was sent."""
    connection = socket.create_connection(address_of(service), timeout=10)
    connection.sendall(sent)
    return connection


def status_of(connection: socket.socket, seconds: float) -> int | None:
    """Return the status of the answer on a connection, None where none comes in time."""
    readable, _, _ = select.select([connection], [], [], seconds)
    if not readable:
        return None
    line = connection.recv(65536).split(b"\r\n", 1)[0].split()
    return int(line[1]) if len(line) > 1 else 0


def is_open(connection: socket.socket) -> bool:
    """Tell whether the other side still holds a connection."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def repeated(once: Callable[[], None], threads: int = 1, pause_seconds: float = 0.0) -> Iterator[None]:
    """Do something again and again in some threads for the length of the block."""
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            with suppress(OSError):
                once()
            done.wait(pause_seconds)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        done.set()
        for worker in workers:
            worker.join(2 * LONGEST_SECONDS)


@contextmanager
def hammered(service: Service, request: bytes, connections: int) -> Iterator[None]:
    """Send one request again and again from a process of its own for the length of the block; see `hammer`."""
    host, port = address_of(service)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.hammer", host, str(port), str(connections)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(request)
    process.stdin.close()
    process.stdin = None
    try:
        time.sleep(1)  # until it has begun
        yield
    finally:
        process.terminate()
        said, _ = process.communicate(timeout=LONGEST_SECONDS)
        sys.stdout.write(f"{said.decode()}\n")


def waits(client: httpx.Client, path: str = "/v1/datasets?limit=5", samples: int = SAMPLES) -> list[float]:
    """Return how long an honest tenant waited for each of some answers, in seconds."""
    found = []
    for _ in range(samples):
        started = time.perf_counter()
        try:
            assert client.get(path, timeout=LONGEST_SECONDS).status_code == 200
        except httpx.TimeoutException:
            found.append(LONGEST_SECONDS)
            break  # the attack is felt; nobody waits for the rest of it
        found.append(time.perf_counter() - started)
        time.sleep(0.04)
    return found


def ratio(
    client: httpx.Client, attack: Callable[[], AbstractContextManager[None]], rounds: int = ROUNDS
) -> tuple[float, float]:
    """Return an honest tenant's median wait with an attack over that without, and the longest wait with it in seconds.

    Args:
        client: the tenant.
        attack: returns a context manager that attacks for the length of its block.
        rounds: of each kind, in turn.
    """
    waits(client, samples=5)  # connections and statements are made once
    without: list[float] = []
    with_it: list[float] = []
    for _ in range(rounds):
        without += waits(client)
        with attack():
            time.sleep(0.3)
            with_it += waits(client)
    return median(with_it) / median(without), max(with_it)


def many_values(size: int = 1_000_000, name: int = 100_000) -> bytes:
    """Return a JSON body of so many bytes: one field with a name of so many, and as many values in it as fit."""
    return b'{"' + b"n" * name + b'":[' + b"0," * ((size - name - 8) // 2) + b"0]}"


def wrong_cells(size: int = 500_000) -> bytes:
    """Return a body of `predict` of so many bytes in which every cell is of a wrong type."""
    row = json.dumps({f"c{place}": {} for place in range(20)}, separators=(",", ":"))
    return ('{"rows":[' + ",".join([row] * (size // len(row))) + "]}").encode()
