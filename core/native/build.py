"""Compile the kernels: ``python -m core.native.build [--required]``.

With the machine's C compiler, `$CC` or `cc`, into this folder. A machine without one goes on with NumPy: one line says
so, and the status is 0 unless `--required` is given. Sources that do not compile are an error.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from core.native.library import FLAGS, FOLDER, LIBRARIES, NAME, mark, opened, sources

COMPILER: Final = "cc"
SECONDS: Final = 120


def compiler() -> list[str] | None:
    """Return the command of the C compiler, None where there is none."""
    command = shlex.split(os.environ.get("CC") or COMPILER)
    return command if shutil.which(command[0]) else None


def build(command: list[str], folder: Path = FOLDER, *more: str) -> Path:
    """Compile a folder's sources into its library, which takes the place of the one before in one move.

    Args:
        command: the compiler.
        folder: with the sources.
        more: flags for this time, such as a sanitizer's; they are not part of the mark.

    Raises:
        CalledProcessError: they do not compile; the compiler has said why.
    """
    with TemporaryDirectory(dir=folder, prefix="build-") as place:
        made = Path(place) / NAME
        flags = [*FLAGS, *more, f'-DFARTHING_MARK="{mark(folder)}"', "-o", str(made)]
        files = [str(path) for path in sources(folder) if path.suffix == ".c"]
        subprocess.run([*command, *flags, *files, *LIBRARIES], check=True, timeout=SECONDS)  # noqa: S603 - our own sources
        return made.replace(folder / NAME)


def main(arguments: list[str]) -> int:
    """Build, say what was done in one line, and return the exit status."""
    required = arguments == ["--required"]
    assert required or not arguments, "usage: python -m core.native.build [--required]"
    command = compiler()
    if command is None:
        sys.stdout.write("kernels: there is no C compiler (cc), so NumPy does their work; wide networks take longer\n")
        return int(required)
    try:
        path = build(command)
    except subprocess.CalledProcessError as error:
        sys.stdout.write(f"kernels: {command[0]} failed with status {error.returncode}\n")
        return 1
    found, message = opened()
    sys.stdout.write(f"kernels: {message}, {path}\n")
    return int(found is None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
