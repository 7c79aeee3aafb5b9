"""CSV, Parquet, Arrow and NPZ files as streams of record batches that hold the declared columns only.

The file is a stranger's: nothing it says about itself is believed before it has been counted. Its structure and types
are checked against the declaration and refused when wrong; its values are not looked at here.
"""

import io
from collections.abc import Iterator, Sequence
from enum import StrEnum

import pyarrow as pa
import pyarrow.parquet as pq

from core.base.errors import FieldError, Invalid
from core.data.columns import ArrayColumn, BinaryColumn, CategoryColumn, Column
from core.data.reading import PLAIN, FileReading
from core.records.decoding.checks import Caps, Counter, check_schema, unreadable
from core.records.decoding.csv_files import read_csv
from core.records.decoding.npz import read_npz
from core.records.decoding.sources import Source

_FOOTER_BYTES = 64 * 2**20


class Format(StrEnum):
    """Formats of a file."""

    CSV = "csv"
    PARQUET = "parquet"
    ARROW_FILE = "arrow-file"
    ARROW_STREAM = "arrow-stream"
    NPZ = "npz"


def sniff(source: Source) -> Format:
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
    source: Source,
    kind: Format,
    columns: Sequence[Column],
    caps: Caps,
    reading: FileReading | None = None,
    *,
    whole: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield batches of some ten thousand rows, fewer of arrays, with the declared columns in the declaration's order.

    Args:
        source: the file.
        kind: its format.
        columns: the declaration.
        caps: the most that it may hold.
        reading: the declared form of a CSV file.
        whole: yield all columns of the file in its own order, and others than the declared ones as they are. Not of
            NPZ.

    Raises:
        Invalid: the file's structure or types are wrong; the field at fault is named.
        TooLarge: the file passes a cap, as it says itself or as it is counted.
    """
    if reading is not None and kind is not Format.CSV:
        fix = f"leave it out: a file of kind {kind} says by itself how it is written"
        raise Invalid("Only a CSV file has a reading.", FieldError("/reading", fix))
    with source.open() as file:
        size = file.seek(0, io.SEEK_END)
    if size == 0:
        raise Invalid("The file is empty.", FieldError("/file", "send a file with a header and rows"))
    counter = Counter(size, columns, caps)
    match kind:
        case Format.CSV:
            found = read_csv(source, columns, counter, reading or PLAIN, whole=whole)
        case Format.PARQUET:
            found = _parquet(source, columns, counter, whole=whole)
        case Format.ARROW_FILE | Format.ARROW_STREAM:
            found = _arrow(source, columns, counter, whole=whole)
        case Format.NPZ:
            assert not whole, "it holds arrays alone"
            found = read_npz(source, columns, counter)
    for batch in found:
        counter.add(batch)
        for start in range(0, batch.num_rows, counter.batch_rows):
            yield batch.slice(start, counter.batch_rows)
    if counter.rows == 0:
        raise Invalid("The file holds no rows.", FieldError("/file", "send at least one row below the header"))


def _parquet(source: Source, columns: Sequence[Column], counter: Counter, *, whole: bool) -> Iterator[pa.RecordBatch]:
    broken = unreadable("it is no complete Parquet file", "write the file again")
    with source.open() as file:
        size = file.seek(0, io.SEEK_END)
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


def _arrow(source: Source, columns: Sequence[Column], counter: Counter, *, whole: bool) -> Iterator[pa.RecordBatch]:
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
