"""The version of this code."""

from importlib.metadata import PackageNotFoundError, version


def code_version() -> str:
    """Return the version of the installed distribution."""
    try:
        return version("farthing")
    except PackageNotFoundError:
        return "0+unknown"
