"""Where encoded records are: a folder, or a prefix of a bucket. Files in it are written once and never changed.

A name appears when its file is whole and durable, and not before. The storage gets encrypted bytes only (except for
public weights, and records stored unencrypted by old code), and need not be trusted. `core.records.encryption`, and the
digest of weights, detect losses, exchanges and changes.
"""

import errno
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final

from core.base.errors import NotReady, ensure
from core.base.files import copy, sync_file, sync_folder
from core.base.settings import ServiceSettings
from core.records.bucket import SCHEME, Bucket

PARTIAL: Final = ".partial"
NAME: Final = r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}"
_NO_LINKS: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})
_BLOCK: Final = bytes(2**20)


@dataclass(frozen=True)
class Stored:
    """A stored file; the time is the storage's own, in seconds since the epoch."""

    name: str
    bytes: int
    modified_at: float


class Storage(ABC):
    """Named files."""

    @abstractmethod
    def put(self, source: Path, name: str) -> None:
        """Store a file under a new name, durably and whole; the source stays where it is.

        Raises:
            FileExistsError: the name is taken.
            NotReady: the storage does not answer, or kept less than it was given.
        """

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """Open a file for reading at any place.

        Raises:
            FileNotFoundError: there is none.
            NotReady: the storage does not answer.
        """

    @abstractmethod
    def erase(self, name: str) -> None:
        """Destroy a file, durably; one that is gone already is no error.

        Raises:
            NotReady: the storage does not answer.
        """

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[Stored]:
        """Yield what is stored under names that begin so.

        Raises:
            NotReady: the storage does not answer.
        """

    @abstractmethod
    def check(self) -> None:
        """Ask whether files can be stored.

        Raises:
            NotReady: they cannot; the text says what an operator does about it.
        """


class Folder(Storage):
    """A folder that is there: one that is not may be a disk that was not mounted. Several machines may share it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, source: Path, name: str) -> None:
        """As `Storage.put`; on one file system the content is not copied."""
        target = self._place(name)
        self.check()
        sync_file(source)
        try:
            # Unlike a renaming, a link fails where the name is taken.
            os.link(source, target)
        except OSError as error:
            # These mean that the file system cannot give the file a second name, not that it failed.
            if error.errno not in _NO_LINKS:
                raise
            self._copy(source, target)
        sync_folder(self.path)
        if target.stat().st_size != source.stat().st_size:
            raise NotReady(f"The records' folder kept {target.stat().st_size} of {source.stat().st_size} bytes.")

    def _copy(self, source: Path, target: Path) -> None:
        """Copy from another file system; names are drawn at random, so the look before the renaming is enough."""
        partial = target.with_name(target.name + PARTIAL)
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target.name)
        partial.unlink(missing_ok=True)
        with source.open("rb") as file:
            copy(file, partial)
        partial.replace(target)

    def open(self, name: str) -> BinaryIO:
        """As `Storage.open`."""
        return self._place(name).open("rb", buffering=0)

    def erase(self, name: str) -> None:
        """Overwrite a file's blocks, as far as the file system lets us, and remove its name."""
        path = self._place(name)
        try:
            with path.open("r+b", buffering=0) as file:
                for start in range(0, path.stat().st_size, len(_BLOCK)):
                    file.write(_BLOCK[: path.stat().st_size - start])
                os.fsync(file.fileno())
            path.unlink()
        except FileNotFoundError:
            # An earlier erasure may have died before its removal reached the disk.
            if not self.path.is_dir():
                return
        sync_folder(self.path)

    def list(self, prefix: str = "") -> Iterator[Stored]:
        """As `Storage.list`."""
        for path in sorted(self.path.iterdir()) if self.path.is_dir() else ():
            if path.name.startswith(prefix) and path.is_file():
                told = path.stat()
                yield Stored(path.name, told.st_size, told.st_mtime)

    def check(self) -> None:
        """As `Storage.check`."""
        if not (self.path.is_dir() and os.access(self.path, os.W_OK)):
            raise NotReady("The records' folder is not there, or cannot be written.", retry_after_seconds=5)

    def _place(self, name: str) -> Path:
        return self.path / _checked(name)


class Objects(Storage):
    """A prefix of a bucket."""

    def __init__(self, url: str) -> None:
        self._bucket = Bucket(url)

    def put(self, source: Path, name: str) -> None:
        """As `Storage.put`."""
        if self._bucket.has(_checked(name)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self._bucket.upload(source, name)

    def open(self, name: str) -> BinaryIO:
        """As `Storage.open`."""
        return self._bucket.open(_checked(name))

    def erase(self, name: str) -> None:
        """Delete an object; where the bucket keeps versions, they are for its own rules to remove."""
        self._bucket.erase(_checked(name))

    def list(self, prefix: str = "") -> Iterator[Stored]:
        """As `Storage.list`."""
        for found in self._bucket.list(prefix):
            yield Stored(found.name, found.bytes, found.modified_at)

    def check(self) -> None:
        """As `Storage.check`."""
        self._bucket.check()


def open_storage(settings: ServiceSettings) -> Storage:
    """Return the place of an installation's records.

    Raises:
        NotReady: `storage_url` names none.
    """
    return _open(settings.storage_url or str(settings.records_path))


@lru_cache(maxsize=8)
def _open(place: str) -> Storage:
    if place.startswith(SCHEME):
        return Objects(place)
    if "://" in place:
        raise NotReady("FARTHING_STORAGE_URL is a folder or s3://bucket/prefix.")
    return Folder(Path(place))


def _checked(name: str) -> str:
    ensure(re.fullmatch(NAME, name) is not None, "a name is one of ours, and no path")
    return name
