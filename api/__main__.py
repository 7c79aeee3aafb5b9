"""Serve the API: `python -m api --host 127.0.0.1 --port 8000 --home DIR`. Prints nothing secret."""

import argparse
from pathlib import Path

import uvicorn

from api.app import create_app
from api.logs import configure
from core.settings import ServiceSettings


def main(arguments: list[str] | None = None) -> None:
    """Serve until SIGINT or SIGTERM; requests in flight get ten seconds to end."""
    parser = argparse.ArgumentParser(prog="python -m api", description="Serve the Farthing API.")
    parser.add_argument("--host", default=None)
    parser.add_argument("--port", type=int, default=None)
    parser.add_argument("--home", type=Path, default=None)
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    settings = ServiceSettings(**given)
    configure()
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=10,
        h11_max_incomplete_event_size=64 * 1024,
    )


if __name__ == "__main__":
    main()
