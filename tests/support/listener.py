"""An HTTP server that keeps what is posted to it, and answers as a test says."""

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE_SECONDS = 120.0


@dataclass
class Request:
    """One request that came."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float


@dataclass
class Listener:
    """A server on this machine: its address, what came, and its answer."""

    url: str
    requests: list[Request] = field(default_factory=list)
    answer: Callable[[Request], tuple[int, dict[str, str], bytes]] = lambda _: (204, {}, b"")

    def of(self, kind: str) -> list[Request]:
        """Return the requests with events of a kind."""
        return [one for one in list(self.requests) if f'"type":"{kind}"'.encode() in one.body]

    def wait(self, count: int = 1, kind: str | None = None) -> list[Request]:
        """Wait for a number of requests; return all that came."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(found := list(self.requests) if kind is None else self.of(kind)) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} requests came"
            time.sleep(0.05)
        return found


@contextmanager
def listening(host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Iterator[Listener]:
    """Run a server until the end of the block, under TLS where a context is given."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", "0"))
            headers = {name.lower(): value for name, value in self.headers.items()}
            came = Request(self.path, headers, self.rfile.read(length), time.monotonic())
            listener.requests.append(came)
            status, more, body = listener.answer(came)
            try:
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **more}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                pass  # the sender has left

        do_GET = do_POST  # noqa: N815 - the base class looks for this name

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's own
            del format, args

    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    listener = Listener(f"{'https' if tls else 'http'}://{host}:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
