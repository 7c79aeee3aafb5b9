"""Packages that the SDK uses where they are installed, and imports only when a call needs them."""

from importlib import import_module
from typing import Any, Final

from farthing.errors import MissingExtra

EXTRA: Final = "notebook"


def needed(package: str, what: str) -> Any:  # noqa: ANN401 - a module of any name
    """Import a package of the extra `farthing[notebook]`.

    Args:
        package: such as `pandas`.
        what: the call that needs it, in words.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return import_module(package)
    except ImportError as absent:
        raise MissingExtra(package.partition(".")[0], what, EXTRA) from absent


def installed(package: str) -> Any:  # noqa: ANN401 - as above
    """Import a package, or return None where it is not installed."""
    try:
        return import_module(package)
    except ImportError:
        return None
