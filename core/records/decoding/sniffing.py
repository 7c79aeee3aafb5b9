"""The form of a CSV file, found by looking at it: for drafts, whose owners alone see what was taken and seal it.

The first bytes and the first batch of rows are looked at. Where they could be read in two ways, one is taken, and the
other is named as a doubt. Nothing here decides what a sealed dataset means: sealing declares what was taken.
"""

import re
from collections.abc import Sequence
from typing import Final, get_args

import numpy as np
import pyarrow as pa

from core.base.errors import FieldError, Invalid
from core.data.columns import Column, DateColumn, IntegerColumn, NumberColumn, Ordered
from core.data.dates import MOST_FORMS, are_distinct
from core.data.reading import PLAIN, Encoding, FileReading, Separator
from core.records.decoding.cells import Floats, days_of_texts, floats_of
from core.records.decoding.checks import Counter, likely_cause, unreadable
from core.records.decoding.csv_files import UTF_16_MARKS, first_bytes, header_line, look_at, names_in, read_csv
from core.records.decoding.otherwise import FORMS, NUMERALS, given_in, holds_thousands, with_numerals
from core.records.decoding.sources import Source
from core.records.decoding.validation import Doubt, Sniffed

_SAMPLE_BYTES: Final = 2**20
_ROWS: Final = 100
"""Of which the numbers of cells are compared with the header's."""
_ANY: Final = NumberColumn(name="any", lower=0, upper=1)
"""Its bounds play no part."""
_RARE: Final = 100
"""A form that fewer than one cell in so many has is a typing mistake."""


def sniff(source: Source, columns: Sequence[Column], counter: Counter) -> Sniffed:
    """Return the reading of a file and the forms of its dates, with what else they could be.

    Args:
        source: a CSV file.
        columns: the declaration; a date column that declares forms keeps them.
        counter: of its caps.

    Raises:
        Invalid: it is no CSV file of these columns under any reading.
        TooLarge: its header passes a cap.
    """
    encoding, doubts = _encoding(source)
    form = FileReading(encoding=encoding)
    line, _ = header_line(source, form)
    counter.check_width(max(map(line.count, get_args(Separator))) + 1)
    form = form.model_copy(update={"separator": _separator(line, form, columns)})
    form = form.model_copy(update={"quote": _quote(source, form)})
    batch = next(read_csv(source, columns, counter, form), None)
    if batch is None:
        return Sniffed(reading=form, formats=tuple(() for _ in columns), doubts=tuple(doubts))
    given = [given_in(column, batch.column(place)) for place, column in enumerate(columns) if _is_ordered(column)]
    ordered = [column for column in columns if isinstance(column, Ordered)]
    form, unsure = _numerals(form, list(zip(ordered, given, strict=True)))
    formats = []
    cells = dict(zip((column.name for column in ordered), given, strict=True))
    for place, column in enumerate(columns):
        taken: tuple[str, ...] = ()
        if isinstance(column, DateColumn) and not column.formats:
            taken, others = forms_of_dates(cells[column.name], f"/columns/{place}/formats")
            unsure += others
        formats.append(taken)
    return Sniffed(reading=form, formats=tuple(formats), doubts=(*doubts, *unsure))


def sniff_undeclared(source: Source, counter: Counter) -> tuple[FileReading, list[Doubt]]:
    """Return the reading of a file of which no column is declared, with what else it could be.

    Raises:
        As `sniff`.
    """
    encoding, doubts = _encoding(source)
    form = FileReading(encoding=encoding)
    line, begin = header_line(source, form)
    counter.check_width(max(map(line.count, get_args(Separator))) + 1)
    with source.open() as file:
        sample = file.read(_SAMPLE_BYTES).decode(encoding, errors="ignore")
    rows = sample.encode()[begin:].decode(errors="ignore").splitlines()[:_ROWS]
    form = form.model_copy(update={"separator": _likeliest(line, rows, form)})
    form = form.model_copy(update={"quote": _quote(source, form)})
    if (cause := likely_cause(names_in(line, form), set())) is not None:
        raise Invalid("The file names no columns.", FieldError("/file", cause))
    batch = next(read_csv(source, (), counter, form, whole=True), None)
    if batch is None:
        return form, doubts
    # Cells that are no number under any numerals say nothing.
    form, unsure = _numerals(form, [(_ANY, given_in(_ANY, cells)) for cells in batch.columns])
    return form, doubts + unsure


def _likeliest(line: str, rows: Sequence[str], form: FileReading) -> Separator:
    """Return the separator by which most rows have as many cells as the header, the most cells where several do."""

    def agreement(separator: Separator) -> tuple[int, int, int]:
        other = form.model_copy(update={"separator": separator})
        cells = len(names_in(line, other))
        agree = sum(len(names_in(row, other)) == cells for row in rows)
        return (agree if cells > 1 else 0, cells, agree)

    return max(get_args(Separator), key=agreement)


def _is_ordered(column: Column) -> bool:
    return isinstance(column, Ordered)


def _encoding(source: Source) -> tuple[Encoding, list[Doubt]]:
    """Return an encoding in which all bytes are letters; UTF-8 is no accident, the others may be each other."""
    is_wide = first_bytes(source) in UTF_16_MARKS
    if is_wide and not look_at(source, "utf-16").decodes:
        raise unreadable("it begins as UTF-16, and goes on otherwise", "save the file again, as UTF-8")
    if is_wide:
        return "utf-16", []
    if look_at(source, "utf-8").decodes:
        return "utf-8", []
    strange = bytearray()
    with source.open() as file:
        while chunk := file.read(_SAMPLE_BYTES):
            strange = bytearray(sorted({*strange, *(byte for byte in set(chunk) if byte > 127)}))  # noqa: PLR2004 - ASCII ends there
    texts: dict[Encoding, str] = {}
    for encoding in ("cp1252", "latin-1", "iso-8859-15", "cp1250", "cp1251"):
        try:
            texts[encoding] = strange.decode(encoding)
        except UnicodeDecodeError:
            continue
    taken, *others = texts
    different = [one for one in others if texts[one] != texts[taken]]
    doubt = Doubt(pointer="/reading/encoding", taken=taken, other=", ".join(different), cells=None)
    return taken, [doubt] if different else []


def _separator(line: str, form: FileReading, columns: Sequence[Column]) -> Separator:
    """Return the separator by which a header has most of the declared names, under either quote."""
    declared = {column.name for column in columns}
    found: dict[Separator, int] = {}
    for one in get_args(Separator):
        ways = [form.model_copy(update={"separator": one, "quote": quote}) for quote in ('"', "'")]
        found[one] = max(len(declared.intersection(names_in(line, way))) for way in ways)
    return max(found, key=lambda one: found[one])


def _quote(source: Source, form: FileReading) -> str:
    """Return the quote of a file: the apostrophe only where cells stand between two, and no double quote is there."""
    with source.open() as file:
        sample = file.read(_SAMPLE_BYTES).decode(form.encoding, errors="ignore")
    mark = re.escape(form.separator)
    quoted = re.search(rf"(^|{mark})'[^'\r\n]*'($|{mark})", sample, flags=re.MULTILINE)
    return "'" if quoted and '"' not in sample else '"'


def _numerals(form: FileReading, given: Sequence[tuple[Ordered, pa.Array]]) -> tuple[FileReading, list[Doubt]]:
    """Return a reading with the numerals that most cells have, the plainest where several read as many."""
    numbers = [(column, texts) for column, texts in given if isinstance(column, NumberColumn | IntegerColumn)]
    ways = [with_numerals(form, *pair) for pair in NUMERALS]
    values = [[floats_of(texts, way) for _, texts in numbers] for way in ways]
    counts = [sum(int(np.count_nonzero(~np.isnan(one))) for one in read) for read in values]
    able = [place for place, way in enumerate(ways) if way.decimal != way.separator and way.thousands != way.quote]
    most = max(counts[place] for place in able)
    best = [place for place in able if counts[place] == most]
    grouped = any(isinstance(column, IntegerColumn) and holds_thousands(texts, PLAIN) for column, texts in numbers)
    # Whole numbers have no fractions: `1.234` of them are thousands.
    taken = next((place for place in best if grouped and ways[place].thousands == "."), best[0])
    doubts: list[Doubt] = []
    named = [values[taken]]
    for place, way in enumerate(ways):
        pairs = list(zip(values[place], values[taken], strict=True))
        cells = sum(int(np.count_nonzero((one != other) & ~np.isnan(one))) for one, other in pairs)
        # A mark of thousands that no cell has changes nothing.
        if counts[place] < most or not cells or any(_are_equal(values[place], one) for one in named):
            continue
        named.append(values[place])
        doubts.append(Doubt(pointer="/reading/decimal", taken=_shown(ways[taken]), other=_shown(way), cells=cells))
    return ways[taken], doubts


def _are_equal(one: Sequence[Floats], other: Sequence[Floats]) -> bool:
    return all(np.array_equal(first, second, equal_nan=True) for first, second in zip(one, other, strict=True))


def _shown(form: FileReading) -> str:
    """Return numerals as a reading declares them."""
    thousands = "null" if form.thousands is None else f'"{form.thousands}"'
    return f'decimal "{form.decimal}", thousands {thousands}'


def forms_of_dates(texts: pa.Array, pointer: str) -> tuple[tuple[str, ...], list[Doubt]]:
    """Return the forms that a column's dates have beside ISO, the commonest first, and those that fit as well."""
    taken: tuple[str, ...] = ()
    doubts: list[Doubt] = []
    least = max(1, len(texts) / _RARE)
    while len(taken) < MOST_FORMS:
        texts = texts.filter(pa.array(np.isnan(days_of_texts(texts, taken))))
        found = {form: days_of_texts(texts, (form,)) for form in FORMS if are_distinct((*taken, form))}
        counts = {form: int(np.count_nonzero(~np.isnan(days))) for form, days in found.items()}
        form = max(counts, key=lambda one: counts[one])
        if counts[form] < least:
            break
        read = ~np.isnan(found[form])
        for other, days in found.items():
            differs = int(np.count_nonzero(days[read] != found[form][read]))
            if differs and np.array_equal(read, ~np.isnan(days)):  # of the very same cells
                doubts.append(Doubt(pointer=pointer, taken=form, other=other, cells=differs))
        taken = (*taken, form)
    return taken, doubts
