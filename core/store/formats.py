"""CSV, Parquet and Arrow files as streams of record batches that hold the declared columns only.

The file is a stranger's: nothing it says about itself is believed before it has been counted. Its structure and types
are checked against the declaration and refused when wrong; its values are not looked at here.
"""

import codecs
import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from core.catalogue.columns import BinaryColumn, CategoryColumn, Column, DateColumn
from core.errors import FieldError, Invalid, TooLarge
from core.store.cells import is_text
from core.store.encryption import SealedFile

_BLOCK_BYTES = 4 * 2**20
_HEADER_BYTES = 2 * 2**20
_FOOTER_BYTES = 64 * 2**20
_BATCH_ROWS = 65_536
_EXPANSION = 1_000
_EXPANSION_FLOOR_BYTES = 128 * 2**20


class Format(StrEnum):
    """How a file is written."""

    CSV = "csv"
    PARQUET = "parquet"
    ARROW_FILE = "arrow-file"
    ARROW_STREAM = "arrow-stream"


@dataclass(frozen=True)
class Caps:
    """The most a file may hold."""

    rows: int
    columns: int
    cells: int
    """Of the declared columns."""


def sniff(source: SealedFile) -> Format:
    """Return how a file is written, by its first bytes."""
    with source.open() as file:
        start = file.read(8)
    if start.startswith(b"PAR1"):
        return Format.PARQUET
    if start.startswith(b"ARROW1"):
        return Format.ARROW_FILE
    return Format.ARROW_STREAM if start.startswith(b"\xff\xff\xff\xff") else Format.CSV


def batches(source: SealedFile, kind: Format, columns: Sequence[Column], caps: Caps) -> Iterator[pa.RecordBatch]:
    """Yield batches of at most 65,536 rows with the declared columns, in the declaration's order.

    Raises:
        Invalid: the file's structure or types are wrong; the field at fault is named.
        TooLarge: the file passes a cap, as it says itself or as it is counted.
    """
    read = {Format.CSV: _csv, Format.PARQUET: _parquet, Format.ARROW_FILE: _arrow, Format.ARROW_STREAM: _arrow}[kind]
    with source.open() as file:
        size = file.size
    if size == 0:
        raise Invalid("The file is empty.", FieldError("/file", "send a file with a header and rows"))
    counter = _Counter(size, len(columns), caps)
    for batch in read(source, columns, counter):
        counter.add(batch)
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield batch.slice(start, _BATCH_ROWS)
    if counter.rows == 0:
        raise Invalid("The file holds no rows.", FieldError("/file", "send at least one row below the header"))


class _Counter:
    """Counts what was decoded, and refuses what no honest file of this size holds."""

    def __init__(self, file_bytes: int, columns: int, caps: Caps) -> None:
        self.rows = 0
        self._bytes = 0
        self._columns = columns
        self._caps = caps
        self._most_bytes = max(_EXPANSION_FLOOR_BYTES, _EXPANSION * file_bytes)

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self._bytes += max(batch.nbytes, batch.num_rows * self._columns * 8)
        self.check(self.rows, self._bytes)

    def check(self, rows: int, decoded_bytes: int) -> None:
        """Refuse these numbers of rows and of decoded bytes, counted or claimed."""
        if rows > self._caps.rows:
            raise _too_large(f"more than {self._caps.rows} rows")
        if rows * self._columns > self._caps.cells:
            raise _too_large(f"more than {self._caps.cells} cells of declared columns")
        if decoded_bytes > self._most_bytes:
            raise _too_large(f"more than {_EXPANSION} times its own size once it is decompressed")

    def check_width(self, columns: int) -> None:
        if columns > self._caps.columns:
            raise _too_large(f"more than {self._caps.columns} columns")


def _too_large(what: str) -> TooLarge:
    return TooLarge(f"The file holds {what}.", FieldError("/file", "send a smaller file, or split it into datasets"))


def _unreadable(what: str, fix: str) -> Invalid:
    return Invalid(f"The file cannot be read: {what}.", FieldError("/file", fix))


def _check_names(names: Sequence[str], columns: Sequence[Column]) -> None:
    """Refuse a file with doubled names, or without a declared column."""
    seen: dict[str, int] = {}
    declared = {column.name: place for place, column in enumerate(columns)}
    for place, name in enumerate(names):
        if name in seen:
            pointer = f"/columns/{declared[name]}/name" if name in declared else "/file"
            text = f"columns {seen[name] + 1} and {place + 1} of the file are both named `{name[:200]}`"
            raise Invalid("The file names a column twice.", FieldError(pointer, f"{text}; rename one"))
        seen[name] = place
    hint = ""
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        hint = "; the file seems not to be separated by commas"
    absent = [
        FieldError(f"/columns/{place}/name", f"the file has no column `{name}`{hint}")
        for name, place in declared.items()
        if name not in seen
    ]
    if absent:
        raise Invalid(f"The file lacks {len(absent)} of the declared columns.", *absent[:100])


def _csv(source: SealedFile, columns: Sequence[Column], counter: _Counter) -> Iterator[pa.RecordBatch]:
    names, start, quoted = _header(source, counter)
    _check_names(names, columns)
    wanted = [column.name for column in columns]
    with source.open() as content, pa.PythonFile(content, "r") as file:
        file.seek(start)
        if start >= content.size:
            return
        try:
            yield from pacsv.open_csv(
                file,
                read_options=pacsv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES),
                parse_options=pacsv.ParseOptions(newlines_in_values=quoted),
                convert_options=pacsv.ConvertOptions(
                    column_types=dict.fromkeys(wanted, pa.string()), include_columns=wanted
                ),
            )
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error):
                return
            # the library's own text quotes the row
            raise _unreadable(
                "a row has more or fewer cells than the header, or is longer than 4 MiB",
                "give every row as many cells as the header has; quote cells that hold commas or line ends",
            ) from None


def _header(source: SealedFile, counter: _Counter) -> tuple[list[str], int, bool]:
    """Return the names, where the first row begins, and whether the file holds quotes; every byte must be UTF-8."""
    with source.open() as file:
        start = file.read(_HEADER_BYTES)
    ends = [end for end in (start.find(b"\n"), start.find(b"\r")) if end >= 0]
    line = start[: min(ends)] if ends else start
    counter.check_width(line.count(b",") + 1)
    if not ends and len(start) == _HEADER_BYTES:
        raise _too_large("a header of more than 2 MiB")
    quoted = _check_encoding(source)
    try:
        text = line.removeprefix(codecs.BOM_UTF8).decode()
        names = [name.strip() for name in next(csv.reader([text], strict=True), [])]
    except (csv.Error, ValueError):
        names = []
    if not any(names) or "\0" in "".join(names):
        raise _unreadable("its first line is no CSV header", "put the columns' names into the first line")
    begin = min(ends) + 1 if ends else len(start)
    return names, begin + (start[begin - 1 : begin + 1] == b"\r\n"), quoted


def _check_encoding(source: SealedFile) -> bool:
    """Refuse bytes that are not UTF-8; return whether there is a quote anywhere."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    quoted = False
    try:
        with source.open() as file:
            while chunk := file.read(2**20):
                decoder.decode(chunk)
                quoted = quoted or b'"' in chunk
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise _unreadable("its text is not UTF-8", "save the file as UTF-8, or send Parquet") from None
    return quoted


def _parquet(source: SealedFile, columns: Sequence[Column], counter: _Counter) -> Iterator[pa.RecordBatch]:
    broken = _unreadable("it is no complete Parquet file", "write the file again")
    with source.open() as file:
        size = file.size
        file.seek(max(0, size - 8))
        end = file.read(8)
    footer_bytes = int.from_bytes(end[:4], "little")
    if end[4:] != b"PAR1" or footer_bytes > min(size, _FOOTER_BYTES):
        raise broken
    texts = [column.name for column in columns if isinstance(column, CategoryColumn | BinaryColumn)]
    limits = {"thrift_string_size_limit": _FOOTER_BYTES, "thrift_container_size_limit": 1_000_000}
    try:
        with source.open() as content, pq.ParquetFile(pa.PythonFile(content, "r"), **limits) as file:
            footer = file.metadata
            counter.check_width(footer.num_columns)
            _check_schema(file.schema_arrow, columns)
            counter.check(*_claimed(footer, columns))
        # as dictionaries, a long text that comes often is decoded once
        with (
            source.open() as content,
            pq.ParquetFile(pa.PythonFile(content, "r"), metadata=footer, read_dictionary=texts, **limits) as file,
        ):
            for batch in file.iter_batches(batch_size=_BATCH_ROWS // 4, columns=[column.name for column in columns]):
                yield _checked(batch, columns)
    except (pa.ArrowException, OSError):
        raise broken from None


def _claimed(footer: pq.FileMetaData, columns: Sequence[Column]) -> tuple[int, int]:
    """Return the rows and the decompressed bytes of the declared columns that the footer owns up to."""
    wanted = {column.name for column in columns}
    places = [place for place in range(footer.num_columns) if footer.schema.column(place).path in wanted]
    rows = decompressed = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        rows += group.num_rows
        decompressed += sum(group.column(place).total_uncompressed_size for place in places)
    return max(rows, footer.num_rows), decompressed


def _arrow(source: SealedFile, columns: Sequence[Column], counter: _Counter) -> Iterator[pa.RecordBatch]:
    try:
        with source.open() as content, pa.PythonFile(content, "r") as file:
            if sniff(source) is Format.ARROW_FILE:
                reader = pa.ipc.open_file(file)
                found = (reader.get_batch(number) for number in range(reader.num_record_batches))
            else:
                reader = pa.ipc.open_stream(file)
                found = iter(reader)
            counter.check_width(len(reader.schema))
            _check_schema(reader.schema, columns)
            for batch in found:
                yield _checked(batch, columns)
    except (pa.ArrowException, OSError):
        raise _unreadable("it is no complete Arrow file", "write the file again") from None


def _checked(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """Return the columns in order, after every offset, length and text in them was checked."""
    batch = batch.select([column.name for column in columns])
    batch.validate(full=True)
    return batch


def _check_schema(schema: pa.Schema, columns: Sequence[Column]) -> None:
    """Refuse wrong names and types."""
    _check_names(schema.names, columns)
    wrong = [
        FieldError(f"/columns/{place}/type", f"`{column.name}` is {column.type} here, but {kind} in the file; {fix}")
        for place, column in enumerate(columns)
        for kind in [schema.field(column.name).type]
        if (fix := _misfit(column, kind)) is not None
    ]
    if wrong:
        raise Invalid(f"The file holds other types than {len(wrong)} columns declare.", *wrong[:100])


def _misfit(column: Column, kind: pa.DataType) -> str | None:
    """Return how to mend it when a column cannot be read from an Arrow type; None when it can."""
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_null(kind):
        return None
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    if isinstance(column, DateColumn):
        fits = is_text(kind) or types.is_date(kind) or types.is_timestamp(kind)
        return None if fits else "write dates, timestamps or ISO texts"
    if isinstance(column, CategoryColumn | BinaryColumn):
        if types.is_boolean(kind) and {"true", "false"}.isdisjoint(column.values):
            return 'declare the values "false" and "true"'
        return None if is_text(kind) or number else "write texts"
    return None if number or types.is_decimal(kind) else "write numbers, or declare a category"
