"""Serve the API: `python -m api --host 127.0.0.1 --port 8000 --home DIR`. Prints nothing secret."""

import argparse
import os
import resource
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Final

import structlog
import uvicorn

from api.app import create_app
from core.base.errors import Refusal
from core.base.logs import configure
from core.base.settings import ServiceSettings

log = structlog.get_logger("farthing.api")

_IDLE_SECONDS: Final = 5
_BACKLOG: Final = 512
_MOST_HEAD_BYTES: Final = 16 * 1024
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
        limit_concurrency=settings.max_connections,
        backlog=_BACKLOG,
        http="h11",  # its parser refuses what two servers could read in two ways
        h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
        ws="none",
        # Nobody else's X-Forwarded-For is believed: addresses without a key have a rate of their own.
        proxy_headers=bool(settings.proxy),
        forwarded_allow_ips=settings.proxy,
    )
    _allow_files(settings.max_connections)
    if settings.is_exposed:
        log.warning("listens-without-proxy", host=settings.host)
    Server(config).run()


def _allow_files(connections: int) -> None:
    """Have the system allow so many connections, and the files beside them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


if __name__ == "__main__":
    main()
