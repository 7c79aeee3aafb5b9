"""Attacks on connections, against the front proxy: slow heads and bodies, half-open connections, floods of them."""

import json
import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import pairwise
from urllib.parse import urlsplit

import httpx
import pytest

from tests.stack.containers import container, docker, run_python
from tests.support.api import job, submit, upload
from tests.support.load import head, ratio, repeated
from tests.support.targets import TARGETS, Target

HEAD_SECONDS, BODY_SECONDS, IDLE_SECONDS = 10.0, 20.0, 30.0
"""As `haproxy.cfg` has them."""
MOST_CONNECTIONS = 256
"""Of one address."""
LATE_SECONDS = 15.0
"""Beyond its deadline a connection may stay so long, on a busy machine."""


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with TARGETS["stack"](tmp_path_factory.mktemp("home")) as running:
        yield running


def plain(proxy: Target) -> socket.socket:
    """Return a connection on which TLS has not begun."""
    parts = urlsplit(proxy.url)
    assert parts.hostname
    assert parts.port
    return socket.create_connection((parts.hostname, parts.port), timeout=60)


@cache
def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])


def opened(proxy: Target, sent: bytes) -> ssl.SSLSocket:
    """Return a connection over TLS on which `sent` was sent."""
    made = trusting().wrap_socket(plain(proxy), server_hostname="localhost")
    made.sendall(sent)
    return made


def is_open(connection: socket.socket) -> bool:
    """Tell whether the other side still holds a connection, which has sent nothing."""
    connection.setblocking(False)
    try:
        return bool(connection.recv(65536))
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        return False


def answer(connection: socket.socket) -> bytes:
    """Return what comes until the other side closes."""
    got = b""
    with suppress(OSError):
        while piece := connection.recv(65536):
            got += piece
    return got


def test_a_head_that_stops_is_answered_408(proxy: Target) -> None:
    started = time.monotonic()
    with opened(proxy, b"GET /healthz HTTP/1.1\r\nHost:") as connection:
        assert answer(connection).startswith(b"HTTP/1.1 408")
    assert HEAD_SECONDS - 1 < time.monotonic() - started < HEAD_SECONDS + LATE_SECONDS


def test_a_body_that_stops_is_answered_408(proxy: Target) -> None:
    started = time.monotonic()
    with opened(proxy, head("/v1/keys", None, 1000) + b'{"name"') as connection:
        top, _, body = answer(connection).partition(b"\r\n\r\n")
    assert BODY_SECONDS - 1 < time.monotonic() - started < BODY_SECONDS + LATE_SECONDS
    assert top.startswith(b"HTTP/1.1 408")
    assert b"retry-after: 1" in top.lower()
    assert json.loads(body)["code"] == "body-too-slow"


def test_connections_that_say_nothing_are_ended(proxy: Target) -> None:
    """Neither before TLS nor after it does one stay."""
    with ExitStack() as stack:
        held = [stack.enter_context(plain(proxy)) for _ in range(100)]
        held += [stack.enter_context(opened(proxy, b"")) for _ in range(20)]
        deadline = time.monotonic() + IDLE_SECONDS + LATE_SECONDS
        while (left := sum(map(is_open, held))) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert left == 0


def test_one_address_has_so_many_connections_and_another_is_answered(proxy: Target) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(plain(proxy)) for _ in range(MOST_CONNECTIONS + 100)]
        time.sleep(0.5)
        assert MOST_CONNECTIONS // 2 < sum(map(is_open, held)) <= MOST_CONNECTIONS
        look = (
            "import ssl, urllib.request as ask\n"
            "trusting = ssl.create_default_context()\n"
            "trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE\n"
            "print(ask.urlopen('https://proxy:8443/healthz', timeout=5, context=trusting).status)"
        )
        assert run_python(look, service="api").strip() == "200"
    until = time.monotonic() + LATE_SECONDS
    while time.monotonic() < until:
        with suppress(httpx.HTTPError), proxy.http() as client:
            assert client.get("/healthz").status_code == 200
            return
    raise AssertionError("the address was not let in again")


def test_a_long_poll_outlasts_the_deadline_of_a_silent_client(proxy: Target) -> None:
    docker("pause", container("worker"))
    try:
        with proxy.http() as client:
            queued = submit(client, job(upload(client)["id"])).json()["id"]
            begun = time.monotonic()
            answered = client.get(f"/v1/jobs/{queued}", headers={"Prefer": f"wait={IDLE_SECONDS + 5:.0f}"})
            assert (answered.status_code, answered.json()["state"]) == (200, "queued")
            assert time.monotonic() - begun > IDLE_SECONDS
    finally:
        docker("unpause", container("worker"))


def test_a_body_that_says_to_be_larger_than_any_is_refused_unread(proxy: Target) -> None:
    with opened(proxy, head("/v1/datasets", proxy.key, 10**10)) as connection:
        got = connection.recv(65536)
    assert got.startswith(b"HTTP/1.1 413")
    assert json.loads(got.partition(b"\r\n\r\n")[2])["code"] == "too-large"


def test_an_address_that_a_client_makes_up_is_not_counted_by(proxy: Target) -> None:
    """Requests without a key share the rate of their real address."""
    with httpx.Client(base_url=proxy.url) as anonymous:
        left = [
            int(
                anonymous.get("/v1/me", headers={"X-Forwarded-For": f"203.0.113.{place}"}).headers[
                    "RateLimit-Remaining"
                ]
            )
            for place in range(4)
        ]
    assert sum(one > two for one, two in pairwise(left)) >= 2, "but where a minute began anew"


def test_a_head_has_so_many_lines_and_bytes(proxy: Target) -> None:
    for lines in (b"".join(b"%x: y\r\n" % number for number in range(200)), b"x: " + b"y" * 20_000 + b"\r\n"):
        with opened(proxy, head("/v1/jobs", None, 0)[:-2] + lines + b"\r\n") as connection:
            assert answer(connection).startswith(b"HTTP/1.1 400")


def test_chunks_of_a_byte_delay_nobody(proxy: Target) -> None:
    """The proxy joins them, so that the service parses few."""
    sent = head("/v1/jobs", proxy.key, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")

    def once() -> None:
        with suppress(ssl.SSLError), opened(proxy, sent + b"1\r\nx\r\n" * 50_000) as connection:
            connection.settimeout(10)
            answer(connection)

    with proxy.http() as honest:
        assert min(ratio(honest, lambda: repeated(once, 4, 0.05))[0] for _ in range(2)) <= 2


@contextmanager
def held(proxy: Target) -> Iterator[None]:
    """Keep unfinished bodies open, nearly as many as one address may."""
    with ExitStack() as stack:
        for _ in range(MOST_CONNECTIONS - 50):
            stack.enter_context(opened(proxy, head("/v1/jobs", proxy.key, 1000) + b"{"))
        yield


def test_unfinished_bodies_delay_nobody(proxy: Target) -> None:
    with proxy.http() as honest:
        assert min(ratio(honest, lambda: held(proxy))[0] for _ in range(2)) <= 2
