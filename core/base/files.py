"""Files that survive a power cut: a file under its name is whole, and the name is on the disk."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final

_BLOCK_BYTES: Final = 2**20


def sync_file(path: Path) -> None:
    """Make a file's content durable."""
    _sync(path, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    """Make a folder's names durable."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, how: int) -> None:
    handle = os.open(path, how)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def create(path: Path) -> BinaryIO:
    """Open a new file for writing that only this user can read.

    Raises:
        FileExistsError: there is one.
    """
    # O_EXCL also refuses a symbolic link that somebody else put there.
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")  # noqa: PTH123 - from a descriptor, for its mode; the caller closes it


def copy(source: BinaryIO, path: Path) -> None:
    """Write the rest of an open file into a new one, durably; a failure leaves nothing."""
    try:
        with create(path) as target:
            while block := source.read(_BLOCK_BYTES):
                target.write(block)
            target.flush()
            os.fsync(target.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def replace(path: Path, content: bytes) -> None:
    """Give a file new content, atomically and durably."""
    fresh = path.with_name(f".{path.name}.new")
    # A crash before the renaming leaves this file behind.
    fresh.unlink(missing_ok=True)
    with create(fresh) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    # The renaming itself may be lost in a power cut until its folder is on the disk.
    sync_folder(path.parent)


def digest_of(file: BinaryIO) -> str:
    """Return the digest of what follows in an open file, sha256:..."""
    digest = sha256()
    while block := file.read(_BLOCK_BYTES):
        digest.update(block)
    return f"sha256:{digest.hexdigest()}"


@contextmanager
def closed_on_failure(file: BinaryIO) -> Iterator[None]:
    """Close an open file if the block raises; otherwise whoever gets it does."""
    try:
        yield
    except BaseException:
        file.close()
        raise
