"""CSV files as streams of record batches of texts, read as their owner declared.

The header and the encoding are looked at first. A file that plainly is written otherwise than declared is refused with
the field of the reading to change, before a cell of it is decoded.
"""

import codecs
import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, get_args

import pyarrow as pa
import pyarrow.csv as pacsv

from core.base.errors import FieldError, Invalid
from core.data.columns import ArrayColumn, Column
from core.data.reading import FileReading, Separator
from core.records.decoding.checks import Counter, check_names, too_large, unreadable
from core.records.decoding.sources import Source

HEADER_BYTES: Final = 2 * 2**20
_BLOCK_BYTES: Final = 4 * 2**20
_TEXT_BYTES: Final = 2**29
"""Of all columns of one block: Arrow takes as much memory for each of them as the whole block has."""
_CHUNK_BYTES: Final = 2**20
_EXCEL: Final = re.compile(rb"(\xef\xbb\xbf)?sep=[,;\t|](\r\n|\n|\r)", re.IGNORECASE)
_START_BYTES: Final = 256
UTF_16_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_NAMES: Final = {"\t": "\\t"}


def read_csv(
    source: Source, columns: Sequence[Column], counter: Counter, reading: FileReading, *, whole: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the declared columns, as texts; `whole`: of all columns, in the file's order.

    Raises:
        Invalid: arrays are declared, or the file's encoding, header or rows are not as declared. Of a whole file, the
            first rows with cells too many or too few are named.
        TooLarge: its header passes a cap.
    """
    arrays = [place for place, column in enumerate(columns) if isinstance(column, ArrayColumn)]
    if arrays:
        fields = (FieldError(f"/columns/{place}/type", "send Parquet, Arrow or NPZ") for place in arrays[:100])
        raise Invalid("A CSV file holds no arrays.", *fields)
    is_quoted = _check_encoding(source, reading)
    line, begin = header_line(source, reading)
    # Before names are parsed: a header of 2 MiB may have a million of them.
    counter.check_width(line.count(reading.separator) + 1)
    names = names_in(line, reading)
    if not any(names) or "\0" in line:
        raise unreadable("its first line is no CSV header", "put the columns' names into the first line")
    _refuse_other_separator(line, names, columns, reading)
    check_names(names, columns)
    wanted = names if whole else [column.name for column in columns]
    odd: list[FieldError] = []

    def note(row: pacsv.InvalidRow) -> str:
        if row.number is not None:
            fix = f"has {row.actual_columns} cells, where the first line names {row.expected_columns} columns"
            odd.append(FieldError(f"/rows/{row.number - 1}", fix))
        return "error"

    block_bytes = min(_BLOCK_BYTES, _TEXT_BYTES // len(wanted))
    with _utf8(source, reading) as file:
        file.read(begin)
        try:
            yield from pacsv.open_csv(
                file,
                read_options=pacsv.ReadOptions(column_names=names, block_size=block_bytes, use_threads=not whole),
                parse_options=pacsv.ParseOptions(
                    delimiter=reading.separator,
                    quote_char=reading.quote or False,
                    # Only quotes can hide line ends; without any, Arrow may take its faster way.
                    newlines_in_values=is_quoted,
                    invalid_row_handler=note if whole else None,
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
                "give every row as many cells as the header has; quote cells that hold separators or line ends",
            ) from None


def header_line(source: Source, reading: FileReading) -> tuple[str, int]:
    """Return the first line, and the place of the byte after it in the file as UTF-8; Excel's own `sep=;` is no line.

    Raises:
        TooLarge: it is longer than 2 MiB.
    """
    with _utf8(source, reading) as file:
        start = file.read(HEADER_BYTES)
    before = found.end() if (found := _EXCEL.match(start)) else 0
    ends = [end for end in (start.find(b"\n", before), start.find(b"\r", before)) if end >= 0]
    if not ends and len(start) == HEADER_BYTES:
        raise too_large("a header of more than 2 MiB")
    begin = min(ends) + 1 if ends else len(start)
    line = start[before : min(ends)] if ends else start[before:]
    text = line.removeprefix(codecs.BOM_UTF8).decode(errors="replace")
    return text, begin + (start[begin - 1 : begin + 1] == b"\r\n")


def names_in(line: str, reading: FileReading) -> list[str]:
    """Return the names in a header, blanks around them removed; none where it cannot be parsed."""
    try:
        if reading.quote is None:
            cells = line.split(reading.separator)
        else:
            cells = next(csv.reader([line], delimiter=reading.separator, quotechar=reading.quote, strict=True), [])
    except csv.Error:
        return []
    return [name.strip() for name in cells]


def other_separators(
    line: str, names: Sequence[str], columns: Sequence[Column], reading: FileReading
) -> list[Separator]:
    """Return the separators by which a header has more of the declared names than by the declared one, best first."""
    declared = {column.name for column in columns}
    found = {}
    for separator in get_args(Separator):
        # Not a whole reading: this separator may be the declared decimal mark.
        other = names_in(line, reading.model_copy(update={"separator": separator}))
        found[separator] = len(declared.intersection(other))
    better = [one for one, count in found.items() if count > len(declared.intersection(names))]
    return sorted(better, key=lambda one: -found[one])


def _refuse_other_separator(line: str, names: Sequence[str], columns: Sequence[Column], reading: FileReading) -> None:
    better = other_separators(line, names, columns, reading)
    if better:
        read = "one column" if len(names) == 1 else f"{len(names)} columns"
        fix = f'the header reads as {read}; declare reading.separator "{_NAMES.get(better[0], better[0])}"'
        raise Invalid("The file is separated otherwise than declared.", FieldError("/reading/separator", fix))


@contextmanager
def _utf8(source: Source, reading: FileReading) -> Iterator[pa.NativeFile]:
    """Open a file as a stream of UTF-8."""
    with source.open() as content, pa.PythonFile(content, "r") as file:
        yield file if reading.encoding == "utf-8" else pa.transcoding_input_stream(file, reading.encoding, "utf-8")


@dataclass(frozen=True)
class Text:
    """The bytes of a file, looked at once."""

    decodes: bool
    """Whether all of them are text in the encoding."""
    is_ascii: bool
    is_quoted: bool
    """Whether there is a quote anywhere."""


def look_at(source: Source, encoding: str, quote: str | None = None) -> Text:
    """Read all of a file as text in an encoding, up to the first byte that is none."""
    decoder = codecs.getincrementaldecoder(encoding)()
    mark = None if quote is None else quote.encode()
    is_ascii, is_quoted = True, False
    try:
        with source.open() as file:
            while chunk := file.read(_CHUNK_BYTES):
                decoder.decode(chunk)
                is_ascii = is_ascii and chunk.isascii()
                is_quoted = is_quoted or (mark is not None and mark in chunk)
        decoder.decode(b"", final=True)
    except UnicodeError:
        return Text(decodes=False, is_ascii=is_ascii, is_quoted=is_quoted)
    return Text(decodes=True, is_ascii=is_ascii, is_quoted=is_quoted)


def first_bytes(source: Source) -> bytes:
    """Return the first two bytes of a text file.

    Raises:
        Invalid: it is compressed, or has zero bytes in its header and does not begin as UTF-16.
    """
    with source.open() as file:
        start = file.read(_START_BYTES)
    if start[:2] == b"\x1f\x8b":
        raise unreadable("it is compressed by gzip", "unpack it, or send Parquet, which may be compressed")
    # Of the header alone: no cell makes a file fail.
    header = re.split(rb"[\r\n]", start, maxsplit=1)[0]
    if b"\0" in header and start[:2] not in UTF_16_MARKS:
        raise unreadable(
            "its first line is no CSV header, for it has zero bytes, as UTF-16 without a byte order mark has",
            "save it as UTF-8, or as UTF-16 with a byte order mark",
        )
    return start[:2]


def _check_encoding(source: Source, reading: FileReading) -> bool:
    """Refuse a file that is not in the declared encoding; return whether there is a quote anywhere."""
    start = first_bytes(source)
    if (start in UTF_16_MARKS) != (reading.encoding == "utf-16"):
        if start in UTF_16_MARKS:
            raise _encoded_otherwise("its first bytes are those of UTF-16", 'declare reading.encoding "utf-16"')
        raise _encoded_otherwise("it has no byte order mark of UTF-16", "declare another one, such as utf-8 or cp1252")
    text = look_at(source, reading.encoding, reading.quote)
    if not text.decodes:
        fix = "declare reading.encoding, such as cp1252, which Windows writes in Western Europe, or latin-1"
        raise _encoded_otherwise(f"its text is not {reading.encoding.upper()}", fix)
    # The others take nearly any bytes, and would make two letters of each accented one.
    if reading.encoding not in {"utf-8", "utf-16"} and not text.is_ascii and look_at(source, "utf-8").decodes:
        raise _encoded_otherwise("its text, beyond ASCII too, is UTF-8", 'declare reading.encoding "utf-8"')
    return text.is_quoted


def _encoded_otherwise(what: str, fix: str) -> Invalid:
    return Invalid(f"The file is encoded otherwise than declared: {what}.", FieldError("/reading/encoding", fix))
