"""The version of this code, of Python and of the libraries that it computes with."""

import platform
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

LIBRARIES: Final = ("cryptography", "dp-accounting", "numpy", "pyarrow", "pydantic", "safetensors", "scipy", "torch")
"""Libraries that a released figure may depend on."""


def code_version() -> str:
    """Return the version of the installed distribution."""
    try:
        return version("farthing")
    except PackageNotFoundError:
        return "0+unknown"


@lru_cache(maxsize=1)
def software() -> dict[str, Any]:
    """Return the versions that a trainer of this installation computes with, JSON-ready: code, Python, libraries."""
    libraries = {name: found for name in LIBRARIES if (found := _version(name)) is not None}
    code = {"version": code_version(), "source": source_digest()}
    return {"farthing": code, "python": platform.python_version(), "libraries": libraries}


def source_digest() -> str:
    """Return SHA-256 over the sources of `core` and `workers`, by path: it differs where two builds of a version do."""
    root = Path(__file__).resolve().parents[2]
    kinds = (".py", ".c", ".h")
    files = sorted(path for part in ("core", "workers") for path in (root / part).rglob("*") if path.suffix in kinds)
    lines = (f"{sha256(path.read_bytes()).hexdigest()}  {path.relative_to(root).as_posix()}\n" for path in files)
    return "sha256:" + sha256("".join(lines).encode()).hexdigest()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
