"""Serve the API: `python -m api --host 127.0.0.1 --port 8000 --home DIR`. Prints nothing secret."""

import argparse
import os
import resource
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Final

import uvicorn

from api.app import create_app
from api.connections import BoundedProtocol
from core.base.errors import Refusal
from core.base.logs import configure
from core.base.settings import ServiceSettings

_IDLE_SECONDS: Final = 5
_BACKLOG: Final = 512
_SPARE_CONNECTIONS: Final = 64
"""Above the limit at which idle connections are closed for new ones: where none is idle, uvicorn answers 503."""
_SPARE_FILES: Final = 512
_SWITCH_SECONDS: Final = 0.0005
"""Seconds that a computing thread keeps the interpreter while others wait for it; Python's default is 5 ms."""


class Server(uvicorn.Server):
    """Lets long polls and event streams end at once when the process is asked to stop, which is no failure."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal: stop accepting, and wake everybody who waits; Ctrl-C a second time waits for nobody.

        The signal is kept from uvicorn, which would raise it again after a clean shutdown: the process would then
        look as if it had been killed.
        """
        del frame
        self.force_exit |= self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        # Long polls wait for events and not for uvicorn's flag; unwoken, each would hold the shutdown up.
        self.config.app.state.watcher.close()  # type: ignore[union-attr] # it is our own application


def main(arguments: list[str] | None = None) -> None:
    """Serve until SIGINT or SIGTERM; requests in flight get ten seconds to end."""
    parser = argparse.ArgumentParser(prog="python -m api", description="Serve the Farthing API.")
    parser.add_argument("--host", default=None)
    parser.add_argument("--port", type=int, default=None)
    parser.add_argument("--home", type=Path, default=None)
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    os.umask(0o077)  # the home holds records, keys' digests and unapproved releases
    settings = ServiceSettings(**given)
    configure("api")
    # A short request needs the interpreter some twenty times; 5 ms each would add up (decision 39).
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        app = create_app(settings)
    except Refusal as refusal:
        raise SystemExit(refusal.detail) from None
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=10,
        timeout_keep_alive=_IDLE_SECONDS,
        limit_concurrency=settings.max_connections + _SPARE_CONNECTIONS,
        backlog=_BACKLOG,
        http=_bounded(settings),
        ws="none",
    )
    Server(config).run()


def _bounded(settings: ServiceSettings) -> type[BoundedProtocol]:
    """Return the protocol with the limits of these settings, and have the system allow as many open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * settings.max_connections + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    # uvicorn makes a protocol for each connection itself, so the limits are attributes of a class.
    limits = {"head_seconds": settings.head_seconds, "max_connections": settings.max_connections}
    return type("Protocol", (BoundedProtocol,), limits)


if __name__ == "__main__":
    main()
