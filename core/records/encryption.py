"""Records at rest: a file of encrypted frames under a key of its own.

The construction is the STREAM of Hoang, Reyhanitabar, Rogaway and Vizar (2015) over AES-256-GCM. The content is cut
into frames of one fixed size, and each frame's nonce and associated data hold its number and whether it is the last.
The associated data also hold the dataset's identifier. A changed byte, a moved, doubled or missing frame, a file that
was cut short or put in another's place: each fails where it is read, and the last frame is read first. A key encrypts
one file, ever: `Encrypting` draws it, so no nonce comes twice under it.

Layout: a header of 16 bytes, then frames of 262,144 bytes and their tag of 16 each; the last frame may be shorter.
"""

import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import BaseModel, ConfigDict, Field

from core.base.files import closed_on_failure, create

HEADER: Final = b"farthing-rec\x00\x00\x00\x01"
FRAME_BYTES: Final = 2**18
TAG_BYTES: Final = 16
KEY_BYTES: Final = 32
_STRIDE: Final = FRAME_BYTES + TAG_BYTES
_AHEAD_FRAMES: Final = 16
"""Fetched at a time where a reading spans many frames."""


class Tampered(Exception):
    """The stored bytes are not those that were written, or the key is not theirs. Says nothing of what they hold."""


def new_key() -> bytes:
    """Return 256 fresh random bits."""
    return secrets.token_bytes(KEY_BYTES)


def _nonce(number: int, *, last: bool) -> bytes:
    # The mark keeps a frame that once was last from passing for one in the middle, and the reverse.
    return number.to_bytes(11, "big") + bytes([last])


def _bound(context: str, number: int, *, last: bool) -> bytes:
    return HEADER + number.to_bytes(8, "big") + bytes([last]) + context.encode()


class Encrypting:
    """A file to be written from its start to its end, whose content reaches the disk encrypted only.

    Args:
        file: takes the frames; it stays open.
        context: the text that the frames are bound to, such as a dataset's identifier; reading needs the same.
        key: of this one file; None draws it. Only a key that was drawn for this file and no other may be given.
    """

    closed = False

    def __init__(self, file: BinaryIO, context: str, key: bytes | None = None) -> None:
        self.key = new_key() if key is None else key
        self._cipher = AESGCM(self.key)
        self._file = file
        self._context = context
        self._waiting = bytearray()
        self._frames = 0
        self._file.write(HEADER)

    def write(self, content: "bytes | bytearray | memoryview") -> int:
        """Append bytes; return how many, which is all of them."""
        view = memoryview(content).cast("B")
        self._waiting += view
        # One frame is held back until it is known whether another one follows.
        while len(self._waiting) > FRAME_BYTES:
            with memoryview(self._waiting) as waiting:
                self._put(waiting[:FRAME_BYTES], last=False)
            del self._waiting[:FRAME_BYTES]
        return len(view)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._frames * FRAME_BYTES + len(self._waiting)

    def flush(self) -> None:
        """Do nothing: a frame that is not full waits for more."""

    def close(self) -> None:
        """Do nothing: only `finish` says that nothing is missing."""

    def finish(self) -> None:
        """Write the last frame; without it the file cannot be read."""
        self._put(self._waiting, last=True)
        self._file.flush()

    def _put(self, content: "bytearray | memoryview", *, last: bool) -> None:
        nonce = _nonce(self._frames, last=last)
        self._file.write(self._cipher.encrypt(nonce, content, _bound(self._context, self._frames, last=last)))
        self._frames += not last


class Decrypting(io.RawIOBase):
    """An encrypted file, read at any place; no more than a few frames of it are in memory.

    Args:
        file: a seekable file; it is closed with this one.
        key: of the file.
        context: the text that the frames were bound to.

    Raises:
        Tampered: the header, the length or the last frame is not what was written.
    """

    def __init__(self, file: BinaryIO, key: bytes, context: str) -> None:
        super().__init__()
        self._file = file
        self._cipher = AESGCM(key)
        self._context = context
        self._place = 0
        stored = file.seek(0, os.SEEK_END) - len(HEADER)
        whole, rest = divmod(stored, _STRIDE)
        # Only an empty file ends with an empty frame: `write` always holds back at least one byte.
        if stored < TAG_BYTES or 0 < rest < TAG_BYTES or (rest == TAG_BYTES and whole > 0):
            raise Tampered
        self._last = whole if rest else whole - 1
        self.size = stored - TAG_BYTES * (self._last + 1)
        self._held = (-1, b"")
        file.seek(0)
        if file.read(len(HEADER)) != HEADER:
            raise Tampered
        self._contents(self._last, self._last)  # says that nothing is missing behind it

    def readable(self) -> bool:
        """Return true."""
        return True

    def seekable(self) -> bool:
        """Return true."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place of the content and return it."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self.size}[whence]
        self._place = max(0, base + offset)
        return self._place

    def tell(self) -> int:
        """Return the place of the next byte."""
        return self._place

    def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` bytes; the whole rest where it is negative.

        Raises:
            Tampered: a frame that was needed is not the one that was written.
        """
        left = max(0, self.size - self._place)
        size = left if size is None or size < 0 else min(size, left)
        if size == 0:
            return b""
        first, start = divmod(self._place, FRAME_BYTES)
        last, stop = divmod(self._place + size - 1, FRAME_BYTES)
        self._place += size
        parts = self._contents(first, last)
        # The end comes first: where both are one frame, `stop` counts from the frame's start.
        parts[-1] = parts[-1][: stop + 1]
        parts[0] = parts[0][start:]
        return b"".join(parts)

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override] # any writable buffer will do
        """Fill a buffer as far as there is content; return how far."""
        view = memoryview(buffer).cast("B")
        content = self.read(len(view))
        view[: len(content)] = content
        return len(content)

    def readall(self) -> bytes:
        """Return all that follows."""
        return self.read(-1)

    def close(self) -> None:
        """Close this and the file below."""
        if not self.closed:
            self._held = (-1, b"")
            self._file.close()
        super().close()

    def _contents(self, first: int, last: int) -> list[bytes]:
        """Return the contents of frames `first` to `last`; the last one read is remembered."""
        held, content = self._held
        parts = [content] if held == first else []
        for number in range(first + len(parts), last + 1, _AHEAD_FRAMES):
            parts += self._decrypt(number, min(_AHEAD_FRAMES, last + 1 - number))
        self._held = (last, parts[-1])
        return parts

    def _decrypt(self, first: int, count: int) -> list[bytes]:
        """Return the contents of some frames in a row, all of them genuine."""
        self._file.seek(len(HEADER) + first * _STRIDE)
        stored = memoryview(self._file.read(count * _STRIDE))
        contents = []
        for offset in range(count):
            number = first + offset
            last = number == self._last
            frame = stored[offset * _STRIDE : (offset + 1) * _STRIDE]
            try:
                nonce = _nonce(number, last=last)
                contents.append(self._cipher.decrypt(nonce, frame, _bound(self._context, number, last=last)))
            except (InvalidTag, ValueError):
                raise Tampered from None
        return contents


class SealedFile(BaseModel):
    """An encrypted file on this machine and its key; goes to a child process as JSON over a pipe, and nowhere else."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="hex", val_json_bytes="hex")

    path: Path
    context: str
    key: bytes = Field(default_factory=new_key, repr=False)

    def open(self) -> Decrypting:
        """Open it for reading.

        Raises:
            Tampered: it is not what was written.
        """
        file = self.path.open("rb", buffering=0)
        with closed_on_failure(file):
            return Decrypting(file, self.key, self.context)

    @contextmanager
    def writing(self) -> Iterator[Encrypting]:
        """Make it, readable by this user only; it is whole when the block ends without an exception."""
        with create(self.path) as file:
            sink = Encrypting(file, self.context, self.key)
            yield sink
            sink.finish()
