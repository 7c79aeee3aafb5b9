"""Files on their way to the service: opened, packed where they are arrays, and sent from their start each time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final, cast

from farthing.arrays import write_npz
from farthing.errors import WrongInput
from farthing.frames import Frame, is_frame, write_frame

Records = str | Path | BinaryIO | Mapping[str, Any] | Frame
"""A path to, or an open binary file of, CSV, Parquet, Arrow IPC or NPZ; NumPy arrays by their columns' names; or a data
frame of pandas, polars or Arrow."""
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
    """Open records for the length of the block; yield a file that can be rewound, and its name.

    Raises:
        WrongInput: they are no records, or a frame's column cannot be sent.
    """
    if is_frame(records):
        with TemporaryFile() as written:
            name = write_frame(records, written)
            yield written, name
    elif isinstance(records, Mapping):
        with TemporaryFile() as packed:
            write_npz(records, packed)
            yield packed, "records.npz"
    elif isinstance(records, str | Path):
        with Path(records).open("rb") as opened:
            yield opened, Path(records).name
    elif not hasattr(records, "read"):
        fix = "give a path, an open binary file, arrays by name, or a pandas, polars or Arrow table"
        raise WrongInput(f"{type(records).__name__} is no file of records.", "/file", fix)
    else:
        stream = cast("BinaryIO", records)
        name = Path(str(getattr(stream, "name", "records"))).name
        # A pipe cannot be sent twice, so its content is kept.
        if stream.seekable():
            yield stream, name
            return
        with TemporaryFile() as kept:
            copyfileobj(stream, kept)
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
