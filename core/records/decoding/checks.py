"""Counts and checks of every uploaded file, in any format; refusals name the field at fault."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from core.base.errors import FieldError, Invalid, TooLarge
from core.data.columns import ArrayColumn, BinaryColumn, CategoryColumn, Column, DateColumn, numbers_in
from core.records.decoding.arrays import kept_bytes, misfit_of_array
from core.records.decoding.cells import is_text

_EXPANSION: Final = 1_000
_EXPANSION_FLOOR_BYTES: Final = 128 * 2**20
_BATCH_ROWS: Final = 65_536
_BATCH_NUMBERS: Final = 2**21


@dataclass(frozen=True)
class Caps:
    """The most a file may hold."""

    rows: int
    columns: int
    cells: int
    """Of the declared columns; each number of an array is one."""


class Counter:
    """Counts what was decoded, and refuses what no honest file of this size holds."""

    def __init__(self, file_bytes: int, columns: Sequence[Column], caps: Caps) -> None:
        self.rows = 0
        self._bytes = 0
        self._row_bytes = sum(kept_bytes(column) for column in columns)
        self._row_cells = sum(numbers_in(column) for column in columns)
        self._caps = caps
        self._most_bytes = max(_EXPANSION_FLOOR_BYTES, _EXPANSION * file_bytes)

    @property
    def batch_rows(self) -> int:
        """The number of rows that are read together."""
        return max(1, min(_BATCH_ROWS, _BATCH_NUMBERS // max(1, self._row_cells)))

    def add(self, batch: pa.RecordBatch) -> None:
        """Count a batch."""
        self.rows += batch.num_rows
        # Nulls and dictionaries take next to nothing in Arrow, but whole cells in the canonical file.
        self._bytes += max(batch.nbytes, batch.num_rows * self._row_bytes)
        self.check(self.rows, self._bytes)

    def check(self, rows: int, decoded_bytes: int, cells: int = 0) -> None:
        """Refuse these numbers of rows, of decoded bytes and of cells, counted or claimed."""
        if rows > self._caps.rows:
            raise too_large(f"more than {self._caps.rows} rows")
        if max(rows * self._row_cells, cells) > self._caps.cells:
            raise too_large(f"more than {self._caps.cells} cells of declared columns")
        if decoded_bytes > self._most_bytes:
            raise too_large(f"more than {_EXPANSION} times its own size once it is decompressed")

    def check_width(self, columns: int) -> None:
        """Refuse so many columns."""
        if columns > self._caps.columns:
            raise too_large(f"more than {self._caps.columns} columns")


def too_large(what: str) -> TooLarge:
    """Return the refusal of a file that holds too much."""
    return TooLarge(f"The file holds {what}.", FieldError("/file", "send a smaller file, or split it"))


def unreadable(what: str, fix: str) -> Invalid:
    """Return the refusal of a file that is not what it should be."""
    return Invalid(f"The file cannot be read: {what}.", FieldError("/file", fix))


def check_names(names: Sequence[str], columns: Sequence[Column]) -> None:
    """Refuse a file with doubled names, or without a declared column."""
    seen: dict[str, int] = {}
    declared = {column.name: place for place, column in enumerate(columns)}
    for place, name in enumerate(names):
        if name in seen:
            pointer = f"/columns/{declared[name]}/name" if name in declared else "/file"
            text = f"columns {seen[name] + 1} and {place + 1} of the file are both named `{name[:200]}`"
            raise Invalid("The file names a column twice.", FieldError(pointer, f"{text}; rename one"))
        seen[name] = place
    absent = [
        FieldError(f"/columns/{place}/name", f"the file has no column `{name}`")
        for name, place in declared.items()
        if name not in seen
    ]
    if absent:
        likely = likely_cause(names, declared.keys())
        causes = [] if likely is None else [FieldError("/file", likely)]
        raise Invalid(f"The file lacks {len(absent)} of the declared columns.", *causes, *absent[:100])


def likely_cause(names: Sequence[str], declared: AbstractSet[str]) -> str | None:
    """Return why a file may lack the declared columns, going by its first line; None: that says nothing."""
    words = names[0].split() if len(names) == 1 else []
    if len(words) > 1 and declared & {*words}:
        return "blanks seem to separate its cells: save it with commas between them"
    if names and all(map(_is_number, names)):
        return "its first line holds numbers where names belong: put a line with the names of the columns before it"
    return None


def _is_number(name: str) -> bool:
    try:
        float(name.strip().replace(",", "."))
    except ValueError:
        return False
    return True


def check_schema(schema: pa.Schema, columns: Sequence[Column]) -> None:
    """Refuse wrong names and types."""
    check_names(schema.names, columns)
    wrong = [
        FieldError(f"/columns/{place}/type", f"`{column.name}` is {column.type} here, but {kind} in the file; {fix}")
        for place, column in enumerate(columns)
        for kind in [schema.field(column.name).type]
        if (fix := _misfit(column, kind)) is not None
    ]
    if wrong:
        raise Invalid(f"Columns of other types than declared: {len(wrong)}.", *wrong[:100])


def _misfit(column: Column, kind: pa.DataType) -> str | None:
    """Return how to mend it when a column cannot be read from an Arrow type; None when it can."""
    types = pa.types
    if isinstance(column, ArrayColumn):
        return misfit_of_array(column, kind)
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
