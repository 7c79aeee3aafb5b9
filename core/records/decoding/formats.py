"""CSV, Parquet, Arrow and NPZ files as streams of record batches that hold the declared columns only.

The file is a stranger's: nothing it says about itself is believed before it has been counted. Its structure and types
are checked against the declaration and refused when wrong; its values are not looked at here.
"""

import codecs
import csv
from collections.abc import Iterator, Sequence
from enum import StrEnum

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from core.base.errors import FieldError, Invalid
from core.data.columns import ArrayColumn, BinaryColumn, CategoryColumn, Column
from core.records.decoding.checks import Caps, Counter, check_names, check_schema, too_large, unreadable
from core.records.decoding.npz import read_npz
from core.records.encryption import SealedFile

_BLOCK_BYTES = 4 * 2**20
_TEXT_BYTES = 2**29
"""Of all columns of one block of a CSV: Arrow takes as much memory for each of them as the whole block has."""
_HEADER_BYTES = 2 * 2**20
_FOOTER_BYTES = 64 * 2**20


class Format(StrEnum):
    """Formats of a file."""

    CSV = "csv"
    PARQUET = "parquet"
    ARROW_FILE = "arrow-file"
    ARROW_STREAM = "arrow-stream"
    NPZ = "npz"


def sniff(source: SealedFile) -> Format:
    """Return how a file is written, by its first bytes."""
    with source.open() as file:
        start = file.read(8)
    if start.startswith(b"PAR1"):
        return Format.PARQUET
    if start.startswith(b"ARROW1"):
        return Format.ARROW_FILE
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return Format.NPZ
    return Format.ARROW_STREAM if start.startswith(b"\xff\xff\xff\xff") else Format.CSV


def batches(
    source: SealedFile, kind: Format, columns: Sequence[Column], caps: Caps, *, whole: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield batches of some ten thousand rows, fewer of arrays, with the declared columns in the declaration's order.

    Args:
        source: the file.
        kind: its format.
        columns: the declaration.
        caps: the most that it may hold.
        whole: yield all columns of the file in its own order, and others than the declared ones as they are. Not of
            NPZ.

    Raises:
        Invalid: the file's structure or types are wrong; the field at fault is named.
        TooLarge: the file passes a cap, as it says itself or as it is counted.
    """
    read = {
        Format.CSV: _csv,
        Format.PARQUET: _parquet,
        Format.ARROW_FILE: _arrow,
        Format.ARROW_STREAM: _arrow,
        Format.NPZ: _npz,
    }[kind]
    with source.open() as file:
        size = file.size
    if size == 0:
        raise Invalid("The file is empty.", FieldError("/file", "send a file with a header and rows"))
    counter = Counter(size, columns, caps)
    for batch in read(source, columns, counter, whole=whole):
        counter.add(batch)
        for start in range(0, batch.num_rows, counter.batch_rows):
            yield batch.slice(start, counter.batch_rows)
    if counter.rows == 0:
        raise Invalid("The file holds no rows.", FieldError("/file", "send at least one row below the header"))


def _npz(source: SealedFile, columns: Sequence[Column], counter: Counter, *, whole: bool) -> Iterator[pa.RecordBatch]:
    assert not whole, "it holds arrays alone"
    yield from read_npz(source, columns, counter)


def _csv(source: SealedFile, columns: Sequence[Column], counter: Counter, *, whole: bool) -> Iterator[pa.RecordBatch]:
    arrays = [place for place, column in enumerate(columns) if isinstance(column, ArrayColumn)]
    if arrays:
        fields = (FieldError(f"/columns/{place}/type", "send Parquet, Arrow or NPZ") for place in arrays[:100])
        raise Invalid("A CSV file holds no arrays.", *fields)
    names, start, quoted = _header(source, counter)
    check_names(names, columns)
    wanted = names if whole else [column.name for column in columns]
    odd: list[FieldError] = []

    def note(row: pacsv.InvalidRow) -> str:
        if row.number is not None:
            fix = f"has {row.actual_columns} cells, where the first line names {row.expected_columns} columns"
            odd.append(FieldError(f"/rows/{row.number - 1}", fix))
        return "error"

    block_bytes = min(_BLOCK_BYTES, _TEXT_BYTES // len(wanted))
    with source.open() as content, pa.PythonFile(content, "r") as file:
        file.seek(start)
        if start >= content.size:
            return
        try:
            yield from pacsv.open_csv(
                file,
                read_options=pacsv.ReadOptions(column_names=names, block_size=block_bytes, use_threads=not whole),
                # Only quotes can hide line ends; without any, Arrow may take its faster way.
                parse_options=pacsv.ParseOptions(
                    newlines_in_values=quoted, invalid_row_handler=note if whole else None
                ),
                # As texts: a type that Arrow guesses would depend on values.
                convert_options=pacsv.ConvertOptions(
                    column_types=dict.fromkeys(wanted, pa.string()), include_columns=wanted
                ),
            )
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error):
                return
            if odd:
                raise Invalid("A row has cells too many or too few.", *odd) from None
            # the library's own text quotes the row
            raise unreadable(
                f"a row has more or fewer cells than the header, or is longer than {block_bytes // 1024} KiB",
                "give every row as many cells as the header has; quote cells that hold commas or line ends",
            ) from None


def _header(source: SealedFile, counter: Counter) -> tuple[list[str], int, bool]:
    """Return the names, where the first row begins, and whether the file holds quotes; every byte must be UTF-8."""
    with source.open() as file:
        start = file.read(_HEADER_BYTES)
    ends = [end for end in (start.find(b"\n"), start.find(b"\r")) if end >= 0]
    line = start[: min(ends)] if ends else start
    # Before names are parsed: a header of 2 MiB may have a million of them.
    counter.check_width(line.count(b",") + 1)
    if not ends and len(start) == _HEADER_BYTES:
        raise too_large("a header of more than 2 MiB")
    quoted = _check_encoding(source)
    try:
        text = line.removeprefix(codecs.BOM_UTF8).decode()
        names = [name.strip() for name in next(csv.reader([text], strict=True), [])]
    except (csv.Error, ValueError):
        names = []
    if not any(names) or "\0" in "".join(names):
        raise unreadable("its first line is no CSV header", "put the columns' names into the first line")
    begin = min(ends) + 1 if ends else len(start)
    return names, begin + (start[begin - 1 : begin + 1] == b"\r\n"), quoted


def _check_encoding(source: SealedFile) -> bool:
    """Refuse bytes that are not UTF-8; return whether there is a quote anywhere."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    quoted = False
    try:
        with source.open() as file:
            if file.read(2) == b"\x1f\x8b":
                raise unreadable("it is compressed by gzip", "unpack it, or send Parquet, which may be compressed")
        with source.open() as file:
            while chunk := file.read(2**20):
                decoder.decode(chunk)
                quoted = quoted or b'"' in chunk
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise unreadable("its text is not UTF-8", "save the file as UTF-8, or send Parquet") from None
    return quoted


def _parquet(
    source: SealedFile, columns: Sequence[Column], counter: Counter, *, whole: bool
) -> Iterator[pa.RecordBatch]:
    broken = unreadable("it is no complete Parquet file", "write the file again")
    with source.open() as file:
        size = file.size
        file.seek(max(0, size - 8))
        end = file.read(8)
    footer_bytes = int.from_bytes(end[:4], "little")
    # The library reads the footer at once, so that its claimed length is bounded first.
    if end[4:] != b"PAR1" or footer_bytes > min(size, _FOOTER_BYTES):
        raise broken
    # As dictionaries, a long text that comes often is decoded once; columns that are passed on keep their types.
    coded = [] if whole else [column.name for column in columns if isinstance(column, CategoryColumn | BinaryColumn)]
    limits = {"thrift_string_size_limit": _FOOTER_BYTES, "thrift_container_size_limit": 1_000_000}
    try:
        with source.open() as content, pq.ParquetFile(pa.PythonFile(content, "r"), **limits) as file:
            footer = file.metadata
            counter.check_width(footer.num_columns)
            check_schema(file.schema_arrow, columns)
            counter.check(*_claimed(footer, columns))
        with (
            source.open() as content,
            pq.ParquetFile(pa.PythonFile(content, "r"), metadata=footer, read_dictionary=coded, **limits) as file,
        ):
            wanted = None if whole else [column.name for column in columns]
            for batch in file.iter_batches(batch_size=max(1, counter.batch_rows // 4), columns=wanted):
                yield _checked(batch, None if whole else columns)
    except (pa.ArrowException, OSError):
        raise broken from None


def _claimed(footer: pq.FileMetaData, columns: Sequence[Column]) -> tuple[int, int, int]:
    """Return the rows, the decompressed bytes and the cells of the declared columns that the footer owns up to."""
    wanted = {column.name for column in columns}
    # Parquet names the numbers of a list `column.list.element` or alike.
    lists = tuple(f"{column.name}." for column in columns if isinstance(column, ArrayColumn))
    paths = [footer.schema.column(place).path for place in range(footer.num_columns)]
    places = [place for place, path in enumerate(paths) if path in wanted or path.startswith(lists)]
    rows = decompressed = cells = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        rows += group.num_rows
        decompressed += sum(group.column(place).total_uncompressed_size for place in places)
        cells += sum(group.column(place).num_values for place in places)
    # A forged footer may contradict itself: the larger number counts.
    return max(rows, footer.num_rows), decompressed, cells


def _arrow(source: SealedFile, columns: Sequence[Column], counter: Counter, *, whole: bool) -> Iterator[pa.RecordBatch]:
    try:
        with source.open() as content, pa.PythonFile(content, "r") as file:
            if sniff(source) is Format.ARROW_FILE:
                reader = pa.ipc.open_file(file)
                found = (reader.get_batch(number) for number in range(reader.num_record_batches))
            else:
                reader = pa.ipc.open_stream(file)
                found = iter(reader)
            counter.check_width(len(reader.schema))
            check_schema(reader.schema, columns)
            for batch in found:
                yield _checked(batch, None if whole else columns)
    except (pa.ArrowException, OSError):
        raise unreadable("it is no complete Arrow file", "write the file again") from None


def _checked(batch: pa.RecordBatch, columns: Sequence[Column] | None) -> pa.RecordBatch:
    """Return the columns in order, None: all, after every offset, length and text in them was checked."""
    if columns is not None:
        batch = batch.select([column.name for column in columns])
    batch.validate(full=True)
    return batch
