"""Uploads on their way in: a stream of bytes to one file, counted, digested and encrypted as it comes.

The file is for the seconds until it is decoded. Its key is in this process's memory only, so the rest after a crash or
a power cut is unreadable. Any other failure removes it. Knows nothing of HTTP: any iterable of bytes will do, or
whoever gets pieces pushed calls `write`.
"""

import hmac
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from core.base.errors import FieldError, TooLarge
from core.base.files import create
from core.records.encryption import Encrypting, SealedFile

SPOOLED: Final = "upload-"
CONTEXT: Final = "upload"


@dataclass(frozen=True)
class Received:
    """An upload that arrived whole."""

    file: SealedFile
    bytes: int
    digest: str
    """hmac-sha256:..., under the installation's secret: a plain hash would let one who knows all other rows test a
    guess of the last one."""


class Receiver:
    """Writes one upload into `folder`. Use as a context manager: an unfinished upload is removed on the way out."""

    def __init__(self, folder: Path, *, secret: bytes, limit_bytes: int) -> None:
        """Open a file that only this user can read, in `folder` (made when absent), under a key of its own."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sealed = SealedFile(path=folder / f"{SPOOLED}{secrets.token_hex(16)}", context=CONTEXT)
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._digest = hmac.new(secret, digestmod=sha256)
        self._file = create(self._sealed.path)
        self._sink = Encrypting(self._file, self._sealed.context, self._sealed.key)
        self._finished = False

    def write(self, chunk: bytes) -> None:
        """Append a piece.

        Raises:
            TooLarge: the upload passes its limit; nothing of it is kept.
        """
        # Counted before it is written: no byte above the limit reaches the disk.
        self._bytes += len(chunk)
        if self._bytes > self._limit_bytes:
            self.abort()
            raise TooLarge(
                f"The file is larger than {self._limit_bytes} bytes, the most this service takes.",
                FieldError("/file", "send fewer rows, leave out undeclared columns, or use Parquet"),
                limit_bytes=self._limit_bytes,
            )
        self._digest.update(chunk)
        self._sink.write(chunk)

    def finish(self) -> Received:
        """Complete the file and return it."""
        self._sink.finish()
        self._file.close()
        self._finished = True
        return Received(self._sealed, self._bytes, f"hmac-sha256:{self._digest.hexdigest()}")

    def abort(self) -> None:
        """Remove what was written, unless it is finished."""
        if not self._finished:
            self._file.close()
            self._sealed.path.unlink(missing_ok=True)

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


def remove_partial(folder: Path, *, older_than_seconds: float) -> int:
    """Remove what uploads that were killed left in the folder that they alone use; return how many files."""
    removed = 0
    limit = time.time() - older_than_seconds
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_file() and path.stat().st_mtime < limit:
            path.unlink(missing_ok=True)
            removed += 1
    return removed
