"""The kernels, compiled anew for a test run, whatever is built in the checkout."""

import ctypes
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Final

import pytest

from core.native.build import SECONDS, compiler
from core.native.library import FLAGS, FOLDER, LIBRARIES, NAME, mark, opened, sources

MARKED: Final = "mark.c"
"""It holds the digest of all sources."""

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C compiler: NumPy does all the work here")


def copied(folder: Path) -> Path:
    """Copy the sources into a folder and return it."""
    for path in sources(FOLDER):
        shutil.copy(path, folder)
    return folder


def built(folder: Path, *more: str) -> ctypes.CDLL:
    """Link a library of a folder's sources there and load it; where no flags are given, compile quickly.

    Floats round the same at any level. A file that this process compiled before, with the same headers and flags, is
    not compiled again: a planted flaw is in one of six.
    """
    files = {path.name: path.read_bytes() for path in sources(folder)}
    headers = tuple(one for one in files.items() if one[0].endswith(".h"))
    flags = (*FLAGS, *(more or ("-O1",)))
    with TemporaryDirectory(dir=folder, prefix="build-") as place:
        given: list[str] = []
        for name, text in files.items():
            if name.endswith(".c") and name != MARKED:
                given.append(f"{place}/{name}.o")
                Path(given[-1]).write_bytes(_object(flags, headers, name, text))
        marked = [str(folder / MARKED), f'-DFARTHING_MARK="{mark(folder)}"']
        _compile(*flags, *marked, *given, "-o", f"{place}/{NAME}", *LIBRARIES)
        (Path(place) / NAME).replace(folder / NAME)
    found, told = opened(folder)
    assert found is not None, told
    return found


@lru_cache(maxsize=64)
def _object(flags: tuple[str, ...], headers: tuple[tuple[str, bytes], ...], name: str, text: bytes) -> bytes:
    """Return the object file of a source beside its headers."""
    with TemporaryDirectory(prefix="farthing-object-") as place:
        for file, content in (*headers, (name, text)):
            (Path(place) / file).write_bytes(content)
        _compile(*(one for one in flags if one != "-shared"), "-c", f"{place}/{name}", "-o", f"{place}/made.o")
        return (Path(place) / "made.o").read_bytes()


def _compile(*arguments: str) -> None:
    command = compiler()
    assert command is not None
    subprocess.run([*command, *arguments], check=True, timeout=SECONDS)


@lru_cache(maxsize=1)
def compiled_kernels() -> ctypes.CDLL:
    """Return a library of the checkout's sources, compiled once a process with warnings as errors."""
    folder = Path(mkdtemp(prefix="farthing-kernels-"))
    try:
        return built(copied(folder), "-Wall", "-Wextra", "-Werror")
    finally:
        shutil.rmtree(folder)
