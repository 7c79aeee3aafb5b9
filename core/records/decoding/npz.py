"""NumPy archives: one array for each declared column, by its name; the first axis is the rows.

The archive is a stranger's. Its directory is read only where it is small, its members are read in step, a batch of
rows at a time, and each must hold exactly what its own header says. Pickled objects are never read.
"""

import io
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from tokenize import TokenError
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from core.base.errors import FieldError, Invalid
from core.data.arrays import shapes_of
from core.data.columns import ArrayColumn, Column
from core.records.decoding.checks import Counter, check_names, check_schema, too_large, unreadable
from core.records.decoding.sources import Source

_ENDING: Final = ".npy"
_END_BYTES: Final = 22
_LOCATOR_BYTES: Final = 20
_MOST_DIRECTORY_BYTES: Final = 4 * 2**20
_BATCH_BYTES: Final = 2**24
_ENCRYPTED: Final = 1
_HIGHEST_LETTER: Final = 0x10FFFF
_SURROGATES: Final = (0xD800, 0xDFFF)
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError)
_NO_HEADER = (ValueError, SyntaxError, TokenError, TypeError, KeyError)
"""NumPy's own limit of headers."""
_WRITE_AGAIN: Final = "write the file again with numpy.savez or numpy.savez_compressed"


@dataclass(frozen=True)
class _Member:
    """One array of the archive, open where its numbers begin."""

    name: str
    file: IO[bytes]
    dtype: "np.dtype[Any]"
    shape: tuple[int, ...]

    @property
    def row_numbers(self) -> int:
        return prod(self.shape[1:])

    @property
    def row_bytes(self) -> int:
        return self.row_numbers * self.dtype.itemsize


def read_npz(source: Source, columns: Sequence[Column], counter: Counter) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an archive, batch by batch.

    Raises:
        Invalid: the archive, its names, shapes or types are wrong.
        TooLarge: its headers say that it holds more than is taken.
    """
    with ExitStack() as stack:
        content = stack.enter_context(source.open())
        try:
            _check_end(content, counter)
            archive = stack.enter_context(zipfile.ZipFile(content))
            members = _members(archive, columns, stack)
        except _BROKEN:
            raise unreadable("it is no complete NPZ file", _WRITE_AGAIN) from None
        rows = _rows(members, columns)
        counter.check(rows, sum(rows * member.row_bytes for member in members))
        schema = pa.schema(
            [(member.name, _type(member, column)) for member, column in zip(members, columns, strict=True)]
        )
        check_schema(schema, columns)
        widest = max(member.row_bytes for member in members)
        step = max(1, min(counter.batch_rows, _BATCH_BYTES // widest))
        for start in range(0, rows, step):
            count = min(step, rows - start)
            yield pa.record_batch([_cells(member, count) for member in members], schema=schema)
        for member in members:
            # zipfile compares a checksum only when a read reaches the end.
            _read(member, 0, last=True)


def _check_end(content: io.RawIOBase, counter: Counter) -> None:
    """Refuse an archive whose directory is not small; it would be read at once."""
    size = content.seek(0, io.SEEK_END)
    content.seek(max(0, size - _END_BYTES - _LOCATOR_BYTES))
    end = content.read()
    record = end[-_END_BYTES:]
    # Without a comment the record is the last 22 bytes, which zipfile then takes, too.
    if len(record) < _END_BYTES or not record.startswith(b"PK\x05\x06") or record[-2:] != b"\0\0":
        raise zipfile.BadZipFile
    # In ZIP64 the counts that are checked below are not the ones that are used.
    if end[:-_END_BYTES].startswith(b"PK\x06\x07"):
        raise too_large("more than a plain ZIP archive can")
    counter.check_width(int.from_bytes(record[10:12], "little"))
    if int.from_bytes(record[12:16], "little") > _MOST_DIRECTORY_BYTES:
        raise too_large("names of more than 4 MiB")


def _members(archive: zipfile.ZipFile, columns: Sequence[Column], stack: ExitStack) -> list[_Member]:
    """Return the declared columns' arrays, in the declaration's order, each open behind its header."""
    found = archive.infolist()
    strange = [info.filename for info in found if not info.filename.endswith(_ENDING)]
    if strange:
        raise unreadable(f"it holds `{strange[0][:200]}`, which is no array", _WRITE_AGAIN)
    names = [info.filename.removesuffix(_ENDING) for info in found]
    check_names(names, columns)
    unknown = [name for name in names if name not in {column.name for column in columns}]
    if unknown:
        detail = f"no column declares the array `{unknown[0][:200]}`; declare it, or leave it out of the file"
        raise Invalid(f"The file holds {len(unknown)} arrays that are not declared.", FieldError("/file", detail))
    infos = dict(zip(names, found, strict=True))
    members = []
    for place, column in enumerate(columns):
        info = infos[column.name]
        if info.flag_bits & _ENCRYPTED or info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise unreadable("it is encrypted, or compressed in another way than NumPy does", _WRITE_AGAIN)
        member = _open(stack.enter_context(archive.open(info)), column.name, place)
        if info.file_size != member.file.tell() + prod(member.shape) * member.dtype.itemsize:
            raise unreadable(f"the array `{column.name}` is not as long as its header says", _WRITE_AGAIN)
        members.append(member)
    return members


def _open(file: IO[bytes], name: str, place: int) -> _Member:
    """Read an array's header."""
    try:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):  # a longer header has names in its type
            raise _wrong_type(place, name, "it is no plain array")
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    except _NO_HEADER:
        raise zipfile.BadZipFile from None
    if dtype.hasobject:
        raise _wrong_type(place, name, "pickled Python objects are never read: write numbers, or texts of dtype str")
    if dtype.kind not in "biufUM" or dtype.itemsize == 0:
        raise _wrong_type(place, name, f"its dtype is {dtype.str[:50]}: write numbers, or texts of dtype str")
    if fortran_order and len(shape) > 1:
        raise _wrong_type(place, name, "it is in Fortran order: write numpy.ascontiguousarray of it")
    if any(size < 0 for size in shape):
        raise ValueError
    return _Member(name, file, dtype, shape)


def _wrong_type(place: int, name: str, detail: str) -> Invalid:
    return Invalid(f"The array `{name}` cannot be read.", FieldError(f"/columns/{place}/type", detail))


def _rows(members: Sequence[_Member], columns: Sequence[Column]) -> int:
    """Return how many rows there are, the same in all arrays, whose shapes are those declared."""
    for place, (member, column) in enumerate(zip(members, columns, strict=True)):
        if not member.shape:
            raise _wrong_type(place, member.name, "it is a single number: its first axis must be the rows")
        if isinstance(column, ArrayColumn):
            if _long_axes(member.shape[1:]) not in map(_long_axes, shapes_of(column)):
                detail = f"a row has the shape {list(member.shape[1:])} in the file, not {list(column.shape)}"
                raise Invalid("The file holds arrays of another shape.", FieldError(f"/columns/{place}/shape", detail))
        elif len(member.shape) > 1:
            detail = f"a row has the shape {list(member.shape[1:])} in the file: declare an array, or write one axis"
            raise _wrong_type(place, member.name, detail)
        if member.shape[0] != members[0].shape[0]:
            detail = f"`{member.name}` has {member.shape[0]} rows, but `{members[0].name}` {members[0].shape[0]}"
            raise Invalid("The arrays differ in their numbers of rows.", FieldError("/file", detail))
    return members[0].shape[0]


def _long_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes that have any say in the order of numbers."""
    return tuple(size for size in shape if size != 1)


def _type(member: _Member, column: Column) -> pa.DataType:
    try:
        kind = pa.from_numpy_dtype(member.dtype)
    except pa.ArrowNotImplementedError:
        kind = pa.binary()  # fits no column
    return pa.list_(kind, member.row_numbers) if isinstance(column, ArrayColumn) else kind


def _cells(member: _Member, rows: int) -> pa.Array:
    """Return the next rows of an array."""
    numbers = np.frombuffer(_read(member, rows * member.row_bytes), dtype=member.dtype)
    numbers = numbers.astype(member.dtype.newbyteorder("="), copy=False)
    if numbers.dtype.kind == "U":
        _check_letters(numbers, member.name)
    cells = pa.array(numbers)
    return cells if len(member.shape) == 1 else pa.FixedSizeListArray.from_arrays(cells, member.row_numbers)


def _read(member: _Member, size: int, *, last: bool = False) -> bytes:
    """Return so many bytes of an array, or nothing at its end, where its checksum is compared."""
    try:
        content = member.file.read(1 if last else size)
    except _BROKEN:
        content = b"" if size else b"\0"
    if len(content) != size:
        raise unreadable(f"the array `{member.name}` is damaged, or cut short", _WRITE_AGAIN)
    return content


def _check_letters(texts: npt.NDArray[np.str_], name: str) -> None:
    """Refuse texts that are not Unicode."""
    letters = texts.view(np.uint32)
    first, last = _SURROGATES
    if (letters > _HIGHEST_LETTER).any() or ((letters >= first) & (letters <= last)).any():
        raise unreadable(f"the texts in `{name}` are not Unicode", _WRITE_AGAIN)
