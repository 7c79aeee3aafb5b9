"""Uploads on their way in: a stream of bytes to one file, counted, digested and made durable.

Nothing is visible under its final name before every byte of it is on the disk; whatever goes wrong, the partial file
is removed. Knows nothing of HTTP: any iterable of bytes will do, or whoever gets pieces pushed calls `write`.
"""

import hmac
import os
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

from core.errors import FieldError, TooLarge

PARTIAL = ".partial"


@dataclass(frozen=True)
class Received:
    """An upload that arrived whole."""

    path: Path
    bytes: int
    digest: str
    """hmac-sha256:..., under the installation's secret: a plain hash would let one who knows all other rows test a
    guess of the last one."""


class Receiver:
    """Writes one upload into `folder`. Use as a context manager: what is not finished is removed on the way out."""

    def __init__(self, folder: Path, *, secret: bytes, limit_bytes: int) -> None:
        """Open a partial file that only this user can read, in `folder` (made when absent)."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / f"upload-{secrets.token_hex(16)}"
        self._partial = self._path.with_suffix(PARTIAL)
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._digest = hmac.new(secret, digestmod=sha256)
        self._file = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._open = True

    def write(self, chunk: bytes) -> None:
        """Append a piece.

        Raises:
            TooLarge: the upload passes its limit; nothing of it is kept.
        """
        self._bytes += len(chunk)
        if self._bytes > self._limit_bytes:
            self.abort()
            raise TooLarge(
                f"The file is larger than {self._limit_bytes} bytes, the most this service takes.",
                FieldError("/file", "send fewer rows, leave out undeclared columns, or use Parquet"),
                limit_bytes=self._limit_bytes,
            )
        self._digest.update(chunk)
        view = memoryview(chunk)
        while view:
            view = view[os.write(self._file, view) :]

    def finish(self) -> Received:
        """Make the upload durable under its own name and return it."""
        os.fsync(self._file)
        os.close(self._file)
        self._open = False
        publish(self._partial, self._path)
        return Received(self._path, self._bytes, f"hmac-sha256:{self._digest.hexdigest()}")

    def abort(self) -> None:
        """Remove what was written, unless it is finished."""
        if self._open:
            self._open = False
            os.close(self._file)
        self._partial.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()


def receive(chunks: Iterable[bytes], *, folder: Path, secret: bytes, limit_bytes: int) -> Received:
    """Write a stream of bytes to one new file in `folder`; at most `limit_bytes` are ever on the disk.

    Raises:
        TooLarge: the stream passes its limit. Then, and when `chunks` itself raises, no file is left.
    """
    with Receiver(folder, secret=secret, limit_bytes=limit_bytes) as receiver:
        for chunk in chunks:
            receiver.write(chunk)
        return receiver.finish()


def publish(partial: Path, path: Path) -> None:
    """Give a file that is on the disk its final name, durably."""
    partial.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a folder's names durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_partial(folder: Path, *, older_than_seconds: float) -> int:
    """Remove what uploads and decodings that were killed left behind; return how many files.

    Raw uploads (`upload-...`) live only until they are decoded, so an old one is a leftover too.
    """
    removed = 0
    limit = time.time() - older_than_seconds
    for path in folder.glob("*") if folder.is_dir() else ():
        leftover = path.suffix == PARTIAL or path.name.startswith("upload-")
        if leftover and path.is_file() and path.stat().st_mtime < limit:
            path.unlink(missing_ok=True)
            removed += 1
    return removed
