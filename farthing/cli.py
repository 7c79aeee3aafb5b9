"""The command line: `farthing up | key | check | upload | estimate | train | watch | summary | budget | verify | ...`.

The address and the key come from `--url` and `--key`, or from FARTHING_URL and FARTHING_KEY. `farthing.console` has the
exit statuses.
"""

import json
import sys
from importlib import metadata
from typing import Annotated

import typer

from farthing import (
    checking,
    custody,
    inviting,
    noticing,
    proving,
    reading,
    serving,
    training,
    uploading,
    watching,
    weights,
)
from farthing.console import LATER, REFUSED, WITHOUT_RESULT, app, complain, err, line
from farthing.errors import FarthingError, JobFailed, ReleaseWithheld

NO_KEY = (
    "Give the key in FARTHING_KEY, or with --key. The first start of `farthing up` prints an admin's; an admin makes "
    "others by `farthing key NAME --role ROLE`, and `farthing admin-key` another admin's where that one is lost."
)
"""The advice to a user whose key is missing or no good."""

__all__ = [
    "app",
    "checking",
    "custody",
    "inviting",
    "main",
    "noticing",
    "proving",
    "reading",
    "serving",
    "training",
    "uploading",
    "watching",
    "weights",
]  # modules that bring the commands


def version(value: bool) -> None:  # noqa: FBT001 - typer calls it with the flag
    """Print the version of this package and end."""
    if value:
        line(f"farthing {metadata.version('farthing')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="print the version and end")
    ] = False,
) -> None:
    """Train models privately, and know what it cost."""


def main() -> None:
    """Run the command line; a refusal is printed, as its problem document where `--json` was given."""
    try:
        app()
    except FarthingError as refusal:
        if "--json" in sys.argv and not isinstance(refusal, JobFailed | ReleaseWithheld):
            err.print_json(json.dumps(dict(refusal.problem)))
        else:
            complain(str(refusal))
        if refusal.code == "unauthenticated":
            complain(NO_KEY)
        sys.exit(status_of(refusal))


def status_of(refusal: FarthingError) -> int:
    """Return the exit status of a refusal."""
    if isinstance(refusal, JobFailed | ReleaseWithheld):
        return WITHOUT_RESULT
    return LATER if refusal.retryable else REFUSED


if __name__ == "__main__":
    main()
