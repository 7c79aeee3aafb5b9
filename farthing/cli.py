"""The command line: `farthing up | key | upload | estimate | train | watch | summary | budget | verify | ...`.

The address and the key come from `--url` and `--key`, or from FARTHING_URL and FARTHING_KEY. A refusal by the service
ends with status 1, a command that was called wrongly with status 2.
"""

import sys

from farthing import custody, inviting, noticing, proving, reading, serving, training, uploading, watching, weights
from farthing.console import app, complain
from farthing.errors import FarthingError

NO_KEY = (
    "Give the key in FARTHING_KEY, or with --key. The first start of `farthing up` prints an admin's; an admin makes "
    "others by `farthing key NAME --role ROLE`, and `farthing admin-key` another admin's where that one is lost."
)
"""The advice to a user whose key is missing or no good."""

__all__ = [
    "app",
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


def main() -> None:
    """Run the command line; a refusal is printed as text and ends with status 1."""
    try:
        app()
    except FarthingError as refusal:
        complain(str(refusal))
        if refusal.code == "unauthenticated":
            complain(NO_KEY)
        sys.exit(1)


if __name__ == "__main__":
    main()
