"""The kernels, compiled anew for a test run, whatever is built in the checkout."""

import ctypes
import shutil
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from core.native.build import build, compiler
from core.native.library import FOLDER, opened, sources

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C compiler: NumPy does all the work here")


def copied(folder: Path) -> Path:
    """Copy the sources into a folder and return it."""
    for path in sources(FOLDER):
        shutil.copy(path, folder)
    return folder


def built(folder: Path, *more: str) -> ctypes.CDLL:
    """Compile the sources of a folder there and load them, quickly where no flags are given: floats round the same."""
    command = compiler()
    assert command is not None
    build(command, folder, *(more or ("-O1",)))
    found, told = opened(folder)
    assert found is not None, told
    return found


@lru_cache(maxsize=1)
def compiled_kernels() -> ctypes.CDLL:
    """Return a library of the checkout's sources, compiled once a process with warnings as errors."""
    folder = Path(mkdtemp(prefix="farthing-kernels-"))
    try:
        return built(copied(folder), "-Wall", "-Wextra", "-Werror")
    finally:
        shutil.rmtree(folder)
