"""Files on their way to the service: opened, packed where they are arrays, and sent from their start each time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final

from farthing.arrays import write_npz

Records = str | Path | BinaryIO | Mapping[str, Any]
"""A path to, or an open binary file of, CSV, Parquet, Arrow IPC or NPZ; or NumPy arrays by their columns' names."""
UNKNOWN_CONTENT: Final = "application/octet-stream"
"""The service looks at the file."""
_CONTENT_TYPES: Final = {
    ".csv": "text/csv",
    ".parquet": "application/vnd.apache.parquet",
    ".arrow": "application/vnd.apache.arrow.file",
    ".feather": "application/vnd.apache.arrow.file",
    ".arrows": "application/vnd.apache.arrow.stream",
    ".npz": "application/x-npz",
}
_PIECE_BYTES: Final = 2**20


@contextmanager
def rewindable(records: Records) -> Iterator[tuple[BinaryIO, str]]:
    """Open records for the length of the block; yield a file that can be rewound, and its name."""
    if isinstance(records, Mapping):
        with TemporaryFile() as packed:
            write_npz(records, packed)
            yield packed, "records.npz"
    elif isinstance(records, str | Path):
        with Path(records).open("rb") as stream:
            yield stream, Path(records).name
    else:
        name = Path(str(getattr(records, "name", "records"))).name
        # A pipe cannot be sent twice, so its content is kept.
        if records.seekable():
            yield records, name
            return
        with TemporaryFile() as kept:
            copyfileobj(records, kept)
            yield kept, name


def content_type(name: str) -> str:
    """Return what a file is, by its name."""
    return _CONTENT_TYPES.get(Path(name).suffix.lower(), UNKNOWN_CONTENT)


class FromStart:
    """A file as the body of a request: each send reads it from its start."""

    def __init__(self, stream: BinaryIO) -> None:
        """Take a file that can be rewound."""
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        """Yield the file in pieces."""
        self._stream.seek(0)
        while piece := self._stream.read(_PIECE_BYTES):
            yield piece
