"""Commands that become the service's own programs, which live in its checkout or image: up and its upkeep."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from farthing.console import WRONG_INPUT, app, complain

Home = Annotated[Path, typer.Option(envvar="FARTHING_HOME", help="where everything lives")]
Witness = Annotated[
    str | None,
    typer.Option(
        envvar="FARTHING_WITNESS",
        help="what keeps the ledger's heads: a file on another disk, or s3://bucket/prefix",
        show_default="witness.jsonl in the home",
    ),
]
HOME: Final = Path(".farthing")


def folder_of(module: str, instead: str) -> Path:
    """Return the folder of the service's code; end with status 2 where only the client is installed.

    Args:
        module: the program that is needed.
        instead: the advice where it is missing.
    """
    try:
        found = find_spec(module)
    # find_spec imports the parent package, which is missing where only the SDK is installed.
    except ModuleNotFoundError:
        found = None
    if found is None or found.origin is None:
        complain(f"The service is not installed here, only its client. {instead}")
        raise typer.Exit(WRONG_INPUT)
    return Path(found.origin).parents[module.count(".")]


def _become(module: str, *arguments: str | None) -> None:
    """Turn this process into one of the service's programs."""
    folder_of(module, "Run it from its checkout (`make setup`, then `.venv/bin/farthing up`) or its image.")
    command = [sys.executable, "-m", module, *(argument for argument in arguments if argument is not None)]
    os.execv(sys.executable, command)  # noqa: S606 - our own interpreter and module, no shell


def _named(option: str, value: str | None) -> tuple[str, ...]:
    return () if value is None else (option, value)


@app.command(
    epilog="FARTHING_ADMIN_KEY becomes the first admin key; without it one is made and printed once. Every other "
    "setting is FARTHING_... in the environment too: see docs/reference/settings.md."
)
def up(
    home: Home = HOME,
    host: Annotated[
        str, typer.Option(envvar="FARTHING_HOST", help="address to listen on; put TLS before any other than this")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="FARTHING_PORT", min=0, max=65535, help="port to listen on; 0 takes a free one")
    ] = 8000,
    workers: Annotated[
        int, typer.Option(envvar="FARTHING_WORKERS", min=0, max=64, help="jobs trained at a time; 0: none, API only")
    ] = 1,
    witness: Witness = None,
) -> None:
    """Start the service on one machine, API and trainers. No other server is needed; Ctrl-C stops it cleanly."""
    arguments = ["--home", str(home), "--host", host, "--port", str(port), "--workers", str(workers)]
    _become("workers.embedded", *arguments, *_named("--witness", witness))


@app.command()
def backup(
    to: Annotated[Path, typer.Argument(help="a new folder")], home: Home = HOME, witness: Witness = None
) -> None:
    """Copy an embedded home, also while it runs. Database and records, not the master key."""
    _become("workers.upkeep", "backup", "--home", str(home), "--to", str(to), *_named("--witness", witness))


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(help="a folder that `backup` made")],
    home: Home = HOME,
    witness: Witness = None,
) -> None:
    """Put a backup into an empty home. Its ledger stays frozen until `reconcile`."""
    _become("workers.upkeep", "restore", "--home", str(home), "--from", str(source), *_named("--witness", witness))


@app.command()
def reconcile(
    home: Home = HOME,
    witness: Witness = None,
    *,
    without_witness: Annotated[
        bool, typer.Option("--without-witness", help="the witness is lost: forget what was spent since the backup")
    ] = False,
) -> None:
    """Raise a frozen ledger to its witness and let it go on. Live jobs fail at their whole price."""
    flag = "--without-witness" if without_witness else None
    _become("workers.upkeep", "reconcile", "--home", str(home), *_named("--witness", witness), flag)


@app.command("admin-key")
def admin_key(home: Home = HOME) -> None:
    """Make another admin's key, on the service's own machine. Where the first was lost; it is printed once."""
    _become("workers.upkeep", "admin-key", "--home", str(home))
